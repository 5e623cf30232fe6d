//! Commits: one in flight, always of the newest frontiers, each a membership
//! proof when it is accepted.
//!
//! They are sent by the thread that answers the group's events, and offsets are
//! named in the request itself. So nothing comes between a look at the frontier
//! and its commit (C12), there is no client's position to be committed (C17),
//! and no offset is stored for a partition that is gone (C14).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdkafka::{
    Offset, TopicPartitionList, consumer::Consumer as _, error::RDKafkaErrorCode as Code,
};
use tidegate_core::TopicPartition;
use tokio::time::Instant;

use super::{
    Client, Phase, Stage,
    membership::{Verdict, verdict},
    rebalance::list_of,
    start::metadata,
};
use crate::ffi::{self, Committed};

/// The one commit in flight, and when the next may go.
#[derive(Debug)]
pub(super) struct Commits {
    flight: Option<Flight>,
    hold: Instant,
    last_sent: Instant,
}

#[derive(Debug)]
struct Flight {
    sent: Instant,
    membership: u64,
    offsets: BTreeMap<TopicPartition, Sent>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// The assignment that the offset is of.
    number: u64,
    offset: i64,
}

/// What a commit is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The frontiers that moved.
    Moved,
    /// All of them: a membership proof.
    Proof,
    /// Positions that were chosen, after a look-up has just reached the
    /// coordinator: whatever the statistics say, they are up to a second old.
    Chosen,
}

impl Commits {
    pub(super) fn new(now: Instant) -> Self {
        Self { flight: None, hold: now, last_sent: now }
    }

    /// Lets the next commit go at once.
    pub(super) fn unhold(&mut self, now: Instant) {
        self.hold = now;
    }

    pub(super) fn since_last(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_sent)
    }
}

