//! Whether the broker still counts us as a member, as far as we can know.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use crate::config::Session;

/// The membership, its proofs, and what a pause of our own makes of them.
#[derive(Debug)]
pub(crate) struct Membership {
    session: Session,
    /// Goes up with each loss: results of commits that were sent before do not
    /// count.
    number: u64,
    /// When the newest proof was sent; at first, when the assignment came.
    proof: Instant,
    /// Since when there is something to commit, and so a proof to be had.
    provable: Option<Instant>,
    /// This thread did not run for long: what the statistics say about a rejoin
    /// is from before.
    stopped: bool,
    /// A commit reported a loss, which the client has to follow.
    lost: Option<Instant>,
}

/// What the result of a commit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// We are a member.
    Proof,
    /// We are none.
    Lost,
    /// Neither. Again after this pause, with what is newest then.
    Again(Duration),
    /// The client is broken; it says so elsewhere.
    Fatal,
}

/// What the result of a commit says about our membership.
///
/// The broker looks at the member id first. So `IllegalGeneration` says that
/// the member is known and the group one generation on: it is rejoining, and
/// keeps its partitions under the cooperative protocol. A stale member epoch
/// comes several times in a row to a healthy member on a slow machine; its next
/// heartbeat brings the new one.
pub(crate) fn verdict(code: Code, session: Session) -> Verdict {
    match code {
        Code::NoError => Verdict::Proof,
        Code::UnknownMemberId | Code::FencedMemberEpoch | Code::FencedInstanceId => Verdict::Lost,
        Code::StaleMemberEpoch => Verdict::Again(session.heartbeat.min(Duration::from_millis(200))),
        Code::Fatal => Verdict::Fatal,
        _ => Verdict::Again(Duration::from_millis(100)),
    }
}

impl Membership {
    pub(crate) fn new(session: Session, now: Instant) -> Self {
        Self { session, number: 0, proof: now, provable: None, stopped: false, lost: None }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn proof(&self) -> Instant {
        self.proof
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.proof)
    }

    /// An assignment came, at `at`: the broker counted us as a member then. It
    /// does not end the wait for a loss that a commit reported.
    pub(crate) fn assigned(&mut self, at: Instant) {
        self.proof = self.proof.max(at);
        self.stopped = false;
    }

    /// A commit that was sent at `sent` was accepted. Returns whether the proof
    /// is young enough to go on with.
    pub(crate) fn proved(&mut self, sent: Instant, now: Instant) -> bool {
        self.proof = self.proof.max(sent);
        let counts = self.counts(now);
        self.stopped &= !counts;
        counts
    }

    /// Whether the newest proof is young enough to go on with.
    pub(crate) fn counts(&self, now: Instant) -> bool {
        self.age(now) < self.session.timeout
    }

    /// Whether there is something to commit. Without, no proof can come, and none
    /// is missed: where partitions start may not be known yet.
    pub(crate) fn provable(&mut self, is: bool, now: Instant) {
        self.provable = is.then(|| self.provable.unwrap_or(now));
    }

    /// The time between two turns of the poll loop. A long one means that the
    /// process stood still, and the statistics with it.
    pub(crate) fn turned(&mut self, gap: Duration) {
        self.stopped |= gap > self.session.timeout / 2;
    }

    /// Whether the last proof counts no more.
    ///
    /// A classic member that rejoins is an exception: its commits wait behind
    /// its request to join, for as long as the slowest member takes, and the
    /// broker does not expire it meanwhile.
    pub(crate) fn is_silent(&self, now: Instant, rejoining: bool) -> bool {
        !self.counts(now) && (self.stopped || !rejoining)
    }

    /// Until when leases are extended, if the broker is known to hold our
    /// membership without a proof.
    pub(crate) fn extension(&self, now: Instant, rejoining: bool) -> Option<Instant> {
        (rejoining && !self.stopped).then(|| now + Duration::from_secs(1))
    }

    /// Whether it is time for the next proof: a third of the session has passed
    /// since the last commit was sent.
    pub(crate) fn wants_proof(&self, last_sent: Instant, now: Instant) -> bool {
        now.saturating_duration_since(last_sent) > self.session.timeout / 3
    }

    /// The membership is over.
    pub(crate) fn end(&mut self) {
        self.number += 1;
    }

    /// A commit said that it is over: the client has to say so too.
    pub(crate) fn expect_loss(&mut self, now: Instant) {
        self.lost = Some(now);
    }

    /// Whether the client has not followed yet.
    pub(crate) fn expects_loss(&self) -> bool {
        self.lost.is_some()
    }

    /// The client said that it is over.
    pub(crate) fn loss_came(&mut self) {
        self.lost = None;
    }

