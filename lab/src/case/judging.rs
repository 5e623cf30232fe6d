//! What the oracle says of a case, and what the case leaves behind.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use tidegate_oracle::{Evidence as Judged, Findings, Log, Queries, Rules, Tables, judge, ledger};
use tokio::{task::spawn_blocking, time::timeout};

use super::{Case, Collected};
use crate::{evidence::MemberEvidence, member::Counters};

/// How long it may take to end what watches.
const SOON: Duration = Duration::from_secs(5);

impl Case {
    /// Lets the oracle judge what there is.
    pub(crate) async fn judge(&self, rules: Rules) -> Result<Findings> {
        self.judge_by(rules, Queries::default()).await
    }

    pub(crate) async fn judge_by(&self, rules: Rules, queries: Queries) -> Result<Findings> {
        self.phase("judging");
        self.stop_watch().await?;
        let mut evidence = Judged::default();
        evidence.committed = Some(self.collected().committed.clone());
        evidence.log = self.read_log().await?;
        Tables::new(self.schema.url(), queries).read(&mut evidence).await?;
        // As much work as there are records, which must not keep the other
        // experiments from looking.
        let findings = spawn_blocking(move || judge(&evidence, rules)).await?;
        let mut collected = self.collected();
        collected.findings = Some(findings.clone());
        Ok(findings)
    }

    /// Reads what the topic has, before some of it is removed.
    pub(crate) async fn remember_log(&self) -> Result<()> {
        let log = self.read_log().await?;
        self.collected().before = log.inputs().iter().map(|it| it.record.clone()).collect();
        Ok(())
    }

    /// What the topic has, and what it had.
    async fn read_log(&self) -> Result<Log> {
        let meaning = || ledger::meaning(ledger::AMOUNT_LIMIT);
        let log = self.reader().log([self.topic.as_str()], meaning()).await?;
        let before = self.collected().before.clone();
        if before.is_empty() {
            return Ok(log);
        }
        let there = log.inputs().iter().map(|it| it.record.clone());
        let all = before.into_iter().chain(there);
        let records: BTreeMap<_, _> = all.map(|it| (it.place.clone(), it)).collect();
        Ok(Log::new(records.into_values(), meaning()).with_bounds(log.bounds().clone()))
    }

    /// What was collected, and what the tables say when all is over.
    pub(crate) async fn evidence(&self) -> (Collected, Vec<MemberEvidence>) {
        // A broker that is gone does not answer it.
        drop(timeout(SOON, self.stop_watch()).await);
        let mut collected = std::mem::take(&mut *self.collected());
        collected.effects = self.schema.effects().await.unwrap_or_default();
        let mut members = Vec::new();
        for (arguments, member) in std::mem::take(&mut collected.members) {
            let end = member.end_now().ok().flatten();
            // One that was stopped, or holds its answer, is not waited for.
            let counters = if end.is_some() {
                member.counters().await.unwrap_or_default()
            } else {
                Counters::default()
            };
            members.push(MemberEvidence {
                name: arguments.name.clone(),
                process: member.id(),
                end: end.map(|status| status.to_string()),
                ended: member.silent_since(),
                counters,
                events: member.log(),
                arguments,
            });
        }
        (collected, members)
    }
}
