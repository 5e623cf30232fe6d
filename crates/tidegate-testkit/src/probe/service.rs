use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot;
use tower_service::Service;

use super::{Locate, Place, Point, Probes, point::Side};

/// Looks at its probes with each request.
///
/// While it holds a request on the way in it is not ready: nothing overtakes
/// what a barrier holds.
pub struct ProbeService<S, L> {
    state: State<S>,
    probes: Probes,
    point: Point,
    locate: L,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum State<S> {
    Here(S),
    // With a request that is held; it comes back when that has been passed on.
    Away(oneshot::Receiver<S>),
}

/// The inner service, on its way with a request that is held.
struct Loan<S> {
    inner: Option<S>,
    back: Option<oneshot::Sender<S>>,
}

// ===== impl ProbeService =====

impl<S, L> ProbeService<S, L> {
    pub(super) fn new(inner: S, probes: Probes, point: Point, locate: L) -> Self {
        Self { state: State::Here(inner), probes, point, locate }
    }

    fn places<R>(&self, request: &R) -> Vec<Place>
    where
        L: Locate<R>,
    {
        self.locate.locate(request)
    }
}

impl<S, L, R> Service<R> for ProbeService<S, L>
where
    S: Service<R, Response: Send, Error: Send, Future: Send + 'static> + Send + 'static,
    L: Locate<R>,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        loop {
            match &mut self.state {
                State::Here(inner) => return inner.poll_ready(cx),
                State::Away(back) => {
                    let inner = ready!(Pin::new(back).poll(cx));
                    self.state = State::Here(inner.expect("a loan is given back, if not used"));
                }
            }
        }
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (probes, point) = (self.probes.clone(), self.point);
        if point.side() == Some(Side::After) {
            let places = self.places(&request);
            let response = self.state.ready().call(request);
            return Box::pin(async move {
                let response = response.await?;
                probes.reach(point, &places).await;
                Ok(response)
            });
        }
        let Some(places) = probes.catches(point, || self.places(&request)) else {
            return Box::pin(self.state.ready().call(request));
        };
        let mut loan = self.state.lend();
        Box::pin(async move {
            probes.reach(point, &places).await;
            let response = loan.call(request);
            drop(loan);
            response.await
        })
    }
}

/// # Panics
///
/// While it holds a request. A layer clones what it has readied before it
/// calls it, and a lane before it begins.
impl<S: Clone, L: Clone> Clone for ProbeService<S, L> {
    fn clone(&self) -> Self {
        let State::Here(inner) = &self.state else {
            panic!("a probe is not cloned while it holds a request");
        };
        Self::new(inner.clone(), self.probes.clone(), self.point, self.locate.clone())
    }
}

impl<S, L> fmt::Debug for ProbeService<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeService").field("point", &self.point).finish_non_exhaustive()
    }
}

// ===== impl State =====

impl<S> State<S> {
    fn ready(&mut self) -> &mut S {
        match self {
            Self::Here(inner) => inner,
            Self::Away(_) => panic!("`call` on a service that `poll_ready` did not ready"),
        }
    }

    /// Moves the service that was readied out, to be called later.
    fn lend(&mut self) -> Loan<S> {
        let (back, receiver) = oneshot::channel();
        match mem::replace(self, Self::Away(receiver)) {
            Self::Here(inner) => Loan { inner: Some(inner), back: Some(back) },
            Self::Away(_) => panic!("`call` on a service that `poll_ready` did not ready"),
        }
    }
}

// ===== impl Loan =====

impl<S> Loan<S> {
    fn call<R>(&mut self, request: R) -> S::Future
    where
        S: Service<R>,
    {
        self.inner.as_mut().expect("it is given back on drop only").call(request)
    }
}

impl<S> Drop for Loan<S> {
    fn drop(&mut self) {
        if let (Some(inner), Some(back)) = (self.inner.take(), self.back.take()) {
            // The stack may be gone, and the service with it.
            drop(back.send(inner));
        }
    }
}
