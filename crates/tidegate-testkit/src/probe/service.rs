use std::{
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    Away { back: oneshot::Receiver<()>, slot: Slot<S> },
}

/// The inner service, on its way with a request that is held.
struct Loan<S> {
    slot: Slot<S>,
    // Tells by its drop that the request has been passed on.
    _back: oneshot::Sender<()>,
}

// There is a service in it, until it comes back.
type Slot<S> = Arc<Mutex<Option<S>>>;

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
                State::Away { back, slot } => {
                    // Nothing is ever sent: the sender is dropped.
                    let _ = ready!(Pin::new(back).poll(cx));
                    let inner = lock(slot).take().expect("only this takes it");
                    self.state = State::Here(inner);
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
        let loan = self.state.lend();
        Box::pin(async move {
            probes.reach(point, &places).await;
            let response = loan.call(request);
            drop(loan);
            response.await
        })
    }
}

/// Of one that holds a request, it is a clone of what will be called with it.
impl<S: Clone, L: Clone> Clone for ProbeService<S, L> {
    fn clone(&self) -> Self {
        let inner = match &self.state {
            State::Here(inner) => inner.clone(),
            State::Away { slot, .. } => {
                lock(slot).as_ref().expect("it is taken with the state").clone()
            }
        };
        Self::new(inner, self.probes.clone(), self.point, self.locate.clone())
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
            Self::Away { .. } => panic!("`call` on a service that `poll_ready` did not ready"),
        }
    }

    /// Moves the service that was readied out, to be called later.
    fn lend(&mut self) -> Loan<S> {
        let (sender, back) = oneshot::channel();
        let slot = Slot::default();
        match mem::replace(self, Self::Away { back, slot: Arc::clone(&slot) }) {
            Self::Here(inner) => *lock(&slot) = Some(inner),
            Self::Away { .. } => panic!("`call` on a service that `poll_ready` did not ready"),
        }
        Loan { slot, _back: sender }
    }
}

// ===== impl Loan =====

impl<S> Loan<S> {
    fn call<R>(&self, request: R) -> S::Future
    where
        S: Service<R>,
    {
        let mut slot = lock(&self.slot);
        slot.as_mut().expect("it comes back when this is dropped").call(request)
    }
}

// What runs under the lock is the inner service's: a panic there is its own.
fn lock<S>(slot: &Slot<S>) -> MutexGuard<'_, Option<S>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
