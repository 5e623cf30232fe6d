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
    pub lease: Lease,
    /// What was read.
    pub record: Record,
    /// What it was decoded to.
    pub value: T,
}

impl Delivery {
    /// Delivers a record under a lease.
    #[must_use]
    pub fn new(lease: Lease, record: Record) -> Self {
        Self { lease, record, value: () }
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