    /// Whether the client holds on to what we gave up a session ago. Nothing
    /// but another client gets it from it.
    pub(crate) fn loss_did_not_come(&self, now: Instant) -> bool {
        self.lost.is_some_and(|at| now.saturating_duration_since(at) > self.session.timeout)
    }

    /// Whether no proof came for so long, though one could, that another client
    /// may do better.
    pub(crate) fn is_hopeless(&self, now: Instant) -> bool {
        let since = self.provable.map(|since| since.max(self.proof));
        since.is_some_and(|it| now.saturating_duration_since(it) > self.session.timeout * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Duration, Instant, Membership, Session, Verdict, verdict};

    const SESSION: Session =
        Session { timeout: Duration::from_secs(6), heartbeat: Duration::from_millis(500) };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[track_caller]
    fn check(code: Code, expected: Verdict) {
        assert_eq!(verdict(code, SESSION), expected);
    }

    // Rule 4 of a driver: proof, loss, or neither. C15.
    #[test]
    fn a_commit_proves_or_loses_the_membership_or_neither() {
        check(Code::NoError, Verdict::Proof);
        check(Code::UnknownMemberId, Verdict::Lost);
        check(Code::FencedMemberEpoch, Verdict::Lost);
        check(Code::FencedInstanceId, Verdict::Lost);
        let millis = |millis| Verdict::Again(Duration::from_millis(millis));
        check(Code::StaleMemberEpoch, millis(200));
        check(Code::IllegalGeneration, millis(100));
        check(Code::RebalanceInProgress, millis(100));
        check(Code::NotCoordinator, millis(100));
        check(Code::BrokerTransportFailure, millis(100));
        check(Code::Fatal, Verdict::Fatal);
    }

    // Rule 6: no proof for a whole session, counted from when it was sent.
    #[test]
    fn a_proof_counts_for_a_session_from_when_it_was_sent() {
        let start = Instant::now();
        let mut membership = Membership::new(SESSION, start);
        assert!(!membership.is_silent(start + seconds(5), false));
        assert!(membership.is_silent(start + seconds(6), false));
        assert!(membership.proved(start + seconds(4), start + seconds(9)));
        assert!(!membership.is_silent(start + seconds(9), false));
        assert!(membership.is_silent(start + seconds(10), false));
        assert!(!membership.proved(start + seconds(3), start + seconds(10)), "it is too old");
    }

    // Rule 7: a rejoining classic member is not silent, unless we stood still.
    #[test]
    fn a_rejoin_excuses_silence_unless_the_process_stood_still() {
        let start = Instant::now();
        let mut membership = Membership::new(SESSION, start);
        let later = start + seconds(7);
        assert!(!membership.is_silent(later, true));
        assert_eq!(membership.extension(later, true), Some(later + seconds(1)));
        assert_eq!(membership.extension(later, false), None);
        membership.turned(seconds(4));
        assert!(membership.is_silent(later, true));
        assert_eq!(membership.extension(later, true), None);
        assert!(membership.proved(later, later));
        assert!(!membership.is_silent(later + seconds(7), true), "a proof ends the suspicion");
    }

    // Rule 15: after a loss that a commit reported, the client has to follow.
    #[test]
    fn a_loss_that_does_not_come_is_noticed_after_a_session() {
        let start = Instant::now();
        let mut membership = Membership::new(SESSION, start);
        membership.end();
        membership.expect_loss(start);
        assert_eq!(membership.number(), 1);
        membership.assigned(start + seconds(1));
        assert!(!membership.loss_did_not_come(start + seconds(6)));
        assert!(membership.loss_did_not_come(start + seconds(7)));
        membership.loss_came();
        assert!(!membership.loss_did_not_come(start + seconds(7)));
    }

    #[test]
    fn a_client_is_given_up_only_if_there_was_something_to_commit() {
        let start = Instant::now();
        let mut membership = Membership::new(SESSION, start);
        assert!(!membership.is_hopeless(start + seconds(100)));
        membership.provable(true, start + seconds(100));
        membership.provable(true, start + seconds(110));
        assert!(!membership.is_hopeless(start + seconds(124)));
        assert!(membership.is_hopeless(start + seconds(125)));
        assert!(membership.proved(start + seconds(124), start + seconds(125)));
        assert!(!membership.is_hopeless(start + seconds(148)));
        assert!(membership.is_hopeless(start + seconds(149)));
        membership.provable(false, start + seconds(149));
        assert!(!membership.is_hopeless(start + seconds(149)));
    }

    #[test]
    fn proofs_are_sent_three_times_a_session() {
        let start = Instant::now();
        let membership = Membership::new(SESSION, start);
        assert!(!membership.wants_proof(start, start + seconds(2)));
        assert!(membership.wants_proof(start, start + seconds(3)));
    }
}
