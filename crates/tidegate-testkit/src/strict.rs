use std::{
    convert::Infallible,
    future::{Ready, ready},
    mem,
    task::{Context, Poll},
};

use tower_service::Service;

/// Wraps a service and panics when it is called without having been readied.
///
/// A clone starts out unready, as the clones of a concurrency limit or a
/// buffer do. A layer that clones its inner service inside `call`, and calls
/// the clone, therefore fails over this probe although it passes over a
/// service that is always ready.
///
/// ```
/// use tidegate_testkit::{Echo, Strict};
/// use tower::{Service as _, ServiceExt as _};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut service = Strict::new(Echo);
/// assert_eq!((&mut service).oneshot("ready").await.unwrap(), "ready");
///
/// // Readiness is spent.
/// let unready = std::panic::AssertUnwindSafe(|| service.call("unready"));
/// assert!(std::panic::catch_unwind(unready).is_err());
/// # }
/// ```
#[derive(Debug)]
pub struct Strict<S> {
    inner: S,
    readied: bool,
}

/// Answers each request with itself, at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

// ===== impl Strict =====

impl<S> Strict<S> {
    /// Wraps `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, readied: false }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes the wrapper, returning the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

// Readiness belongs to an instance: a clone has none.
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

// ===== impl Echo =====

impl<R> Service<R> for Echo {
    type Response = R;
    type Error = Infallible;
    type Future = Ready<Result<R, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        ready(Ok(request))
    }
}
