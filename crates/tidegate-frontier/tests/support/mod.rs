//! What the contract tests of the layers share: a lease and a delivery.

use tidegate_core::{Delivery, Epoch, Lease, LeaseOwner, Record, TopicPartition};

/// A lease that no clock ends.
pub(crate) fn lease() -> (LeaseOwner, Lease) {
    Lease::grant(TopicPartition::new("transfers", 0), Epoch::new(1, "member"))
}

/// A record of seven bytes under that lease.
pub(crate) fn delivery(lease: &Lease, offset: i64) -> Delivery {
    Delivery::new(lease.clone(), Record::new(lease.partition().clone(), offset, "payload"))
}
