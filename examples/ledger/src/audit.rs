//! The audit: every entry and every balance against what the topic says.
//!
//! It reads topic, group and tables by itself, with the test kit's oracle, which
//! shares no code with the layers.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use tidegate_testkit::{
    Ledger,
    oracle::{
        Evidence, Findings, Kafka, Queries, Rules, Tables, Verdict, judge,
        ledger::{AMOUNT_LIMIT, meaning},
    },
};

use crate::{arguments::Arguments, counts::Counts, progress::say};

/// What the audit found.
pub(crate) struct Audit {
    findings: Findings,
    committed: i64,
    end: i64,
    /// Accounts whose balance is not the generator's.
    wrong: Vec<String>,
}

impl Audit {
    /// Audits the ledger. `truth` is what the records were made from, where this
    /// process made them.
    pub(crate) async fn of(
        arguments: &Arguments,
        bootstrap: &str,
        url: &str,
        truth: Option<&Ledger>,
    ) -> anyhow::Result<Self> {
        let mut evidence = Evidence::default();
        let kafka = Kafka::new(bootstrap).with_deadline(Duration::from_secs(120));
        let topics = || [arguments.topic.as_str()];
        evidence.log = kafka.log(topics(), meaning(AMOUNT_LIMIT)).await.context("the topic")?;
        let committed = kafka.committed(&arguments.group, topics()).await.context("the group")?;
        let offsets = committed.iter().filter_map(|it| it.offset).sum();
        let end = evidence.log.bounds().values().map(|bounds| bounds.end).sum();
        evidence.committed = Some(committed);
        let mut queries = Queries::of_namespace("ledger", arguments.generation);
        queries.balances = Some("SELECT account AS entity, amount FROM balance".to_owned());
        Tables::new(url, queries).read(&mut evidence).await.context("the tables")?;
        let wrong = truth.map(|truth| wrong(truth, &evidence)).unwrap_or_default();
        let findings = judge(&evidence, Rules::default());
        Ok(Self { findings, committed: offsets, end, wrong })
    }

    pub(crate) fn holds(&self) -> bool {
        self.findings.verdict == Verdict::Pass && self.wrong.is_empty()
    }

    /// Prints it.
    pub(crate) fn report(&self) {
        let counts = &self.findings.counts;
        say(&format!(
            "topic     {} records: {} transfers, {} duplicates, {} conflicts, {} poison",
            counts.records, counts.messages, counts.duplicates, counts.conflicts, counts.poison,
        ));
        say(&format!(
            "ledger    {} entries of {} due; {} parked, {} buried",
            counts.effects, counts.due, counts.parked, counts.buried,
        ));
        let lag = self.end - self.committed;
        say(&format!("group     committed {} of {}, lag {lag}", self.committed, self.end));
        for account in &self.wrong {
            say(&format!("          {account}"));
        }
        if self.holds() {
            say("audit     holds");
        } else {
            say(&format!("audit     FAILS: {}", self.findings.reasons.join(", ")));
            for violation in self.findings.violations.iter().take(10) {
                say(&format!("          {}: {}", violation.kind, violation.detail));
            }
        }
    }
}

/// The accounts whose balance is not what the generator says.
fn wrong(truth: &Ledger, evidence: &Evidence) -> Vec<String> {
    let balances: BTreeMap<_, _> =
        evidence.balances.iter().flatten().map(|it| (it.entity.as_str(), it.amount)).collect();
    let differs = |(name, account): (&String, &tidegate_testkit::Account)| {
        let found = balances.get(name.as_str()).copied().unwrap_or(0);
        let expected = account.balance;
        (found != expected).then(|| format!("{name} has {found} instead of {expected}"))
    };
    truth.accounts.iter().filter_map(differs).collect()
}

/// Prints what the members of this process did.
pub(crate) fn report_work(counts: &Counts, took: Duration) {
    let counts = counts.read();
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    let outcome = |outcome: &str| of(&format!("tidegate_frontier_outcomes_total={outcome}"));
    let records: u64 = of("tidegate_frontier_outcomes_total");
    say(&format!(
        "work      {records} records: {} applied, {} duplicate, {} stale, {} parked, {} buried",
        outcome("applied"),
        outcome("duplicate"),
        outcome("stale"),
        outcome("parked"),
        outcome("buried"),
    ));
    say(&format!(
        "          {} released, {} retries, {} late completions",
        of("tidegate_sequencer_released_total"),
        of("tidegate_retry_retries_total"),
        of("tidegate_frontier_late_total"),
    ));
    say(&format!(
        "group     {} assignments, {} revokes, {} losses; {} drains, {} of them to the deadline",
        of("tidegate_kafka_rebalances_total=assign"),
        of("tidegate_kafka_rebalances_total=revoke"),
        of("tidegate_kafka_rebalances_total=lost"),
        of("tidegate_kafka_drains_total"),
        of("tidegate_kafka_drains_total=deadline"),
    ));
    let rate = records as f64 / took.as_secs_f64();
    say(&format!("rate      {rate:.0} records a second, in {:.1} s", took.as_secs_f64()));
}
