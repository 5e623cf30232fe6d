//! A partition that gives no sign of life.
//!
//! The client can leave a partition unstarted after a failed request, for ever
//! and without an error. A healthy one with room to read answers a seek with
//! records, or with its end.

use std::time::Duration;

use tokio::time::Instant;

/// Watches one partition for signs of life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    // The last sign, or the last time when none was to be expected.
    quiet: Instant,
    at_end: bool,
    probes: u32,
    doubted: bool,
}

/// What to do about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing.
    Wait,
    /// A seek to its position: the probe, and the remedy.
    Probe,
    /// Another client: probes were not answered.
    Rebuild,
}

impl Watch {
    pub(crate) fn new(now: Instant) -> Self {
        Self { quiet: now, at_end: false, probes: 0, doubted: false }
    }

    /// A record came.
    pub(crate) fn record(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// The end of the log came.
    pub(crate) fn end(&mut self, now: Instant) {
        *self = Self { at_end: true, ..Self::new(now) };
    }

    /// Nothing is to be expected now: no room to read, or a leader that is away.
    pub(crate) fn excused(&mut self, now: Instant) {
        self.quiet = now;
    }

    /// The partition was sought.
    pub(crate) fn sought(&mut self, now: Instant) {
        self.quiet = now;
        self.at_end = false;
        self.doubted = false;
    }

    /// The client said what makes it doubtful that it goes on: a look is due.
    pub(crate) fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Whether it has been quiet for so long that a closer look is due.
    pub(crate) fn is_quiet(&self, after: Duration, now: Instant) -> bool {
        self.doubted || now.saturating_duration_since(self.quiet) >= after
    }

    /// `ahead` says whether the client knows of records beyond the position.
    pub(crate) fn advise(&mut self, ahead: bool, after: Duration, now: Instant) -> Advice {
        // At its end a partition is quiet for as long as nobody writes.
        let patience = if ahead || !self.at_end { after } else { after * 4 };
        if !self.is_quiet(patience, now) {
            return Advice::Wait;
        }
        if self.doubted {
            return Advice::Probe;
        }
        if self.probes >= 2 {
            return Advice::Rebuild;
        }
        // Probing what is merely idle is no suspicion.
        self.probes += u32::from(ahead || !self.at_end);
        Advice::Probe
    }
}

#[cfg(test)]
mod tests {
    use super::{Advice, Duration, Instant, Watch};

    const AFTER: Duration = Duration::from_secs(5);

    #[test]
    fn two_probes_without_an_answer_ask_for_another_client() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let mut advise = |at: u64| {
            let now = start + Duration::from_secs(at);
            let advice = watch.advise(true, AFTER, now);
            if advice == Advice::Probe {
                watch.sought(now);
            }
            advice
        };
        use Advice::{Probe, Rebuild, Wait};
        assert_eq!(
            [4, 5, 9, 10, 14, 15].map(&mut advise),
            [Wait, Probe, Wait, Probe, Wait, Rebuild]
        );
    }

    #[test]
    fn a_sign_of_life_ends_the_suspicion() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        assert_eq!(watch.advise(true, AFTER, start + AFTER), Advice::Probe);
        watch.end(start + AFTER);
        assert_eq!(watch.advise(true, AFTER, start + AFTER * 2), Advice::Probe);
        watch.record(start + AFTER * 2);
        assert_eq!(watch.advise(true, AFTER, start + AFTER * 3), Advice::Probe);
    }

    #[test]
    fn a_partition_at_its_end_is_probed_seldom_and_not_suspected() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        watch.end(start);
        assert_eq!(watch.advise(false, AFTER, start + AFTER * 3), Advice::Wait);
        for turn in 1..5_u32 {
            let now = start + AFTER * 4 * turn;
            assert_eq!(watch.advise(false, AFTER, now), Advice::Probe);
            watch.sought(now);
            watch.end(now);
        }
    }

    #[test]
    fn a_doubt_is_looked_into_at_once_and_only_once() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        watch.doubt();
        assert_eq!(watch.advise(true, AFTER, start), Advice::Probe);
        watch.sought(start);
        assert_eq!(watch.advise(true, AFTER, start), Advice::Wait);
    }

    // Q2: a full partition with slow handlers is not stalled.
    #[test]
    fn a_partition_without_room_is_excused() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        watch.excused(start + AFTER);
        assert_eq!(
            watch.advise(true, AFTER, start + AFTER * 2 - Duration::from_secs(1)),
            Advice::Wait
        );
    }
}
