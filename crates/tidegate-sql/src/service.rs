use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{Effect, EffectBatch, InTransaction, TransactionRequest, Txn};
use tidegate_core::{Batch, Delivery, Error, Outcome, Outcomes};

/// The innermost service of a stack: it applies the application's effect.
///
/// The effect's own type is erased. That costs nothing, since the future of a
/// batch is boxed anyway, and it makes a stack's type one that can be written
/// down: `InboxService<EffectService<Transfer>>`.
pub struct EffectService<T> {
    effect: Arc<dyn ApplyBatch<T>>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Applies a batch in one way or another.
trait ApplyBatch<T>: Send + Sync {
    fn apply_batch(
        self: Arc<Self>,
        txn: Txn,
        batch: Batch<Delivery<T>>,
    ) -> BoxFuture<Result<Outcomes, Error>>;
}

struct Each<A>(A);

struct Whole<A>(A);

// ===== impl EffectService =====

impl<T: Send + Sync + 'static> EffectService<T> {
    pub(super) fn each<A: Effect<T>>(effect: A) -> Self {
        Self { effect: Arc::new(Each(effect)) }
    }

    pub(super) fn whole<A: EffectBatch<T>>(effect: A) -> Self {
        Self { effect: Arc::new(Whole(effect)) }
    }
}

impl<T, R> Service<R> for EffectService<T>
where
    R: TransactionRequest<Value = T>,
    T: Send + Sync + 'static,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = BoxFuture<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let InTransaction { txn, request: batch, .. } = request.into_transaction();
        Arc::clone(&self.effect).apply_batch(txn, batch)
    }
}

impl<T> Clone for EffectService<T> {
    fn clone(&self) -> Self {
        Self { effect: Arc::clone(&self.effect) }
    }
}

impl<T> fmt::Debug for EffectService<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectService").finish_non_exhaustive()
    }
}

// ===== impl ApplyBatch =====

impl<A, T> ApplyBatch<T> for Each<A>
where
    A: Effect<T>,
    T: Send + Sync + 'static,
{
    fn apply_batch(
        self: Arc<Self>,
        txn: Txn,
        batch: Batch<Delivery<T>>,
    ) -> BoxFuture<Result<Outcomes, Error>> {
        Box::pin(async move {
            for delivery in batch.iter() {
                let applied = self.0.apply(&txn, &delivery.value).await;
                let applied = txn.judge(applied.map_err(Into::into));
                applied.map_err(|error| Error::from(error).with_culprit(delivery.culprit()))?;
            }
            Ok(Outcomes::all(Outcome::Applied, batch.len()))
        })
    }
}

impl<A, T> ApplyBatch<T> for Whole<A>
where
    A: EffectBatch<T>,
    T: Send + Sync + 'static,
{
    fn apply_batch(
        self: Arc<Self>,
        txn: Txn,
        batch: Batch<Delivery<T>>,
    ) -> BoxFuture<Result<Outcomes, Error>> {
        Box::pin(async move {
            let values: Vec<_> = batch.iter().map(|delivery| &delivery.value).collect();
            let applied = self.0.apply(&txn, &values).await.map_err(Into::into);
            let culprit = |index: usize| batch.get(index).map(|it: &Arc<_>| it.culprit());
            txn.judge(applied).map_err(|error| error.among(culprit))?;
            Ok(Outcomes::all(Outcome::Applied, batch.len()))
        })
    }
}
