//! What the contract tests of the layers share: a probe and a delivery.

use std::{
    mem,
    task::{Context, Poll},
};

use tidegate_core::{Delivery, Epoch, Lease, LeaseOwner, Record, TopicPartition};
use tower_service::Service;

/// Wraps a service and panics when it is called without having been readied.
///
/// A clone starts out unready, as the clones of a concurrency limit or a
/// buffer do. A layer that clones its inner service inside `call`, and calls
/// the clone, therefore fails over this probe although it passes over a
/// service that is always ready.
#[derive(Debug)]
pub(crate) struct Strict<S> {
    inner: S,
    readied: bool,
}

// ===== impl Strict =====

impl<S> Strict<S> {
    /// Wraps `inner`.
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, readied: false }
    }
}

impl<S: Clone> Clone for Strict<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone())
    }
}

impl<S: Service<R>, R> Service<R> for Strict<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_ok(|()| self.readied = true)
    }

    fn call(&mut self, request: R) -> Self::Future {
        assert!(
            mem::take(&mut self.readied),
            "`call` on a service that `poll_ready` did not ready",
        );
        self.inner.call(request)
    }
}

/// A lease that no clock ends.
pub(crate) fn lease() -> (LeaseOwner, Lease) {
    Lease::grant(TopicPartition::new("transfers", 0), Epoch::new(1, "member"))
}

/// A record of seven bytes under that lease.
pub(crate) fn delivery(lease: &Lease, offset: i64) -> Delivery {
    Delivery::new(lease.clone(), Record::new(lease.partition().clone(), offset, "payload"))
}
