use std::{fmt, time::Duration};

use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};

use crate::txn::Ending;

// Handles are resolved once, when a database is opened.
#[derive(Clone)]
pub(crate) struct Metrics {
    begin: Histogram,
    transaction: Histogram,
    endings: [Counter; Ending::ALL.len()],
    claims: [Counter; 3],
    refused: Counter,
    buried: Counter,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimResult {
    Written,
    Foreign,
    Failed,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe_histogram!(
            "tidegate_sql_begin_seconds",
            Unit::Seconds,
            "Time until a transaction had begun, the wait for a connection included."
        );
        describe_histogram!(
            "tidegate_sql_transaction_seconds",
            Unit::Seconds,
            "Time from the begin of a transaction to its end."
        );
        describe_counter!("tidegate_sql_transactions_total", "Transactions, by how they ended.");
        describe_counter!(
            "tidegate_sql_guard_claims_total",
            "Claims of partitions by the epoch guard, by what came of them."
        );
        describe_counter!(
            "tidegate_sql_guard_refusals_total",
            "Transactions that the epoch guard refused."
        );
        describe_counter!("tidegate_sql_buried_total", "Records stored as dead letters.");
        let ending = |ending: Ending| counter!("tidegate_sql_transactions_total", "ending" => ending.as_str());
        let claim = |result| counter!("tidegate_sql_guard_claims_total", "result" => result);
        Self {
            begin: histogram!("tidegate_sql_begin_seconds"),
            transaction: histogram!("tidegate_sql_transaction_seconds"),
            endings: Ending::ALL.map(ending),
            claims: ["written", "foreign", "failed"].map(claim),
            refused: counter!("tidegate_sql_guard_refusals_total"),
            buried: counter!("tidegate_sql_buried_total"),
        }
    }

    pub(crate) fn begun(&self, waited: Duration) {
        self.begin.record(waited);
    }

    pub(crate) fn ended(&self, ending: Ending, took: Duration) {
        self.transaction.record(took);
        self.endings[ending as usize].increment(1);
    }

    pub(crate) fn claimed(&self, result: ClaimResult) {
        self.claims[result as usize].increment(1);
    }

    pub(crate) fn refused(&self) {
        self.refused.increment(1);
    }

    pub(crate) fn buried(&self, count: u64) {
        self.buried.increment(count);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
