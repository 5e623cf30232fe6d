use std::sync::Arc;

use super::{Culprit, Lease, Record};

/// One message under one lease.
///
/// A source delivers a `Delivery`, without a value; decoding makes it a
/// `Delivery<T>`. The record stays with it all the way down: the inbox takes
/// the fingerprint of its bytes, the sequencer parks them, a dead letter
/// stores them.
///
/// Above the queue a delivery has one owner and is moved. Below it, it is
/// shared by its [`Batch`](super::Batch), so no layer needs `T: Clone`.
///
/// A parked delta that is released is delivered under the lease of its
/// predecessor: its record says where it was read, the lease who works on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery<T = ()> {
    /// The right under which it is processed.
    ///
    /// In an `Arc` of its own that deliveries alone share: a source counts it
    /// to know whether any delivery of the lease is still alive, before it lets
    /// another stack work on the partition.
    pub lease: Arc<Lease>,
    /// What was read.
    pub record: Record,
    /// What it was decoded to.
    pub value: T,
}

impl Delivery {
    /// Delivers a record under a lease.
    ///
    /// Takes a [`Lease`], or the `Arc` of another delivery of that lease.
    #[must_use]
    pub fn new(lease: impl Into<Arc<Lease>>, record: Record) -> Self {
        Self { lease: lease.into(), record, value: () }
    }
}

impl<T> Delivery<T> {
    /// Exchanges the value.
    pub fn with_value<U>(self, value: U) -> Delivery<U> {
        Delivery { lease: self.lease, record: self.record, value }
    }

    /// Its record's place, to be blamed by.
    #[must_use]
    pub fn culprit(&self) -> Culprit {
        Culprit::of(&self.record)
    }
}
