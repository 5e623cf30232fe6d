use std::{fmt, time::Duration};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use tidegate_core::{Class, Volume};

const RECORDS: &str = "tidegate_queue_in_flight_records";
const BYTES: &str = "tidegate_queue_in_flight_bytes";
const BATCH_RECORDS: &str = "tidegate_queue_batch_records";
const BATCH_SECONDS: &str = "tidegate_queue_batch_seconds";
const BISECTIONS: &str = "tidegate_queue_bisections_total";
const HALTS: &str = "tidegate_queue_halts_total";
const UNSTARTED: &str = "tidegate_queue_unstarted_total";

// Handles are resolved once per layer. Nothing here is touched for each
// delivery, only for each batch.
#[derive(Clone)]
pub(crate) struct Metrics {
    records: Gauge,
    bytes: Gauge,
    batch_records: Histogram,
    batch_seconds: Histogram,
    bisections: Counter,
    halts: [(Class, Counter); 4],
    unstarted: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe();
        let halts = [Class::Transient, Class::Poison, Class::Fenced, Class::Fatal]
            .map(|class| (class, counter!(HALTS, "class" => class.as_str())));
        Self {
            records: gauge!(RECORDS),
            bytes: gauge!(BYTES),
            batch_records: histogram!(BATCH_RECORDS),
            batch_seconds: histogram!(BATCH_SECONDS),
            bisections: counter!(BISECTIONS),
            halts,
            unstarted: counter!(UNSTARTED),
        }
    }

    pub(crate) fn in_flight(&self, before: Volume, now: Volume) {
        // Counts and sizes are far below 2^53, and a gauge may grow by less
        // than nothing.
        self.records.increment(now.records as f64 - before.records as f64);
        self.bytes.increment(now.bytes as f64 - before.bytes as f64);
    }

    pub(crate) fn batch(&self, records: usize, running: Duration) {
        self.batch_records.record(records as f64);
        self.batch_seconds.record(running);
    }

    pub(crate) fn bisected(&self) {
        self.bisections.increment(1);
    }

    pub(crate) fn halted(&self, class: Class) {
        if let Some((_, counter)) = self.halts.iter().find(|(it, _)| *it == class) {
            counter.increment(1);
        }
    }

    pub(crate) fn unstarted(&self, deliveries: usize) {
        self.unstarted.increment(deliveries as u64);
    }
}

fn describe() {
    describe_gauge!(
        RECORDS,
        Unit::Count,
        "Deliveries that wait, run, or have an answer that was not taken; known for each batch."
    );
    describe_gauge!(BYTES, Unit::Bytes, "The bytes of the deliveries in flight.");
    describe_histogram!(BATCH_RECORDS, Unit::Count, "Deliveries in a batch that succeeded.");
    describe_histogram!(
        BATCH_SECONDS,
        Unit::Seconds,
        "How long a batch that succeeded ran, without what it waited."
    );
    describe_counter!(BISECTIONS, Unit::Count, "Batches taken apart because of a poison record.");
    describe_counter!(HALTS, Unit::Count, "Lanes stopped by a failed delivery, by its class.");
    describe_counter!(
        UNSTARTED,
        Unit::Count,
        "Deliveries left to the next owner because their lease was no longer active."
    );
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
