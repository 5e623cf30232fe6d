use std::task::{Context, Poll};

use tidegate::{
    core::{Batch, Delivery, Error, Outcome, Outcomes, take_ready},
    sql::{Database, InTransaction},
};
use tower_layer::Layer;
use tower_service::Service;

use super::{BoxFuture, in_transaction};

/// Under the inbox: the effect is made in another transaction than the marker,
/// and later.
#[derive(Clone)]
pub(in crate::worker) struct MarkerFirstLayer {
    database: Database,
}

#[derive(Clone)]
pub(in crate::worker) struct MarkerFirstService<S> {
    inner: S,
    database: Database,
}

impl MarkerFirstLayer {
    pub(in crate::worker) fn new(database: Database) -> Self {
        Self { database }
    }
}

impl<S> Layer<S> for MarkerFirstLayer {
    type Service = MarkerFirstService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        MarkerFirstService { inner, database: self.database.clone() }
    }
}

impl<S, T> Service<InTransaction<Batch<Delivery<T>>>> for MarkerFirstService<S>
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

    fn call(&mut self, request: InTransaction<Batch<Delivery<T>>>) -> Self::Future {
        let (inner, database) = (take_ready(&mut self.inner), self.database.clone());
        let batch = request.request;
        let outcomes = Outcomes::all(Outcome::Applied, batch.len());
        // Nobody waits for it: that is what is wrong.
        tokio::spawn(async move { in_transaction(&database, inner, batch).await });
        Box::pin(async move { Ok(outcomes) })
    }
}
