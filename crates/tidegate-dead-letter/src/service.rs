use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tidegate_core::{Batch, DeadLetters, Delivery, Error, Outcome, Outcomes};
use tower_service::Service;

use crate::{
    burial::{Gate, Suspect},
    future::ResponseFuture,
    memory::Memory,
    metrics::Metrics,
    place::Place,
};

/// Turns a poison error into [`Outcome::Buried`], once the record is stored.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone)]
pub struct DeadLetterService<S, D> {
    inner: S,
    memory: Memory<D>,
    gate: Gate,
    metrics: Metrics,
}

// ===== impl DeadLetterService =====

impl<S, D> DeadLetterService<S, D> {
    pub(crate) fn new(inner: S, memory: Memory<D>, metrics: Metrics) -> Self {
        Self { inner, memory, gate: Gate::default(), metrics }
    }

    /// A reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// A mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Consumes the service, returning the inner one.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, D: DeadLetters> DeadLetterService<S, D> {
    /// Waits for what must be known before a delivery is taken.
    ///
    /// What is answered without a call, from memory or because the store could
    /// not be asked, leaves the inner service's reservation for the next one.
    fn poll_decided(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.memory.poll_known(cx));
        // I14: nothing overtakes the decision about a record. Under the queue
        // this is always open: the lane waits by itself, and the others go on.
        self.gate.poll_open(cx)
    }

    fn suspect<T>(&self, delivery: &Delivery<T>, place: Place) -> Suspect<D> {
        // A copy of reference counts: no layer above has the record after its
        // call.
        let (lease, record) = (delivery.lease.clone(), delivery.record.clone());
        let undecided = (place == Place::Decode).then(|| Arc::clone(self.gate.undecided()));
        let (letters, metrics) = (self.memory.letters().clone(), self.metrics.clone());
        Suspect { letters, lease, record, place, undecided, metrics }
    }
}

impl<S, D> Service<Delivery> for DeadLetterService<S, D>
where
    S: Service<Delivery, Response = Outcome, Error: Into<Error>>,
    D: DeadLetters,
{
    type Response = Outcome;
    type Error = Error;
    type Future = ResponseFuture<S::Future, D, Outcome>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.poll_decided(cx));
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, delivery: Delivery) -> Self::Future {
        if let Some(error) = self.memory.take_failure() {
            return ResponseFuture::answered(Err(error));
        }
        if self.memory.has(delivery.record.offset) {
            self.metrics.remembered(Place::Decode, 1);
            return ResponseFuture::answered(Ok(Outcome::Buried));
        }
        let suspect = self.suspect(&delivery, Place::Decode);
        ResponseFuture::running(self.inner.call(delivery), Some(suspect), Vec::new())
    }
}

impl<S, D, T> Service<Batch<Delivery<T>>> for DeadLetterService<S, D>
where
    S: Service<Batch<Delivery<T>>, Response = Outcomes, Error: Into<Error>>,
    D: DeadLetters,
{
    type Response = Outcomes;
    type Error = Error;
    type Future = ResponseFuture<S::Future, D, Outcomes>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.poll_decided(cx));
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, batch: Batch<Delivery<T>>) -> Self::Future {
        if let Some(error) = self.memory.take_failure() {
            return ResponseFuture::answered(Err(error));
        }
        let is_buried = |delivery: &Arc<Delivery<T>>| self.memory.has(delivery.record.offset);
        let (batch, remembered) = if batch.iter().any(is_buried) {
            let remembered: Vec<_> = batch.iter().map(is_buried).collect();
            let rest = batch.iter().filter(|delivery| !is_buried(delivery)).cloned();
            let rest = Batch::new(rest.collect());
            let count = remembered.len() - rest.as_ref().map_or(0, |rest| rest.len());
            self.metrics.remembered(Place::Queue, count);
            let Some(rest) = rest else {
                return ResponseFuture::answered(Ok(Outcomes::all(Outcome::Buried, count)));
            };
            (rest, remembered)
        } else {
            (batch, Vec::new())
        };
        // Of more than one, the queue finds out first which it is.
        let suspect = (batch.len() == 1).then(|| self.suspect(batch.first(), Place::Queue));
        ResponseFuture::running(self.inner.call(batch), suspect, remembered)
    }
}

impl<S: fmt::Debug, D> fmt::Debug for DeadLetterService<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetterService")
            .field("inner", &self.inner)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}
