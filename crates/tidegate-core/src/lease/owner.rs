use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;

use super::{Lease, LeaseState, WordOrdering, nanos};

/// The source's side of a [`Lease`]: the right to change its state.
///
/// Dropped before the lease was released, it counts as lost.
#[derive(Debug)]
pub struct LeaseOwner {
    lease: Lease,
}

impl LeaseOwner {
    pub(super) fn new(lease: Lease) -> Self {
        Self { lease }
    }

    /// A handle that watches.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Stops intake; admitted work may finish.
    pub fn drain(&self) {
        self.advance(LeaseState::Draining);
    }

    /// Stops all work, for want of a membership proof.
    pub fn suspend(&self) {
        self.advance(LeaseState::Suspended);
    }

    /// Ends the lease after its drain.
    pub fn release(&self) {
        self.advance(LeaseState::Released);
    }

    /// Ends the lease without a drain.
    pub fn lose(&self) {
        self.advance(LeaseState::Lost);
    }

    /// Counts a membership proof that was *sent* at `sent`, and returns whether
    /// the lease is still held with it.
    ///
    /// A lease that somebody has seen to be over is over: a late proof does not
    /// bring it back.
    pub fn prove(&self, sent: Instant) -> bool {
        let shared = &self.lease.shared;
        let sent = nanos(sent.saturating_duration_since(shared.origin));
        let held = shared
            .session
            .is_none_or(|session| shared.word.extend(sent.saturating_add(nanos(session))));
        shared.proof.fetch_max(sent, WordOrdering::AcqRel);
        shared.changed.notify_waiters();
        held && self.lease.is_held()
    }

    /// Lets the last proof count until `until` at least, although no new one
    /// has come: the broker is known to hold our membership meanwhile.
    pub fn extend(&self, until: Instant) {
        let shared = &self.lease.shared;
        if shared.session.is_some() {
            let until = nanos(until.saturating_duration_since(shared.origin));
            shared.word.extend(until);
        }
    }

    /// Notes the offset that the broker has acknowledged.
    pub fn acknowledge(&self, offset: i64) {
        self.lease.shared.acknowledged.store(offset, Ordering::Release);
    }

    /// Whether a layer wants a membership proof soon. Asking resets it.
    #[must_use]
    pub fn proof_demanded(&self) -> bool {
        self.lease.shared.demanded.swap(false, Ordering::AcqRel)
    }

    /// How long the last proof still counts: `None` for ever, zero if the lease
    /// is not held.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let shared = &self.lease.shared;
        shared.session?;
        let deadline = shared.word.deadline().map(Duration::from_nanos);
        Some(deadline.map_or(Duration::ZERO, |it| it.saturating_sub(shared.origin.elapsed())))
    }

    fn advance(&self, to: LeaseState) {
        if self.lease.shared.word.advance(to) {
            self.lease.shared.changed.notify_waiters();
        }
    }
}

impl Drop for LeaseOwner {
    fn drop(&mut self) {
        self.lose();
    }
}
