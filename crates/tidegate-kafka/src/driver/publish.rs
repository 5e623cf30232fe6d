//! The status and the gauges, a few times a second.

use std::time::Duration;

use tidegate_core::{Condition, LeaseState};
use tokio::time::Instant;

use super::{Client, Stage, partition::Partition};
use crate::{
    ffi,
    metrics::Gauges,
    status::{MemberStatus, PartitionState, PartitionStatus},
};

const EVERY: Duration = Duration::from_millis(200);

impl Client<'_> {
    pub(super) fn publish(&mut self, now: Instant) {
        if now.saturating_duration_since(self.published) < EVERY {
            return;
        }
        self.published = now;
        let consumer = self.consumer;
        let mut gauges = Gauges::default();
        let mut statuses = Vec::with_capacity(self.partitions.len());
        let mut abandoned = Vec::new();
        for partition in self.partitions.values_mut() {
            let (_, high) = ffi::watermarks(consumer, &partition.name);
            if high >= 0 {
                partition.end = Some(high);
            }
            let status = partition.status(now);
            gauges.add(&status);
            statuses.push(status);
            // A layer of the application's above the frontier may hide a failure.
            if let Stage::Working(stack) = &partition.stage
                && let Some(cause) = stack.frontier.failure()
                && stack.lease.is_active()
            {
                abandoned.push((partition.name.clone(), cause));
            }
        }
        let epoch = statuses.iter().map(|status| &status.epoch).max_by_key(|it| it.generation);
        let member = MemberStatus {
            epoch: epoch.cloned(),
            proof_age: (!statuses.is_empty()).then(|| self.membership.age(now)),
        };
        self.driver.metrics.publish(&gauges);
        self.driver.status.publish(member, statuses);
        for (name, cause) in abandoned {
            self.stop_partition(&name, cause, now);
        }
    }
}

impl Partition<'_> {
    fn status(&mut self, now: Instant) -> PartitionStatus {
        let frontier = self.frontier();
        self.progress.note(frontier.unwrap_or(-1), now);
        let stack = self.stack();
        let standing = stack.map(|stack| stack.frontier.standing());
        // It may have been seen before the last records were read.
        let end = self.end.map(|end| end.max(self.position));
        PartitionStatus {
            partition: self.name.clone(),
            state: self.state(),
            cause: match &self.stage {
                Stage::Stopping { cause, .. } | Stage::Stopped { cause, .. } => Some(cause.clone()),
                _ => None,
            },
            epoch: self.epoch.clone(),
            frontier,
            committed: self.acknowledged,
            next: (self.position >= 0).then_some(self.position),
            end,
            lag: end.zip(frontier).map(|(end, frontier)| end - frontier),
            in_flight: standing.map_or(0, |standing| standing.in_flight),
            bytes: stack.map_or(0, |stack| stack.load.bytes()),
            holes: standing.map_or(0, |standing| standing.holes),
            idle: self.progress.age(now),
        }
    }

    fn state(&self) -> PartitionState {
        match &self.stage {
            Stage::Unresolved | Stage::Starting { .. } => PartitionState::Starting,
            Stage::Working(stack) => match (stack.lease.state(), stack.lease.condition()) {
                (LeaseState::Active, Condition::Running) => PartitionState::Running,
                (LeaseState::Active, Condition::DatabaseDown) => PartitionState::DatabaseDown,
                (LeaseState::Active, Condition::WaitingForGap) => PartitionState::WaitingForGap,
                (LeaseState::Active, _) => PartitionState::Retrying,
                (LeaseState::Suspended, _) => PartitionState::Suspended,
                _ => PartitionState::Draining,
            },
            Stage::Suspended { .. } => PartitionState::Suspended,
            Stage::Stopping { .. } | Stage::Stopped { .. } => PartitionState::Stopped,
            Stage::Drained { .. } => PartitionState::Draining,
        }
    }
}
