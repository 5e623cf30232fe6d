use std::sync::atomic::{AtomicU64, Ordering};

use super::Toward;

/// What has passed a proxy so far.
///
/// What was received and not delivered is held, delayed, or was lost with its
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that there are now.
    pub open: u64,
    /// Bytes that clients have sent.
    pub requests_received: u64,
    /// Bytes that reached the server.
    pub requests_delivered: u64,
    /// Bytes that the server has sent.
    pub replies_received: u64,
    /// Bytes that reached clients.
    pub replies_delivered: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    connections: AtomicU64,
    closed: AtomicU64,
    requests: Pair,
    replies: Pair,
}

#[derive(Default)]
struct Pair {
    received: AtomicU64,
    delivered: AtomicU64,
}

/// Counts a connection, for as long as it lives.
pub(super) struct Open<'a>(&'a Counters);

// ===== impl Counters =====

impl Counters {
    pub(super) fn open(&self) -> Open<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }

    pub(super) fn received(&self, toward: Toward, bytes: usize) {
        self.of(toward).received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn delivered(&self, toward: Toward, bytes: usize) {
        self.of(toward).delivered.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // In this order, none is larger than what it is a part of.
        let requests_delivered = of(&self.requests.delivered);
        let replies_delivered = of(&self.replies.delivered);
        let closed = of(&self.closed);
        let connections = of(&self.connections);
        Traffic {
            connections,
            open: connections - closed,
            requests_received: of(&self.requests.received),
            requests_delivered,
            replies_received: of(&self.replies.received),
            replies_delivered,
        }
    }

    fn of(&self, toward: Toward) -> &Pair {
        match toward {
            Toward::Server => &self.requests,
            Toward::Client => &self.replies,
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}
