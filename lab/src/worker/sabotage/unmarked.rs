use std::task::{Context, Poll};

use tidegate::{
    core::{Batch, Delivery, Error, Outcomes, take_ready},
    sql::{Database, EffectError, InTransaction},
};
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// In the place of the inbox: a transaction, and no markers.
#[derive(Clone)]
pub(in crate::worker) struct UnmarkedLayer {
    database: Database,
}

#[derive(Clone)]
pub(in crate::worker) struct UnmarkedService<S> {
    inner: S,
    database: Database,
}

impl UnmarkedLayer {
    pub(in crate::worker) fn new(database: Database) -> Self {
        Self { database }
    }
}

impl<S> Layer<S> for UnmarkedLayer {
    type Service = UnmarkedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        UnmarkedService { inner, database: self.database.clone() }
    }
}

impl<S, T> Service<Batch<Delivery<T>>> for UnmarkedService<S>
where
    S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes, Error = Error>,
    S: Clone + Send + 'static,
    S::Future: Send,
    T: Send + Sync + 'static,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = BoxFuture<Result<Outcomes, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, batch: Batch<Delivery<T>>) -> Self::Future {
        let mut inner = take_ready(&mut self.inner);
        let database = self.database.clone();
        Box::pin(async move {
            let owner = database.begin().await.map_err(EffectError::from)?;
            let outcomes = inner.call(InTransaction::new(owner.txn(), batch)).await?;
            owner.commit().await.map_err(EffectError::from)?;
            Ok(outcomes)
        })
    }
}
