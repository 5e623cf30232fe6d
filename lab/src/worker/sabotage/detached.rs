use std::task::{Context, Poll};

use tidegate::core::{Class, Delivery, Error, Recorded};
use tower_layer::Layer;
use tower_service::Service;

use super::BoxFuture;

/// Above all others: each delivery is worked on in a task of its own, which
/// nobody ends and which keeps the stack alive. When the source drops the stack,
/// its work goes on.
pub(in crate::worker) struct DetachedLayer;

pub(in crate::worker) struct DetachedService<S> {
    inner: S,
}

impl<S> Layer<S> for DetachedLayer {
    type Service = DetachedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DetachedService { inner }
    }
}

impl<S> Service<Delivery> for DetachedService<S>
where
    S: Service<Delivery, Response = Recorded, Error = Error> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Recorded;
    type Error = Error;
    type Future = BoxFuture<Result<Recorded, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        let (response, stack) = (self.inner.call(delivery), self.inner.clone());
        let task = tokio::spawn(async move {
            let response = response.await;
            drop(stack);
            response
        });
        Box::pin(
            async move { task.await.unwrap_or_else(|error| Err(Error::new(Class::Fatal, error))) },
        )
    }
}
