use std::time::Duration;

/// The weight of the newest measurement in a decaying mean. The older ones
/// share the rest, so that a batch counts half as much with each one after it.
const WEIGHT: f64 = 0.5;

/// A larger batch is worth its longer drain if a record that it adds costs less
/// than this share of what a record costs without it. At 0.8, doubling is worth
/// it while it takes less than 1.8 times as long, and ends where the fixed cost
/// of a batch is below a quarter of the cost of its records.
const WORTH: f64 = 0.8;

/// A batch that takes less than this share of the time bound may always grow:
/// it holds up no drain, and what is measured is noise.
const NEGLIGIBLE: f64 = 0.02;

/// Where the fixed cost alone comes near the time bound, a batch may take this
/// much of it: a drain waits for it anyway, and batches of one would not keep
/// up.
const AT_LEAST: f64 = 1.5;

/// Two batches tell the fixed cost from that of the records if the larger one
/// has this many times the records of the smaller one.
const APART: f64 = 1.5;

/// So often is a larger batch tried before it is found not to be worth it.
const TRIES: u32 = 3;

/// After so many full batches, a larger one is tried again: the database may
/// have changed.
const HOLD: u32 = 32;

/// How many records the next batch may have, found from how long batches run.
///
/// The time of a batch is taken to be a fixed cost and a cost for each record.
/// The first is worth sharing among more records, and two batches of different
/// size tell it from the second. The sum is kept to the time bound.
///
/// The size starts at one record, and doubles as long as that pays: until it
/// nearly doubles the time. A decaying mean of what a record costs says how
/// many fit into the bound.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_core::BatchSize;
///
/// // A transaction takes 20 ms, and each record in it 3 ms more.
/// let mut size = BatchSize::new(1_000, Duration::from_millis(50));
/// let sizes: Vec<_> = (0..6)
///     .map(|_| {
///         let records = size.limit();
///         size.observe(records, Duration::from_millis(20 + 3 * records as u64));
///         records
///     })
///     .collect();
/// assert_eq!(sizes, [1, 2, 4, 8, 10, 10]);
/// ```
#[derive(Clone, Debug)]
pub struct BatchSize {
    most: usize,
    // In seconds, as all times here are.
    bound: f64,
    // Of the last batch: its records and its time; and how many batches before
    // it were too much like the next one to learn from.
    last: Option<(f64, f64)>,
    alike: u32,
    // What a batch costs without its records, once it is known.
    fixed: Option<f64>,
    // What a record adds to that: a decaying mean.
    per_record: f64,
    // The size that was found to be worth it, and the share of a record in the
    // time of full batches of that size.
    size: usize,
    share: Option<f64>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// So many more full batches are run at this size.
    Holding { left: u32 },
    /// Up to twice the size is tried.
    Trying { tries: u32 },
}

impl BatchSize {
    /// Starts at one record, for batches of at most `most` records that should
    /// run for at most `bound`.
    ///
    /// A batch of one may run longer. So may one of several where the fixed
    /// cost alone comes near the bound: half as long again as that cost, for a
    /// drain waits for it anyway, and batches of one would not keep up.
    ///
    /// # Panics
    ///
    /// When `most` is zero.
    #[must_use]
    pub fn new(most: usize, bound: Duration) -> Self {
        assert!(most > 0, "a batch is never empty");
        Self {
            most,
            bound: bound.as_secs_f64(),
            last: None,
            alike: 0,
            fixed: None,
            per_record: 0.0,
            size: 1,
            share: None,
            phase: Phase::Holding { left: 1 },
        }
    }

    /// The most records that the next batch may have: at least one.
    #[must_use]
    pub fn limit(&self) -> usize {
        let wanted = match self.phase {
            Phase::Holding { .. } => self.size,
            Phase::Trying { .. } => self.size.saturating_mul(2),
        };
        let wanted = wanted.min(self.most);
        let affordable = self.affordable();
        if affordable >= wanted {
            return wanted;
        }
        // Where the time bound decides, it decides by what was learned, so that
        // is learned anew from time to time: from a smaller batch, if there is
        // one.
        match self.last {
            Some((records, _)) if self.alike >= HOLD => match records / 2.0 {
                half if half >= 1.0 => affordable.min(half as usize),
                _ => 2,
            },
            _ => affordable,
        }
    }

    /// Learns from a batch of `records` that ran for `time` and succeeded.
    ///
    /// A batch that waited, for a connection or between two tries, did not run
    /// meanwhile. One that failed says nothing.
    pub fn observe(&mut self, records: usize, time: Duration) {
        let full = records >= self.limit();
        let time = time.as_secs_f64();
        self.learn(records as f64, time);
        if full && records > self.size {
            self.tried(records, time);
        } else if full && records == self.size {
            self.held(time);
        }
    }

    /// Learns what a batch costs, and a record in it.
    fn learn(&mut self, records: f64, time: f64) {
        self.alike = self.alike.saturating_add(1);
        let this = (records, time);
        let last = self.last.replace(this).unwrap_or(this);
        let (small, large) = if last.0 < records { (last, this) } else { (this, last) };
        if large.0 >= small.0 * APART {
            let slope = ((large.1 - small.1) / (large.0 - small.0)).max(0.0);
            // It is not more than what a batch took.
            let fixed = (large.1 - slope * large.0).clamp(0.0, small.1.min(large.1));
            let fixed = blend(self.fixed, fixed).min(small.1).min(large.1);
            self.fixed = Some(fixed);
            // What is foretold is then right for the larger one, and between
            // the two.
            self.per_record = (large.1 - fixed) / large.0;
            self.alike = 0;
        } else if let Some(fixed) = &mut self.fixed {
            *fixed = fixed.min(time);
            self.per_record = blend(Some(self.per_record), (time - *fixed) / records);
        }
    }

    /// How many records fit into the time bound.
    fn affordable(&self) -> usize {
        let Some(fixed) = self.fixed else { return usize::MAX };
        let bound = self.bound.max(fixed * AT_LEAST);
        // A cast from a float saturates. Without the last summand, rounding
        // would cost a record.
        let fits = (bound - fixed) / self.per_record + 1e-6;
        (fits as usize).max(1)
    }

    /// A full batch of the size that is held.
    fn held(&mut self, time: f64) {
        self.share = Some(blend(self.share, time / self.size as f64));
        if let Phase::Holding { left } = &mut self.phase {
            *left -= 1;
            if *left == 0 {
                self.phase = Phase::Trying { tries: 0 };
            }
        }
    }

    /// A larger batch was tried.
    fn tried(&mut self, records: usize, time: f64) {
        let share = self.share.unwrap_or(f64::INFINITY);
        let added = (time - share * self.size as f64) / (records - self.size) as f64;
        if time < NEGLIGIBLE * self.bound || added < WORTH * share {
            self.size = records;
            self.share = Some(time / records as f64);
            self.phase = Phase::Trying { tries: 0 };
        } else if let Phase::Trying { tries } = &mut self.phase {
            *tries += 1;
            if *tries == TRIES {
                self.phase = Phase::Holding { left: HOLD };
            }
        }
    }
}

fn blend(mean: Option<f64>, newest: f64) -> f64 {
    mean.map_or(newest, |mean| mean + WEIGHT * (newest - mean))
}

#[cfg(test)]
mod tests;
