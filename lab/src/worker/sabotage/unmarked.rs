use std::task::{Context, Poll};

use tidegate::{
    core::{Batch, Delivery, Error, Outcomes, take_ready},
    sql::{Database, InTransaction},
};
use tower_layer::Layer;
use tower_service::Service;

use super::{BoxFuture, in_transaction};

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
        let (inner, database) = (take_ready(&mut self.inner), self.database.clone());
        Box::pin(async move { in_transaction(&database, inner, batch).await })
    }
}
