use std::fmt;

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};
use tidegate_core::{Outcome, sequencer::Plan};

// Handles are resolved once, when a sequencer is made.
#[derive(Clone)]
pub(crate) struct Metrics {
    next: Counter,
    stale: Counter,
    early: Counter,
    refused: Counter,
    released: Counter,
    withheld: Counter,
    parked_now: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(
            "tidegate_sequencer_deltas_total",
            "Deltas that were looked at, by their place in the order of their entity."
        );
        describe_counter!("tidegate_sequencer_released_total", "Parked deltas that passed.");
        describe_counter!(
            "tidegate_sequencer_withheld_total",
            "Parked deltas that failed alone, and are withheld."
        );
        describe_gauge!(
            "tidegate_sequencer_parked",
            "Deltas that are parked in the namespace, as they were last counted."
        );
        let delta = |place| counter!("tidegate_sequencer_deltas_total", "place" => place);
        Self {
            next: delta("next"),
            stale: delta("stale"),
            early: delta("early"),
            refused: delta("refused"),
            released: counter!("tidegate_sequencer_released_total"),
            withheld: counter!("tidegate_sequencer_withheld_total"),
            parked_now: gauge!("tidegate_sequencer_parked"),
        }
    }

    pub(crate) fn planned(&self, plan: &Plan<'_>) {
        let (stale, early) = (plan.kept(Outcome::Stale), plan.kept(Outcome::Parked));
        self.next.increment((plan.verdicts.len() - stale - early) as u64);
        self.stale.increment(stale as u64);
        self.early.increment(early as u64);
        self.released(plan.released);
    }

    pub(crate) fn released(&self, count: usize) {
        self.released.increment(count as u64);
    }

    pub(crate) fn refused(&self) {
        self.refused.increment(1);
    }

    pub(crate) fn withheld(&self) {
        self.withheld.increment(1);
    }

    pub(crate) fn parked_now(&self, count: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        self.parked_now.set(count as f64);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
