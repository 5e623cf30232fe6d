use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tidegate_core::{
    Batch, BatchRequest, ByValue, Condition, Delivery, Error, Identify, Lease, Outcome, Outcomes,
    take_ready,
};
use tidegate_sql::{
    DbErr, EffectError, InTransaction, LeaseEnded, Txn, TxnOwner, is_unreachable,
    tables::{
        Mark,
        markers::{self, Claim},
    },
};
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    Inbox, TopicChanged,
    claim::{ConflictAt, Decided, Messages},
    source,
};

/// Begins a transaction, marks the messages, calls the inner service with those
/// that are new, checks the lease, and commits.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct InboxService<S, I = ByValue> {
    inner: S,
    inbox: Inbox,
    identify: I,
    // Whether the partition of this stack is known to the inbox.
    entered: Arc<AtomicBool>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

// How many further transactions may fail, one after the other. A sequencer goes
// on more carefully after each.
const FAILURES: u32 = 3;

// ===== impl InboxService =====

impl<S, I> InboxService<S, I> {
    pub(crate) fn new(inner: S, inbox: Inbox, identify: I) -> Self {
        Self { inner, inbox, identify, entered: Arc::default() }
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

impl<S, I, R> Service<R> for InboxService<S, I>
where
    R: BatchRequest<Value: Send + Sync + 'static>,
    S: Service<InTransaction<Batch<Delivery<R::Value>>>, Response = Outcomes, Error: Into<Error>>,
    S: Clone + Send + 'static,
    S::Future: Send,
    I: Identify<R::Value>,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = BoxFuture<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let batch = request.into_batch();
        let inner = take_ready(&mut self.inner);
        let call = Call {
            inbox: self.inbox.clone(),
            lease: Lease::clone(&batch.first().lease),
            entered: Arc::clone(&self.entered),
        };
        let messages = Messages::of(&self.identify, &batch);
        // Boxed, as is each call to the database: the future is large, and one
        // allocation is nothing next to a round trip.
        Box::pin(async move { call.run(inner, batch, &messages?).await })
    }
}

/// One call, without the inner service: that is only `Send`.
struct Call {
    inbox: Inbox,
    lease: Lease,
    entered: Arc<AtomicBool>,
}

/// The deliveries of a batch that are new.
struct New<T> {
    batch: Batch<Delivery<T>>,
    marks: Arc<[Mark]>,
}

impl Call {
    async fn run<S, T>(
        self,
        mut inner: S,
        batch: Batch<Delivery<T>>,
        messages: &Messages,
    ) -> Result<Outcomes, Error>
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes, Error: Into<Error>>,
    {
        // Dropped with this future, it rolls back.
        let owner = self.begin(&batch).await?;
        let txn = owner.txn();
        let enters = !self.entered.load(Ordering::Acquire);
        let decided = self.claim(&txn, &batch, messages, enters).await?;
        let new = New::of(&batch, messages, &decided);
        let applied = match &new {
            Some(new) => Some(inner.call(new.in_transaction(txn)).await.map_err(Into::into)?),
            None => None,
        };
        self.check_lease()?;
        if applied.is_some() || enters {
            owner.commit().await.map_err(EffectError::from)?;
            self.entered.store(true, Ordering::Release);
        }
        if self.lease.condition() != Condition::WaitingForGap {
            self.lease.set_condition(Condition::Running);
        }
        self.inbox.metrics().claimed(&decided.each);
        let has_more = applied.as_ref().is_some_and(Outcomes::has_more);
        let outcomes = decided.with_applied(applied);
        if let Some(new) = new.filter(|_| has_more) {
            let since = Instant::now();
            self.further(&mut inner, &new).await;
            // How long it took has nothing to do with how large the batch was.
            batch.waited(since.elapsed());
        }
        Ok(outcomes)
    }

    async fn begin<T>(&self, batch: &Batch<Delivery<T>>) -> Result<TxnOwner, Error> {
        let since = Instant::now();
        let begun = self.inbox.database().begin().await;
        batch.waited(since.elapsed());
        begun.map_err(|error| self.begin_failed(error))
    }

    fn begin_failed(&self, error: DbErr) -> Error {
        if is_unreachable(&error) {
            self.lease.set_condition(Condition::DatabaseDown);
        }
        EffectError::from(error).into()
    }

