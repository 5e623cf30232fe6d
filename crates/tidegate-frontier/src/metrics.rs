use std::{fmt, sync::Arc};

use metrics::{Counter, Unit, counter, describe_counter};
use tidegate_core::{Class, Outcome, Recorded};

const OUTCOMES: &str = "tidegate_frontier_outcomes_total";
const LATE: &str = "tidegate_frontier_late_total";
const ABANDONED: &str = "tidegate_frontier_abandoned_total";

// Handles are resolved once per layer, so a record costs an atomic add and no
// label formatting. Shared, because each response future has them.
#[derive(Clone)]
pub(crate) struct Metrics {
    handles: Arc<Handles>,
}

struct Handles {
    outcomes: [(Outcome, Counter); Outcome::ALL.len()],
    late: Counter,
    transient: Counter,
    poison: Counter,
    fenced: Counter,
    fatal: Counter,
    dropped: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(OUTCOMES, Unit::Count, "Tickets completed, by outcome; late ones too.");
        describe_counter!(
            LATE,
            Unit::Count,
            "Completions that changed nothing, because their lease had ended."
        );
        describe_counter!(
            ABANDONED,
            Unit::Count,
            "Tickets abandoned, by the class of the error, or because the response was dropped."
        );
        let abandoned = |class: Class| counter!(ABANDONED, "cause" => class.as_str());
        let handles = Handles {
            outcomes: Outcome::ALL
                .map(|outcome| (outcome, counter!(OUTCOMES, "outcome" => outcome.as_str()))),
            late: counter!(LATE),
            transient: abandoned(Class::Transient),
            poison: abandoned(Class::Poison),
            fenced: abandoned(Class::Fenced),
            fatal: abandoned(Class::Fatal),
            dropped: counter!(ABANDONED, "cause" => "dropped"),
        };
        Self { handles: Arc::new(handles) }
    }

    pub(crate) fn completed(&self, recorded: Recorded) {
        let outcome = self.handles.outcomes.iter().find(|(it, _)| *it == recorded.outcome());
        if let Some((_, counter)) = outcome {
            counter.increment(1);
        }
        if recorded.is_late() {
            self.handles.late.increment(1);
        }
    }

    pub(crate) fn failed(&self, class: Class) {
        let counter = match class {
            Class::Transient => &self.handles.transient,
            Class::Poison => &self.handles.poison,
            Class::Fenced => &self.handles.fenced,
            Class::Fatal => &self.handles.fatal,
        };
        counter.increment(1);
    }

    pub(crate) fn dropped(&self) {
        self.handles.dropped.increment(1);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
