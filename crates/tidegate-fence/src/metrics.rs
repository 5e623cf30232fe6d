use std::fmt;

use metrics::{Counter, Unit, counter, describe_counter};
use tidegate_core::LeaseState;

const REFUSED: &str = "tidegate_fence_refused_total";

// Handles are resolved once per layer, and only a refusal touches them.
#[derive(Clone)]
pub(crate) struct Metrics {
    refused: [(LeaseState, Counter); 4],
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(
            REFUSED,
            Unit::Count,
            "Deliveries refused, by the state that their lease was in."
        );
        use LeaseState::{Draining, Lost, Released, Suspended};
        let refused = [Draining, Suspended, Released, Lost]
            .map(|state| (state, counter!(REFUSED, "state" => state.as_str())));
        Self { refused }
    }

    pub(crate) fn refused(&self, state: LeaseState) {
        if let Some((_, counter)) = self.refused.iter().find(|(it, _)| *it == state) {
            counter.increment(1);
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
