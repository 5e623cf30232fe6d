use std::{fmt, sync::Arc};

use metrics::{Counter, Unit, counter, describe_counter};

use crate::place::Place;

const BURIED: &str = "tidegate_dead_letter_buried_total";
const REMEMBERED: &str = "tidegate_dead_letter_remembered_total";

// Handles are resolved once per layer. Shared, because each delivery that may
// be buried has them.
#[derive(Clone)]
pub(crate) struct Metrics {
    handles: Arc<Handles>,
}

struct Handles {
    buried: [Counter; 2],
    remembered: [Counter; 2],
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_counter!(BURIED, Unit::Count, "Records stored as dead letters, by place.");
        describe_counter!(
            REMEMBERED,
            Unit::Count,
            "Records that were buried under an earlier lease, and not tried again."
        );
        let handles = Handles {
            buried: ["decode", "queue"].map(|place| counter!(BURIED, "place" => place)),
            remembered: ["decode", "queue"].map(|place| counter!(REMEMBERED, "place" => place)),
        };
        Self { handles: Arc::new(handles) }
    }

    pub(crate) fn buried(&self, place: Place) {
        self.handles.buried[place as usize].increment(1);
    }

    pub(crate) fn remembered(&self, place: Place, records: usize) {
        self.handles.remembered[place as usize].increment(records as u64);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
