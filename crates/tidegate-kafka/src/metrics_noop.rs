//! The same without the `metrics` feature: nothing.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_core::Class;

pub(crate) use crate::gauges::Gauges;

#[derive(Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn rebalanced(&self, _: &'static str, _: Duration) {}
    pub(crate) fn assigned(&self, _: usize) {}
    pub(crate) fn revoked(&self, _: usize) {}
    pub(crate) fn lost(&self, _: usize) {}
    pub(crate) fn drained(&self, _: &'static str, _: Duration) {}
    pub(crate) fn turned(&self, _: Duration) {}
    pub(crate) fn committed(&self, _: Duration, _: Code) {}
    pub(crate) fn proof(&self, _: Duration) {}
    pub(crate) fn suspended(&self) {}
    pub(crate) fn stopped(&self, _: Class) {}
    pub(crate) fn stall_probed(&self) {}
    pub(crate) fn client_replaced(&self) {}
    pub(crate) fn client_error(&self) {}
    pub(crate) fn read(&self, _: usize, _: usize) {}
    pub(crate) fn idle_members(&self, _: usize) {}
    pub(crate) fn publish(&self, _: &Gauges) {}
}
