//! Whether the client knows which partitions the broker has given it.
//!
//! Under the consumer protocol a broker says so once, in the answer to a
//! heartbeat, and again only to a member that asks for it. The client gives a
//! heartbeat up after one interval, with its connection, and does not ask: it
//! does so only when the coordinator is gone (librdkafka 2.12.1,
//! `rd_kafka_cgrp_handle_ConsumerGroupHeartbeat`, `SEND_FULL_REQUEST`). So an
//! answer that is late, since the broker stood still, is never heard. If the
//! member's epoch moved with it, the next heartbeat is refused, and the member
//! joins anew. Otherwise it keeps what it is to give back, and others wait for
//! that until its poll interval ends; or it does not know of what it was given,
//! which nobody reads. It is healthy by all that it sees: its heartbeats and
//! commits are accepted.

use std::{collections::BTreeSet, time::Duration};

use tidegate_core::TopicPartition;
use tokio::time::Instant;

type Names = BTreeSet<TopicPartition>;

/// What the broker has given us, beside what the client has told us.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    differs: Option<Difference>,
}

#[derive(Debug)]
struct Difference {
    since: Instant,
    given: Names,
    held: Names,
}

impl Agreement {
    /// A look: what the broker has given us, and what we hold by the client.
    /// Returns whether they have differed for `patience`, and neither has moved.
    ///
    /// A difference that moves is a rebalance that goes on.
    pub(crate) fn is_broken(
        &mut self,
        given: &Names,
        held: Names,
        patience: Duration,
        now: Instant,
    ) -> bool {
        if *given == held {
            self.differs = None;
            return false;
        }
        match &self.differs {
            Some(it) if it.given == *given && it.held == held => {
                now.saturating_duration_since(it.since) >= patience
            }
            _ => {
                self.differs = Some(Difference { since: now, given: given.clone(), held });
                false
            }
        }
    }

    /// What was seen counts no more: partitions are about to move, or a look
    /// said nothing about us.
    pub(crate) fn forget(&mut self) {
        self.differs = None;
    }

    /// Whether the last look saw a difference.
    pub(crate) fn is_doubted(&self) -> bool {
        self.differs.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Duration, Instant, Names, TopicPartition};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn names(partitions: impl IntoIterator<Item = i32>) -> Names {
        partitions.into_iter().map(|it| TopicPartition::new("t", it)).collect()
    }

    /// Looks at second 0, at 9, at 10.
    #[track_caller]
    fn check(looks: [(Names, Names); 3], broken: [bool; 3]) {
        let start = Instant::now();
        let mut agreement = Agreement::default();
        let seen = [0, 9, 10].into_iter().zip(looks).map(|(at, (given, held))| {
            agreement.is_broken(&given, held, PATIENCE, start + Duration::from_secs(at))
        });
        assert_eq!(seen.collect::<Vec<_>>(), broken);
    }

    #[test]
    fn what_was_to_be_given_back_and_is_kept_asks_for_another_client() {
        let look = || (names(0..2), names(0..4));
        check([look(), look(), look()], [false, false, true]);
    }

    #[test]
    fn what_was_given_and_is_not_known_asks_for_another_client() {
        let look = || (names(0..4), names([]));
        check([look(), look(), look()], [false, false, true]);
    }

    #[test]
    fn a_rebalance_that_goes_on_asks_for_nothing() {
        let begun = || (names(0..2), names(0..4));
        check([begun(), begun(), (names(0..2), names(0..3))], [false; 3]);
        check([begun(), begun(), (names(0..1), names(0..4))], [false; 3]);
        check([begun(), (names(0..2), names(0..2)), begun()], [false; 3]);
    }

    #[test]
    fn what_is_forgotten_is_looked_at_anew() {
        let mut agreement = Agreement::default();
        let start = Instant::now();
        assert!(!agreement.is_broken(&names(0..2), names([]), PATIENCE, start));
        assert!(agreement.is_doubted());
        agreement.forget();
        assert!(!agreement.is_doubted());
        assert!(!agreement.is_broken(&names(0..2), names([]), PATIENCE, start + PATIENCE));
    }
}
