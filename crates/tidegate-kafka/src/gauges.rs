use std::collections::HashMap;

use crate::status::{PartitionState, PartitionStatus};

/// Sums over the partitions of a member.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) lag: i64,
    pub(crate) in_flight: usize,
    pub(crate) bytes: usize,
    pub(crate) holes: usize,
    pub(crate) unconfirmed: i64,
    pub(crate) states: HashMap<PartitionState, u32>,
}

impl Gauges {
    pub(crate) fn add(&mut self, status: &PartitionStatus) {
        self.lag += status.lag.unwrap_or(0);
        self.in_flight += status.in_flight;
        self.bytes += status.bytes;
        self.holes += status.holes;
        let confirmed = status.committed.zip(status.frontier);
        self.unconfirmed += confirmed.map_or(0, |(committed, frontier)| frontier - committed);
        *self.states.entry(status.state).or_default() += 1;
    }
}
