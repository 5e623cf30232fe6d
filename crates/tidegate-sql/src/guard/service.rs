use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tidegate_core::{Batch, Delivery, Error, Outcomes, take_ready};
use tokio::task::JoinSet;
use tower_service::Service;

use super::{error::GuardError, keeper::Keeper};
use crate::{EffectError, InTransaction, LeaseEnded, TransactionRequest};

/// Lets a transaction through whose partition the database knows to be ours.
///
/// It is ready when the partition is claimed, and a membership proof was sent
/// since. It is ready too when the lease is not active any more: a call then
/// fails, unless the claim counted before.
pub struct EpochGuardService<S> {
    inner: S,
    keeper: Arc<Keeper>,
    // A task, so that it goes on, and gives up what it holds, though nobody polls
    // this instance. A clone has one of its own, and one of them all works.
    settling: JoinSet<()>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

// ===== impl EpochGuardService =====

impl<S> EpochGuardService<S> {
    pub(super) fn new(inner: S, keeper: Arc<Keeper>) -> Self {
        Self { inner, keeper, settling: JoinSet::new() }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes the guard, returning the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R> Service<R> for EpochGuardService<S>
where
    R: TransactionRequest<Value: Send + Sync + 'static>,
    S: Service<InTransaction<Batch<Delivery<R::Value>>>, Response = Outcomes, Error: Into<Error>>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = BoxFuture<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.keeper.is_settled() {
            if self.settling.is_empty() {
                self.settling.spawn(Arc::clone(&self.keeper).settle());
            }
            // One that panicked is started again.
            let _ = ready!(self.settling.poll_join_next(cx));
        }
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let request = request.into_transaction();
        let mut inner = take_ready(&mut self.inner);
        let keeper = Arc::clone(&self.keeper);
        Box::pin(async move {
            // Not any more, if a transaction of another lane was refused since
            // this one was readied.
            let Some(claimed) = keeper.counted() else { return Err(not_counted(&keeper)) };
            let refused = keeper.check(&request.txn, &claimed).await;
            match refused.map_err(EffectError::from)? {
                None => inner.call(request).await.map_err(Into::into),
                Some(refused) => Err(refused.into()),
            }
        })
    }
}

fn not_counted(keeper: &Keeper) -> Error {
    if keeper.lease().is_active() {
        return GuardError::Unclaimed.into();
    }
    LeaseEnded.into()
}

impl<S: Clone> Clone for EpochGuardService<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.keeper))
    }
}

impl<S: fmt::Debug> fmt::Debug for EpochGuardService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochGuardService")
            .field("inner", &self.inner)
            .field("keeper", &self.keeper)
            .finish_non_exhaustive()
    }
}
