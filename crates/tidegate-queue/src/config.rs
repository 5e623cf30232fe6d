use std::time::Duration;

use tidegate_core::Volume;

/// How much a queue holds, and how it hands it down.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    pub(crate) lanes: usize,
    pub(crate) in_flight: Volume,
    pub(crate) batch: Volume,
    pub(crate) batch_time: Duration,
}

impl Default for QueueConfig {
    /// One lane; 4 000 records and 16 MiB in flight; batches of up to 1 000
    /// records, 4 MiB and 50 ms.
    fn default() -> Self {
        Self {
            lanes: 1,
            // While one full batch runs, one waits, and the answers of one are
            // still to be taken; the fourth is for a source that is behind.
            in_flight: Volume { records: 4_000, bytes: 16 << 20 },
            batch: Volume { records: 1_000, bytes: 4 << 20 },
            batch_time: Duration::from_millis(50),
        }
    }
}

impl QueueConfig {
    /// Sets the number of lanes. Each runs a batch of its own at a time.
    ///
    /// # Panics
    ///
    /// When `lanes` is zero.
    #[must_use]
    pub fn lanes(self, lanes: usize) -> Self {
        assert!(lanes > 0, "a queue has a lane");
        Self { lanes, ..self }
    }

    /// Sets the most records in flight: waiting, running, or answered without
    /// that the answer was taken.
    ///
    /// Less than twice a batch leaves a lane idle between two batches.
    ///
    /// # Panics
    ///
    /// When `records` is zero.
    #[must_use]
    pub fn records(self, records: usize) -> Self {
        assert!(records > 0, "a queue has room for a record");
        Self { in_flight: Volume { records, ..self.in_flight }, ..self }
    }

    /// Sets the bytes in flight at which the queue is full.
    ///
    /// The size of a record is not known when its place is reserved, so each
    /// reservation that was made below the bound may exceed it by one record.
    ///
    /// # Panics
    ///
    /// When `bytes` is zero.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Self {
        assert!(bytes > 0, "a queue has room for a byte");
        Self { in_flight: Volume { bytes, ..self.in_flight }, ..self }
    }

    /// Sets the most records in a batch.
    ///
    /// # Panics
    ///
    /// When `records` is zero.
    #[must_use]
    pub fn batch_records(self, records: usize) -> Self {
        assert!(records > 0, "a batch is never empty");
        Self { batch: Volume { records, ..self.batch }, ..self }
    }

    /// Sets the most bytes in a batch. One record is handed down whatever its
    /// size.
    ///
    /// # Panics
    ///
    /// When `bytes` is zero.
    #[must_use]
    pub fn batch_bytes(self, bytes: usize) -> Self {
        assert!(bytes > 0, "a batch is never empty");
        Self { batch: Volume { bytes, ..self.batch }, ..self }
    }

    /// Sets the longest that a batch should run.
    ///
    /// The time of the next batch is foretold from those before it; what a
    /// batch waited for a connection or between two tries does not count.
    ///
    /// # Panics
    ///
    /// When `time` is zero.
    #[must_use]
    pub fn batch_time(self, time: Duration) -> Self {
        assert!(!time.is_zero(), "a batch takes time");
        Self { batch_time: time, ..self }
    }
}
