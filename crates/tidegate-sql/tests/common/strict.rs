//! A probe that makes the call of an unready clone fail each time.

use std::{
    mem,
    task::{Context, Poll},
};

use tower::Service;

/// Wraps a service, and panics when it is called without having been readied.
///
/// A clone starts out unready. A layer that clones its inner service inside
/// `call`, and calls the clone, fails over this.
#[derive(Debug)]
pub(crate) struct Strict<S> {
    inner: S,
    readied: bool,
}

impl<S> Strict<S> {
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
        assert!(mem::take(&mut self.readied), "a call needs a readiness of its own");
        self.inner.call(request)
    }
}
