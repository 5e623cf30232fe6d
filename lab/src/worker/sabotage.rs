//! Layers that are wrong on purpose, and one that is merely rude.

mod admitting;
mod cancelled;
mod detached;
mod early;
mod highest;
mod marker_first;
mod unmarked;

use std::pin::Pin;

use tidegate::{
    core::{Batch, Delivery, Error, Outcomes},
    sql::{Database, EffectError, InTransaction},
};
use tower_service::Service;

use self::admitting::Completes;
pub(super) use self::{
    admitting::AdmittingLayer, cancelled::CancelledCompleted, detached::DetachedLayer,
    early::CompletedEarly, highest::HighestFinished, marker_first::MarkerFirstLayer,
    unmarked::UnmarkedLayer,
};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Calls a service that was readied, in a transaction that marks nothing.
async fn in_transaction<S, T>(
    database: &Database,
    mut inner: S,
    batch: Batch<Delivery<T>>,
) -> Result<Outcomes, Error>
where
    S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes, Error = Error>,
{
    let owner = database.begin().await.map_err(EffectError::from)?;
    let outcomes = inner.call(InTransaction::new(owner.txn(), batch)).await?;
    owner.commit().await.map_err(EffectError::from)?;
    Ok(outcomes)
}
