use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use tidegate_core::{Batch, Delivery, Error, Outcomes, Sequenced, take_ready};
use tidegate_sql::{InTransaction, TransactionRequest};
use tower_service::Service;

use crate::{Sequencer, work::Work};

/// Lets the next revision of an entity pass, skips a stale one, parks an early
/// one, and releases what waited for it.
///
/// See the [crate docs](crate) for an example.
pub struct SequencerService<S, T> {
    inner: S,
    sequencer: Sequencer<T>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

// ===== impl SequencerService =====

impl<S, T> SequencerService<S, T> {
    pub(crate) fn new(inner: S, sequencer: Sequencer<T>) -> Self {
        Self { inner, sequencer }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes the service, returning the inner one.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, T, R> Service<R> for SequencerService<S, T>
where
    R: TransactionRequest<Value = T>,
    T: Sequenced + Send + Sync + 'static,
    S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes, Error: Into<Error>>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = BoxFuture<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let request = request.into_transaction();
        let mut inner = take_ready(&mut self.inner);
        let sequencer = self.sequencer.clone();
        // Boxed, as is each call to the database: the future is large, and one
        // allocation is nothing next to a round trip.
        Box::pin(async move {
            let work = Work::new(&sequencer, request);
            let deltas = work.deltas()?;
            let plan = work.plan(&deltas).await?;
            let passed = work.write(&deltas, &plan).await?;
            let mut applied = Vec::new();
            if let Some(passed) = passed {
                let outcomes = inner.call(passed).await.map_err(Into::into);
                applied.extend(outcomes.map_err(|error| work.judge(error, &plan))?);
            }
            Ok(work.finish(&plan, &applied))
        })
    }
}

impl<S: Clone, T> Clone for SequencerService<S, T> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.sequencer.clone())
    }
}

impl<S: fmt::Debug, T> fmt::Debug for SequencerService<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequencerService")
            .field("inner", &self.inner)
            .field("sequencer", &self.sequencer)
            .finish()
    }
}
