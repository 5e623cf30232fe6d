use std::{fmt, time::Duration};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_core::Class;

pub(crate) use crate::gauges::Gauges;
use crate::status::PartitionState;

// Handles are resolved once, so that the poll loop does no more than atomic
// operations.
pub(crate) struct Metrics {
    rebalances: [(&'static str, Counter, Histogram); 3],
    assigned: Counter,
    revoked: Counter,
    lost: Counter,
    drains: [(&'static str, Counter); 2],
    drain_seconds: Histogram,
    poll_seconds: Histogram,
    commits: [(CommitResult, Counter); 4],
    commit_seconds: Histogram,
    proof_age: Gauge,
    suspensions: Counter,
    stops: [(Class, Counter); 4],
    probes: Counter,
    clients: Counter,
    errors: Counter,
    records: Counter,
    bytes: Counter,
    lag: Gauge,
    in_flight: Gauge,
    in_flight_bytes: Gauge,
    holes: Gauge,
    unconfirmed: Gauge,
    partitions: [(PartitionState, Gauge); 8],
    idle_members: Gauge,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitResult {
    Accepted,
    Lost,
    Stale,
    Failed,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe();
        let rebalance = |kind| {
            (
                kind,
                counter!("tidegate_kafka_rebalances_total", "kind" => kind),
                histogram!("tidegate_kafka_rebalance_seconds", "kind" => kind),
            )
        };
        let drain = |end| (end, counter!("tidegate_kafka_drains_total", "end" => end));
        let commit = |result: CommitResult| {
            (result, counter!("tidegate_kafka_commits_total", "result" => result.as_str()))
        };
        let stop = |class: Class| {
            (class, counter!("tidegate_kafka_stops_total", "class" => class.as_str()))
        };
        let state = |state: PartitionState| {
            (state, gauge!("tidegate_kafka_partitions", "state" => state.as_str()))
        };
        Self {
            rebalances: ["assign", "revoke", "lost"].map(rebalance),
            assigned: counter!("tidegate_kafka_partitions_assigned_total"),
            revoked: counter!("tidegate_kafka_partitions_revoked_total"),
            lost: counter!("tidegate_kafka_partitions_lost_total"),
            drains: ["finished", "deadline"].map(drain),
            drain_seconds: histogram!("tidegate_kafka_drain_seconds"),
            poll_seconds: histogram!("tidegate_kafka_poll_interval_seconds"),
            commits: CommitResult::ALL.map(commit),
            commit_seconds: histogram!("tidegate_kafka_commit_seconds"),
            proof_age: gauge!("tidegate_kafka_proof_age_seconds"),
            suspensions: counter!("tidegate_kafka_suspensions_total"),
            stops: [Class::Transient, Class::Poison, Class::Fenced, Class::Fatal].map(stop),
            probes: counter!("tidegate_kafka_stall_probes_total"),
            clients: counter!("tidegate_kafka_clients_replaced_total"),
            errors: counter!("tidegate_kafka_client_errors_total"),
            records: counter!("tidegate_kafka_records_total"),
            bytes: counter!("tidegate_kafka_bytes_total"),
            lag: gauge!("tidegate_kafka_lag_records"),
            in_flight: gauge!("tidegate_kafka_in_flight_records"),
            in_flight_bytes: gauge!("tidegate_kafka_in_flight_bytes"),
            holes: gauge!("tidegate_kafka_holes"),
            unconfirmed: gauge!("tidegate_kafka_unconfirmed_records"),
            partitions: PartitionState::ALL.map(state),
            idle_members: gauge!("tidegate_kafka_idle_members"),
        }
    }

    /// An event of the group was answered, so long after it came.
    pub(crate) fn rebalanced(&self, kind: &'static str, after: Duration) {
        for (_, count, seconds) in self.rebalances.iter().filter(|it| it.0 == kind) {
            count.increment(1);
            seconds.record(after);
        }
    }

    pub(crate) fn assigned(&self, partitions: usize) {
        self.assigned.increment(partitions as u64);
    }

    pub(crate) fn revoked(&self, partitions: usize) {
        self.revoked.increment(partitions as u64);
    }

    pub(crate) fn lost(&self, partitions: usize) {
        self.lost.increment(partitions as u64);
    }

    pub(crate) fn drained(&self, end: &'static str, after: Duration) {
        for (_, count) in self.drains.iter().filter(|it| it.0 == end) {
            count.increment(1);
        }
        self.drain_seconds.record(after);
    }

    pub(crate) fn turned(&self, gap: Duration) {
        self.poll_seconds.record(gap);
    }

    pub(crate) fn committed(&self, after: Duration, error: Code) {
        let result = CommitResult::of(error);
        for (_, count) in self.commits.iter().filter(|it| it.0 == result) {
            count.increment(1);
        }
        self.commit_seconds.record(after);
    }

    pub(crate) fn proof(&self, age: Duration) {
        self.proof_age.set(age);
    }

    pub(crate) fn suspended(&self) {
        self.suspensions.increment(1);
    }

    pub(crate) fn stopped(&self, class: Class) {
        for (_, count) in self.stops.iter().filter(|it| it.0 == class) {
            count.increment(1);
        }
    }

    pub(crate) fn stall_probed(&self) {
        self.probes.increment(1);
    }

    pub(crate) fn client_replaced(&self) {
        self.clients.increment(1);
    }

    pub(crate) fn client_error(&self) {
        self.errors.increment(1);
    }

    pub(crate) fn read(&self, records: usize, bytes: usize) {
        self.records.increment(records as u64);
        self.bytes.increment(bytes as u64);
    }

    pub(crate) fn idle_members(&self, members: usize) {
        self.idle_members.set(members as f64);
    }

    pub(crate) fn publish(&self, gauges: &Gauges) {
        self.lag.set(gauges.lag as f64);
        self.in_flight.set(gauges.in_flight as f64);
        self.in_flight_bytes.set(gauges.bytes as f64);
        self.holes.set(gauges.holes as f64);
        self.unconfirmed.set(gauges.unconfirmed as f64);
        for (state, gauge) in &self.partitions {
            let count = gauges.states.get(state).copied().unwrap_or(0);
            gauge.set(f64::from(count));
        }
    }
}

impl CommitResult {
    const ALL: [Self; 4] = [Self::Accepted, Self::Lost, Self::Stale, Self::Failed];

    fn of(error: Code) -> Self {
        match error {
            Code::NoError => Self::Accepted,
            Code::UnknownMemberId | Code::FencedMemberEpoch | Code::FencedInstanceId => Self::Lost,
            Code::StaleMemberEpoch | Code::IllegalGeneration | Code::RebalanceInProgress => {
                Self::Stale
            }
            _ => Self::Failed,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::Failed => "failed",
        }
    }
}

fn describe() {
    describe_counter!(
        "tidegate_kafka_rebalances_total",
        Unit::Count,
        "Events of the group, answered, by kind."
    );
    describe_histogram!(
        "tidegate_kafka_rebalance_seconds",
        Unit::Seconds,
        "From an event of the group to its answer."
    );
    describe_counter!(
        "tidegate_kafka_partitions_assigned_total",
        Unit::Count,
        "Partitions given to this member."
    );
    describe_counter!(
        "tidegate_kafka_partitions_revoked_total",
        Unit::Count,
        "Partitions taken back in order."
    );
    describe_counter!(
        "tidegate_kafka_partitions_lost_total",
        Unit::Count,
        "Partitions taken away without a drain."
    );
    describe_counter!(
        "tidegate_kafka_drains_total",
        Unit::Count,
        "Drains of partitions, by how they ended."
    );
    describe_histogram!(
        "tidegate_kafka_drain_seconds",
        Unit::Seconds,
        "From a revoke to the end of the partition's work."
    );
    describe_histogram!(
        "tidegate_kafka_poll_interval_seconds",
        Unit::Seconds,
        "Between two turns of the poll loop."
    );
    describe_counter!("tidegate_kafka_commits_total", Unit::Count, "Results of commits.");
    describe_histogram!(
        "tidegate_kafka_commit_seconds",
        Unit::Seconds,
        "From a commit to its result."
    );
    describe_gauge!(
        "tidegate_kafka_proof_age_seconds",
        Unit::Seconds,
        "Since the commit was sent that last proved the membership."
    );
    describe_counter!(
        "tidegate_kafka_suspensions_total",
        Unit::Count,
        "Times that work was suspended for want of a proof."
    );
    describe_counter!(
        "tidegate_kafka_stops_total",
        Unit::Count,
        "Partitions that stopped, by the class of the failure."
    );
    describe_counter!(
        "tidegate_kafka_stall_probes_total",
        Unit::Count,
        "Partitions probed since they gave no sign of life."
    );
    describe_counter!(
        "tidegate_kafka_clients_replaced_total",
        Unit::Count,
        "Clients that were replaced by new ones."
    );
    describe_counter!(
        "tidegate_kafka_client_errors_total",
        Unit::Count,
        "Errors that the client reported."
    );
    describe_counter!("tidegate_kafka_records_total", Unit::Count, "Records read.");
    describe_counter!("tidegate_kafka_bytes_total", Unit::Bytes, "Bytes of records read.");
    describe_gauge!(
        "tidegate_kafka_lag_records",
        Unit::Count,
        "From the frontiers to the ends of the logs, in all."
    );
    describe_gauge!(
        "tidegate_kafka_in_flight_records",
        Unit::Count,
        "Admitted and not answered, in all."
    );
    describe_gauge!(
        "tidegate_kafka_in_flight_bytes",
        Unit::Bytes,
        "Read and not answered, in all."
    );
    describe_gauge!(
        "tidegate_kafka_holes",
        Unit::Count,
        "Incomplete records below complete ones, in all."
    );
    describe_gauge!(
        "tidegate_kafka_unconfirmed_records",
        Unit::Count,
        "Finished and not confirmed as committed, in all."
    );
    describe_gauge!(
        "tidegate_kafka_partitions",
        Unit::Count,
        "Partitions of this member, by state."
    );
    describe_gauge!(
        "tidegate_kafka_idle_members",
        Unit::Count,
        "Members of the group without partitions, as this one last saw it."
    );
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