    /// Claims the messages of a batch, and decides about its deliveries.
    async fn claim<T>(
        &self,
        txn: &Txn,
        batch: &Batch<Delivery<T>>,
        messages: &Messages,
        enters: bool,
    ) -> Result<Decided, Error> {
        let claim = self.claim_in(txn, messages, enters).await.map_err(EffectError::from)?;
        if let (Some(known), Some(found)) = (&claim.topic_id, self.lease.topic_id())
            && known != found
        {
            let partition = self.lease.partition().clone();
            let (known, found) = (known.clone(), found.clone());
            return Err(TopicChanged { partition, known, found }.into());
        }
        let decided = messages.decide(claim.pruned, claim.before);
        decided.map_err(|ConflictAt { index, conflict }| {
            let culprit = batch[index].culprit();
            self.inbox.metrics().conflict();
            tracing::warn!(
                partition = %culprit.partition,
                offset = culprit.offset,
                message = %conflict.id,
                "a message came again with another payload",
            );
            Error::from(conflict).with_culprit(culprit)
        })
    }

    async fn claim_in(
        &self,
        txn: &Txn,
        messages: &Messages,
        mut enters: bool,
    ) -> Result<Claim, DbErr> {
        let partition = self.lease.partition();
        let markers = messages.markers();
        loop {
            if enters {
                let start = self.lease.acknowledged().unwrap_or_else(|| messages.first_offset());
                source::enter(txn, partition, self.lease.topic_id(), start).await?;
            }
            if let Some(claim) = markers::claim(txn, partition, &markers).await? {
                return Ok(claim);
            }
            // It was known when this stack began: somebody cleared the table.
            enters = true;
        }
    }

    fn check_lease(&self) -> Result<(), LeaseEnded> {
        if self.lease.is_held() { Ok(()) } else { Err(LeaseEnded) }
    }

    /// Runs further transactions, as long as the batch set something free and
    /// the lease is active.
    ///
    /// The batch itself is committed, so its outcomes stand whatever happens
    /// here: what is left is found again, by the next delta of its entity or by
    /// a sweep.
    async fn further<S, T>(&self, inner: &mut S, new: &New<T>)
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes, Error: Into<Error>>,
    {
        let mut failures = 0;
        while self.lease.is_active() {
            self.inbox.metrics().further();
            match self.once_more(inner, new).await {
                Ok(true) => failures = 0,
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(
                        partition = %self.lease.partition(),
                        error = error.chain(),
                        "cannot go on with what a batch set free",
                    );
                    failures += 1;
                    let is_down = self.lease.condition() == Condition::DatabaseDown;
                    if failures == FAILURES || is_down {
                        return;
                    }
                }
            }
        }
    }

    async fn once_more<S, T>(&self, inner: &mut S, new: &New<T>) -> Result<bool, Error>
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes, Error: Into<Error>>,
    {
        // Before `BEGIN`: no readiness is waited for with a transaction open.
        poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
        let begun = self.inbox.database().begin().await;
        let owner = begun.map_err(|error| self.begin_failed(error))?;
        let request = new.in_transaction(owner.txn());
        let outcomes = inner.call(request).await.map_err(Into::into)?;
        self.check_lease()?;
        owner.commit().await.map_err(EffectError::from)?;
        Ok(outcomes.has_more())
    }
}

// ===== impl New =====

impl<T> New<T> {
    fn of(batch: &Batch<Delivery<T>>, messages: &Messages, decided: &Decided) -> Option<Self> {
        let new = || decided.each.iter().enumerate().filter(|(_, it)| it.is_none());
        let marks = new().map(|(index, _)| messages.mark(index)).collect();
        let deliveries = new().map(|(index, _)| Arc::clone(&batch[index])).collect();
        Batch::new(deliveries).map(|batch| Self { batch, marks })
    }

    fn in_transaction(&self, txn: Txn) -> InTransaction<Batch<Delivery<T>>> {
        InTransaction::new(txn, self.batch.clone()).with_marks(Arc::clone(&self.marks))
    }
}

// ===== impl Decided =====

impl Decided {
    /// Puts the outcomes of what was new in its places.
    fn with_applied(self, applied: Option<Outcomes>) -> Outcomes {
        let mut applied = applied.into_iter().flatten();
        let outcome = |decided: Option<Outcome>| decided.or_else(|| applied.next());
        let outcomes = self.each.into_iter().map(outcome).collect::<Option<Outcomes>>();
        outcomes.expect("the inner service answers for each delivery")
    }
}
