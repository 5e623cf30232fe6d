//! State and deadline in one atomic word, so that each change sees both.

use super::LeaseState;
use crate::sync::{AtomicU64, Ordering};

/// A deadline that does not come: some 73 years.
pub(super) const NEVER: u64 = (1 << SHIFT) - 1;

const SHIFT: u32 = 61;

/// The state of a lease, and when it runs out, in nanoseconds.
#[derive(Debug)]
pub(super) struct Word(AtomicU64);

impl Word {
    pub(super) fn active(deadline: u64) -> Self {
        Self(AtomicU64::new(pack(LeaseState::Active, deadline)))
    }

    /// The state by the clock, and whether this look is what ended the lease.
    ///
    /// A held lease whose deadline has passed is suspended by whoever sees it
    /// first. From then on no extension counts: two observers cannot disagree.
    pub(super) fn observe(&self, now: impl FnOnce() -> u64) -> (LeaseState, bool) {
        let mut word = self.0.load(Ordering::Acquire);
        if !is_held(word) || deadline(word) == NEVER {
            return (state(word), false);
        }
        let now = now();
        while is_held(word) && deadline(word) <= now {
            let suspended = pack(LeaseState::Suspended, deadline(word));
            match self.0.compare_exchange(word, suspended, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (LeaseState::Suspended, true),
                Err(changed) => word = changed,
            }
        }
        (state(word), false)
    }

    /// Moves to a later state. Released and lost are the last ones.
    pub(super) fn advance(&self, to: LeaseState) -> bool {
        self.update(|word| {
            let from = state(word);
            (from < to && from < LeaseState::Released).then(|| pack(to, deadline(word)))
        })
    }

    /// Puts the deadline off, if the lease is held.
    pub(super) fn extend(&self, to: u64) -> bool {
        self.update(|word| {
            is_held(word).then(|| pack(state(word), deadline(word).max(to.min(NEVER))))
        })
    }

    /// When a held lease runs out.
    pub(super) fn deadline(&self) -> Option<u64> {
        let word = self.0.load(Ordering::Acquire);
        is_held(word).then(|| deadline(word))
    }

    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

fn pack(state: LeaseState, deadline: u64) -> u64 {
    (state as u64) << SHIFT | deadline.min(NEVER)
}

fn state(word: u64) -> LeaseState {
    match word >> SHIFT {
        0 => LeaseState::Active,
        1 => LeaseState::Draining,
        2 => LeaseState::Suspended,
        3 => LeaseState::Released,
        _ => LeaseState::Lost,
    }
}

fn deadline(word: u64) -> u64 {
    word & NEVER
}

fn is_held(word: u64) -> bool {
    state(word) <= LeaseState::Draining
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::{sync::Arc, thread};

    use super::{LeaseState, Word};

    #[test]
    fn a_proof_does_not_bring_back_what_was_seen_to_be_over() {
        loom::model(|| {
            let word = Arc::new(Word::active(10));
            let prover = thread::spawn({
                let word = Arc::clone(&word);
                move || word.extend(30)
            });
            let (seen, _) = word.observe(|| 20);
            let extended = prover.join().unwrap();
            let (later, _) = word.observe(|| 20);
            assert!(later >= seen, "it never goes backwards");
            assert_eq!(
                later == LeaseState::Active,
                extended,
                "the proof came first, or not at all"
            );
        });
    }

    #[test]
    fn a_drain_and_the_clock_end_in_the_later_state() {
        loom::model(|| {
            let word = Arc::new(Word::active(10));
            let drainer = thread::spawn({
                let word = Arc::clone(&word);
                move || word.advance(LeaseState::Draining)
            });
            let (seen, ended) = word.observe(|| 20);
            assert_eq!((seen, ended), (LeaseState::Suspended, true));
            drainer.join().unwrap();
            assert_eq!(word.observe(|| 20), (LeaseState::Suspended, false));
        });
    }
}
