use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tidegate_core::{
    Batch, BatchRequest, ByValue, Condition, Delivery, Error, Identify, Lease, Outcomes,
    inbox::{ConflictAt, Decided, Messages, New, Outlook},
    take_ready,
};
use tidegate_sql::{EffectError, InTransaction, LeaseEnded, Txn, TxnOwner, inbox, is_unreachable};
use tokio::time::Instant;
use tower_service::Service;

use crate::{Conflict, Inbox, TopicChanged};

/// Begins a transaction, marks the messages, calls the inner service with those
/// that are new, checks the lease, and commits.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct InboxService<S, I = ByValue> {
    inner: S,
    inbox: Inbox,
    identify: I,
    outlook: Arc<Outlook>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

// How many further transactions may fail, one after the other. A sequencer goes
// on more carefully after each.
const FAILURES: u32 = 3;

// ===== impl InboxService =====

impl<S, I> InboxService<S, I> {
    pub(crate) fn new(inner: S, inbox: Inbox, identify: I) -> Self {
        Self { inner, inbox, identify, outlook: Arc::default() }
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
            outlook: Arc::clone(&self.outlook),
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
    outlook: Arc<Outlook>,
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
        let (owner, decided) = self.claimed(&batch, messages).await?;
        let new = messages.new_of(&batch, &decided);
        let applied = match &new {
            Some(new) => {
                let request = in_transaction(owner.txn(), new);
                Some(inner.call(request).await.map_err(Into::into)?)
            }
            None => None,
        };
        self.check_lease()?;
        if applied.is_some() {
            owner.commit().await.map_err(EffectError::from)?;
        }
        if self.lease.condition() != Condition::WaitingForGap {
            self.lease.set_condition(Condition::Running);
        }
        self.inbox.metrics().claimed(decided.each());
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

    /// Begins a transaction, and claims the messages of a batch in it.
    async fn claimed<T>(
        &self,
        batch: &Batch<Delivery<T>>,
        messages: &Messages,
    ) -> Result<(TxnOwner, Decided), Error> {
        let mut expected = self.outlook.expects_news();
        loop {
            self.enter(batch, messages).await?;
            let owner = self.begin(batch).await?;
            let claimed = inbox::claim(&owner.txn(), &self.lease, messages, expected).await;
            match claimed.map_err(EffectError::from)? {
                inbox::Claimed::Met(it) => return Ok((owner, self.decide(batch, messages, it)?)),
                // It was known when the lease began: somebody cleared the table.
                inbox::Claimed::Unknown => self.outlook.set_entered(false),
                inbox::Claimed::Repeated => {
                    self.inbox.metrics().claimed_again();
                    self.outlook.met(false);
                    expected = false;
                }
            }
            self.check_lease()?;
        }
    }

    /// Makes the partition known, the first time.
    ///
    /// In a transaction of its own: in that of the batch, all lanes would wait
    /// for an effect that takes its time.
    async fn enter<T>(&self, batch: &Batch<Delivery<T>>, messages: &Messages) -> Result<(), Error> {
        if self.outlook.is_entered() {
            return Ok(());
        }
        let owner = self.begin(batch).await?;
        inbox::enter(&owner.txn(), &self.lease, messages).await.map_err(EffectError::from)?;
        self.check_lease()?;
        owner.commit().await.map_err(EffectError::from)?;
        self.outlook.set_entered(true);
        Ok(())
    }

    async fn begin<T>(&self, batch: &Batch<Delivery<T>>) -> Result<TxnOwner, Error> {
        let since = Instant::now();
        let begun = self.inbox.database().begin().await;
        batch.waited(since.elapsed());
        if begun.as_ref().is_err_and(is_unreachable) {
            self.lease.set_condition(Condition::DatabaseDown);
        }
        Ok(begun.map_err(EffectError::from)?)
    }

    /// Decides about the deliveries of a batch.
    fn decide<T>(
        &self,
        batch: &Batch<Delivery<T>>,
        messages: &Messages,
        claim: inbox::Claim,
    ) -> Result<Decided, Error> {
        if let (Some(known), Some(found)) = (&claim.topic_id, self.lease.topic_id())
            && known != found
        {
            let partition = self.lease.partition().clone();
            let (known, found) = (known.clone(), found.clone());
            return Err(TopicChanged { partition, known, found }.into());
        }
        let decided = messages.decide(claim.pruned, claim.before);
        self.outlook.met(decided.as_ref().is_ok_and(Decided::is_all_new));
        decided.map_err(|ConflictAt { index, id }| {
            let culprit = batch[index].culprit();
            self.inbox.metrics().conflict();
            tracing::warn!(
                partition = %culprit.partition,
                offset = culprit.offset,
                message_id = %id,
                "a message came again with another payload",
            );
            Error::from(Conflict { id }).with_culprit(culprit)
        })
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
        let owner = self.begin(&new.batch).await?;
        let request = in_transaction(owner.txn(), new);
        let outcomes = inner.call(request).await.map_err(Into::into)?;
        self.check_lease()?;
        owner.commit().await.map_err(EffectError::from)?;
        Ok(outcomes.has_more())
    }
}

fn in_transaction<T>(txn: Txn, new: &New<T>) -> InTransaction<Batch<Delivery<T>>> {
    InTransaction::new(txn, new.batch.clone()).with_marks(Arc::clone(&new.marks))
}
