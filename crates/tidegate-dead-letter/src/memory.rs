use std::{
    collections::BTreeSet,
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use tidegate_core::{DeadLetters, Error, TopicPartition};

type Asking = Pin<Box<dyn Future<Output = Result<BTreeSet<i64>, Error>> + Send>>;

/// What the store says was buried before the lease began.
///
/// What is buried under the lease itself is not delivered under it again.
pub(crate) struct Memory<D> {
    letters: D,
    partition: TopicPartition,
    from: i64,
    // Shared by the clones, which ask for themselves until one of them knows.
    buried: Arc<OnceLock<BTreeSet<i64>>>,
    asking: Option<Asking>,
    // Why the store did not say, until a call says it.
    failed: Option<Error>,
}

impl<D> Memory<D> {
    pub(crate) fn new(letters: D, partition: TopicPartition, from: i64) -> Self {
        let buried = Arc::default();
        Self { letters, partition, from, buried, asking: None, failed: None }
    }

    pub(crate) fn letters(&self) -> &D {
        &self.letters
    }

    pub(crate) fn has(&self, offset: i64) -> bool {
        self.buried.get().is_some_and(|buried| buried.contains(&offset))
    }

    /// Why the store did not say. It is asked again after this.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }
}

impl<D: DeadLetters> Memory<D> {
    /// Asks the store, once.
    ///
    /// An error is kept for the next call: that of readiness would be final.
    pub(crate) fn poll_known(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failed.is_some() || self.buried.get().is_some() {
            self.asking = None;
            return Poll::Ready(());
        }
        let asking = self.asking.get_or_insert_with(|| {
            let (letters, partition) = (self.letters.clone(), self.partition.clone());
            let from = self.from;
            Box::pin(async move { letters.buried(&partition, from).await })
        });
        let result = ready!(asking.as_mut().poll(cx));
        self.asking = None;
        match result {
            Ok(buried) => {
                if !buried.is_empty() {
                    let (partition, records) = (&self.partition, buried.len());
                    tracing::info!(%partition, records, "records are buried and not tried again");
                }
                self.buried.get_or_init(|| buried);
            }
            Err(error) => self.failed = Some(error),
        }
        Poll::Ready(())
    }
}

impl<D: Clone> Clone for Memory<D> {
    fn clone(&self) -> Self {
        // Neither a question under way nor its failure is a clone's.
        let Self { letters, partition, from, buried, .. } = self;
        let (letters, partition) = (letters.clone(), partition.clone());
        Self { buried: Arc::clone(buried), ..Self::new(letters, partition, *from) }
    }
}

impl<D> fmt::Debug for Memory<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("buried", &self.buried).finish_non_exhaustive()
    }
}