impl Client<'_> {
    /// Sends a commit, if none is in flight and there is something to commit.
    pub(super) fn commit(&mut self, what: What, now: Instant) {
        if self.commits.flight.is_some() || now < self.commits.hold {
            return;
        }
        // Without a coordinator it would be parked in the client, and hold a
        // later close up for as long as the client's session timeout.
        let group = self.consumer.context().group_state();
        if what != What::Chosen && group.up == Some(false) {
            return;
        }
        let mut list = TopicPartitionList::new();
        let mut offsets = BTreeMap::new();
        for partition in self.partitions.values() {
            let Some(offset) = partition.frontier() else { continue };
            let moved = partition.acknowledged.is_none_or(|acknowledged| offset > acknowledged);
            if !moved && what != What::Proof {
                continue;
            }
            let name = &partition.name;
            let mut entry = list.add_partition(&name.topic, name.partition);
            if entry.set_offset(Offset::Offset(offset)).is_err() {
                continue;
            }
            if let Some(topic_id) = &partition.topic_id {
                entry.set_metadata(metadata(topic_id.as_str()));
            }
            offsets.insert(name.clone(), Sent { number: partition.number, offset });
        }
        if offsets.is_empty() {
            return;
        }
        self.commits.last_sent = now;
        tracing::debug!(offsets = %shown(&offsets), "a commit is sent");
        let membership = self.membership.number();
        self.commits.flight = Some(Flight { sent: now, membership, offsets });
        ffi::commit(self.consumer, &list, &self.results);
    }

    pub(super) fn take_commit_results(&mut self, now: Instant) {
        while let Some(committed) = self.results.committed() {
            let Some(flight) = self.commits.flight.take() else { continue };
            self.driver
                .metrics
                .committed(now.saturating_duration_since(flight.sent), committed.error);
            if flight.membership != self.membership.number() {
                tracing::debug!(
                    error = %committed.error,
                    "the result of a commit came after its membership had ended",
                );
                continue;
            }
            match verdict(committed.error, self.driver.session) {
                Verdict::Proof => self.proved(&flight, &committed, now),
                Verdict::Lost => {
                    self.lose_all("a commit was refused", now);
                    self.membership.expect_loss(now);
                }
                Verdict::Again(pause) => self.commits.hold = now + pause,
                // The poll loop sees it.
                Verdict::Fatal => {}
            }
            if committed.error != Code::NoError {
                tracing::info!(error = %committed.error, "a commit was not accepted");
            }
        }
    }

    fn proved(&mut self, flight: &Flight, committed: &Committed, now: Instant) {
        let took = now.saturating_duration_since(flight.sent);
        tracing::debug!(offsets = %shown(&flight.offsets), ?took, "a commit is accepted");
        let counts = self.membership.proved(flight.sent, now);
        for (name, sent) in &flight.offsets {
            let Some(partition) = self.partitions.get_mut(name) else { continue };
            if partition.number != sent.number {
                continue;
            }
            if let Some(error) = committed.refused.get(name) {
                tracing::warn!(partition = %name, %error, "an offset was not committed");
                continue;
            }
            let acknowledged = partition.acknowledged.map_or(sent.offset, |it| it.max(sent.offset));
            partition.acknowledged = Some(acknowledged);
            if let Some(stack) = partition.stack() {
                stack.owner.acknowledge(acknowledged);
            }
        }
        self.prove_leases(flight.sent, now);
        if self.suspended && counts {
            tracing::info!("a commit was answered: work goes on");
            self.resume();
        }
    }

    /// Extends the leases by a proof that was sent at `sent`.
    ///
    /// A lease that somebody saw run out just before that is over, and its stack
    /// with it, however young the proof is: its partition gets another one.
    pub(super) fn prove_leases(&mut self, sent: Instant, now: Instant) {
        let mut over = BTreeSet::new();
        for partition in self.partitions.values() {
            if let Stage::Working(stack) = &partition.stage
                && !stack.owner.prove(sent)
            {
                over.insert(partition.name.clone());
            }
        }
        // Without a young proof, all are suspended anyway.
        if over.is_empty() || !self.membership.counts(now) {
            return;
        }
        tracing::warn!(partitions = %list_of(&over), "leases ran out before their proof came");
        let waits = self.suspended;
        self.suspend(|name| over.contains(name));
        if !waits {
            self.resume();
        }
    }

    /// Sends what is due, suspends what has no proof, and extends what needs
    /// none for now.
    pub(super) fn keep_membership(&mut self, now: Instant) {
        if self.partitions.is_empty() || matches!(self.phase, Phase::Closing(_)) {
            self.suspended = false;
            return;
        }
        let rejoining = self.consumer.context().group_state().rejoining;
        if self.draining.is_none() {
            self.send_what_is_due(now);
        }
        if let Some(until) = self.membership.extension(now, rejoining) {
            for stack in self.partitions.values().filter_map(|partition| partition.stack()) {
                stack.owner.extend(until);
            }
        }
        let provable = self.partitions.values().any(|partition| partition.frontier().is_some());
        self.membership.provable(provable, now);
        if !provable {
            // Nothing that could be proved, so nothing waits for it: neither what
            // is still looked up, nor what is stopped where no offset is known.
            self.suspended = false;
        } else if self.membership.is_silent(now, rejoining) {
            if !self.suspended && self.partitions.values().any(|it| it.stack().is_some()) {
                let age = self.membership.age(now);
                tracing::warn!(?age, "no commit was answered: work is suspended");
                self.driver.metrics.suspended();
                self.suspend(|_| true);
            }
            let up = self.consumer.context().group_state().up == Some(true);
            if up && self.membership.is_hopeless(now) && self.rebuild.is_none() {
                self.rebuild =
                    Some("no commit is answered although the coordinator is up".to_owned());
            }
        }
        if self.membership.loss_did_not_come(now) && self.rebuild.is_none() {
            self.membership.loss_came();
            self.rebuild = Some("the client holds on to partitions that were lost".to_owned());
        }
        self.driver.metrics.proof(self.membership.age(now));
    }

    fn send_what_is_due(&mut self, now: Instant) {
        let since = self.commits.since_last(now);
        let demanded = self.demanded_proofs();
        let half = self.driver.settings.unconfirmed / 2;
        let many = self.partitions.values().any(|partition| partition.unconfirmed() > half);
        if demanded || self.membership.wants_proof(self.commits.last_sent, now) {
            self.commit(What::Proof, now);
        } else if many || self.has_gates() || since >= self.driver.settings.commit_interval {
            self.commit(What::Moved, now);
        }
    }

    fn demanded_proofs(&mut self) -> bool {
        // Each is asked: asking resets it. One proof serves all that asked.
        let mut demanded = false;
        if self.commits.flight.is_none() {
            for stack in self.partitions.values().filter_map(|partition| partition.stack()) {
                demanded |= stack.owner.proof_demanded();
            }
        }
        demanded
    }

    fn has_gates(&self) -> bool {
        let is_shut = |stage: &Stage| matches!(stage, Stage::Starting { gate: Some(_), .. });
        self.partitions.values().any(|partition| is_shut(&partition.stage))
    }

    /// No proof has come in time: those partitions are not worked on any more.
    /// What is finished is still committed, for that is how the next proof comes.
    fn suspend(&mut self, is: impl Fn(&TopicPartition) -> bool) {
        self.suspended = true;
        let draining = &self.draining;
        let mut ghosts = Vec::new();
        for partition in self.partitions.values_mut().filter(|it| is(&it.name)) {
            let drained = draining.as_ref().is_some_and(|it| it.contains(&partition.name));
            let lease = partition.end_stack(|frontier, owner| {
                owner.suspend();
                if drained {
                    Stage::Drained { frontier: Some(frontier), owner: Some(owner) }
                } else {
                    Stage::Suspended { frontier, owner }
                }
            });
            ghosts.extend(lease);
        }
        self.driver.haunt(ghosts);
    }

    /// We are still a member, so nobody else had our partitions: each goes on
    /// from its frontier, under a new lease.
    fn resume(&mut self) {
        self.suspended = false;
        for partition in self.partitions.values_mut() {
            if let Stage::Suspended { frontier, .. } = partition.stage {
                partition.begin_again(frontier);
            }
        }
    }
}

/// Offsets as a log shows them.
fn shown(offsets: &BTreeMap<TopicPartition, Sent>) -> String {
    list_of(offsets.iter().map(|(name, sent)| format!("{name}@{}", sent.offset)))
}
