//! Events of the group, each answered when its work is done.

use std::{collections::BTreeSet, time::Duration};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{Consumer as _, RebalanceProtocol},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tidegate_core::{Epoch, TopicPartition};
use tokio::time::Instant;

use super::{
    Client, Phase, Rebalance, Stage,
    commits::What,
    lookup::{Asked, Lookup},
    partition::{Gate, Partition},
    start::{Known, Start, resolve},
};
use crate::{
    admin::{self, Answer, Failure},
    ffi,
};

/// An assignment that is not answered yet, since it is looked up where its
/// partitions start.
pub(super) struct Assigning {
    epoch: Epoch,
    lookup: Lookup,
    at: Instant,
}

/// A revoke that is not answered yet, or our own shutdown: what runs may finish.
pub(super) struct Draining {
    /// The event's; `None` is our own shutdown.
    list: Option<TopicPartitionList>,
    names: BTreeSet<TopicPartition>,
    since: Instant,
    deadline: Instant,
    /// When the last commit became due.
    committing: Option<Instant>,
}

// How long the answer to a revoke waits for the result of the last commit.
const COMMIT: Duration = Duration::from_secs(2);

impl Draining {
    pub(super) fn own(names: BTreeSet<TopicPartition>, deadline: Instant, now: Instant) -> Self {
        Self { list: None, names, since: now, deadline, committing: None }
    }

    pub(super) fn contains(&self, name: &TopicPartition) -> bool {
        self.names.contains(name)
    }

    /// The event's list, if it drains for one.
    pub(super) fn into_list(self) -> Option<TopicPartitionList> {
        self.list
    }
}

impl Client<'_> {
    // ===== events =====

    /// Takes the next event, unless one is unanswered.
    pub(super) fn take_events(&mut self, now: Instant) {
        while self.can_take_event() {
            let next = self.waiting.take().or_else(|| self.consumer.context().next_rebalance());
            let Some(event) = next else { return };
            let names = names(&event.list);
            if event.assign {
                self.on_assign(event.at, names, now);
            } else {
                self.on_revoke(event, names, now);
            }
        }
    }

    /// Our own drain gives way to an event: it has to be answered first. An
    /// assignment that is looked up gives way to what replaces it.
    fn can_take_event(&self) -> bool {
        self.draining.as_ref().is_none_or(|draining| draining.list.is_none())
    }

    fn on_assign(&mut self, at: Instant, names: BTreeSet<TopicPartition>, now: Instant) {
        if self.assigning.take().is_some() {
            tracing::info!("an assignment was replaced before it was answered");
        }
        self.commits.unhold(now);
        let epoch = ffi::epoch(self.consumer).unwrap_or_else(|| Epoch::new(-1, ""));
        self.checks.moving(Some(&epoch.member));
        let (generation, member) = (epoch.generation, &*epoch.member);
        tracing::info!(generation, member, partitions = %list_of(&names), "partitions assigned");
        self.driver.metrics.assigned(names.len());
        // The broker counted us as a member when it sent this, also for what we
        // keep; while it is unanswered, a loss would not be announced.
        self.membership.assigned(at);
        self.prove_leases(at, now);
        if names.is_empty() || self.phase != Phase::Serving {
            let list = starting_at_zero(names.iter());
            self.answer(true, &list);
            self.driver.metrics.rebalanced("assign", at.elapsed());
            return;
        }
        for name in &names {
            self.forget(name);
        }
        let with_ids = self.driver.settings.topic_check.is_some();
        let lookup = Lookup::new(names, with_ids, now);
        self.assigning = Some(Assigning { epoch, lookup, at });
    }

    fn on_revoke(&mut self, event: Rebalance, names: BTreeSet<TopicPartition>, now: Instant) {
        let Rebalance { list, lost, at, .. } = event;
        self.commits.unhold(now);
        self.checks.moving(None);
        tracing::info!(lost, partitions = %list_of(&names), "partitions revoked");
        let never_assigned = self.assigning.take();
        if lost {
            self.membership.loss_came();
            if names.iter().any(|name| self.partitions.contains_key(name)) {
                self.lose_all("the client says so", now);
            }
            let list = assigned_of(&list, never_assigned.as_ref());
            self.answer(false, &list);
            self.driver.metrics.rebalanced("lost", at.elapsed());
            return;
        }
        self.driver.metrics.revoked(names.len());
        // Our own drain goes on as this one, and has a little time at least.
        let own = self.draining.take().map(|it| it.deadline.max(now + Duration::from_millis(200)));
        let deadline = own.unwrap_or_else(|| now + self.drain_deadline());
        let list = assigned_of(&list, never_assigned.as_ref());
        let names = names.into_iter().filter(|it| self.partitions.contains_key(it)).collect();
        self.begin_drain(Draining {
            list: Some(list),
            names,
            since: at,
            deadline,
            committing: None,
        });
    }

    /// Answers a revoke that waited for its drain, when all is lost.
    pub(super) fn answer_lost(&mut self, list: &TopicPartitionList) {
        self.answer(false, list);
    }

    /// Answers an event, incrementally or in full, as the client's protocol is.
    fn answer(&mut self, assign: bool, list: &TopicPartitionList) {
        // A group call, and safe: an unanswered event keeps the handler alive.
        let eager = matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Eager);
        if !eager && !matches!(self.phase, Phase::Closing(_)) {
            // For the event the client paused every partition, and it resumes
            // each at a position that is one too far where an end of partition
            // came through a batch call. So each is put right while it is
            // paused. Later would not do: what is read beyond the end is an
            // error, which stops the partition's reading, and then a seek is
            // refused. What the client had fetched is purged anyway.
            let answered = names(list);
            let retained: Vec<_> =
                self.partitions.keys().filter(|name| !answered.contains(name)).cloned().collect();
            for name in retained {
                self.seek(&name);
            }
        }
        let answered = match (assign, eager) {
            (true, true) => self.consumer.assign(list),
            (true, false) => self.consumer.incremental_assign(list),
            (false, true) => self.consumer.unassign(),
            (false, false) => self.consumer.incremental_unassign(list),
        };
        if let Err(error) = answered {
            tracing::warn!(assign, %error, "the answer to a rebalance failed");
        }
    }

    /// Puts the client at the partition's position.
    pub(super) fn seek(&mut self, name: &TopicPartition) {
        let Some(partition) = self.partitions.get_mut(name) else { return };
        partition.watch.sought(Instant::now());
        if partition.position < 0 {
            return;
        }
        let offset = Offset::Offset(partition.position);
        let sought = self.consumer.seek(&name.topic, name.partition, offset, Duration::ZERO);
        if let Err(error) = sought {
            tracing::warn!(partition = %name, %error, "a seek failed");
        }
    }

    /// Puts the client at the partition's position, and waits until it is there.
    /// Says whether it reads the partition at all.
    pub(super) fn probe(&mut self, name: &TopicPartition) -> bool {
        let Some(partition) = self.partitions.get_mut(name) else { return true };
        partition.watch.sought(Instant::now());
        let mut list = TopicPartitionList::new();
        let offset = Offset::Offset(partition.position);
        if list.add_partition_offset(&name.topic, name.partition, offset).is_err() {
            return true;
        }
        // The client's own thread answers it, without a broker.
        let sought = self.consumer.seek_partitions(list, Duration::from_millis(100));
        let Ok(sought) = sought else { return true };
        let refused = |error: KafkaError| error.rdkafka_error_code() == Some(Code::State);
        !sought.elements().iter().any(|it| it.error().err().is_some_and(refused))
    }

    // ===== assignments =====

    /// Asks what is to be asked, and answers the event when all is known, or
    /// when it took too long.
    pub(super) fn serve_assigning(&mut self, now: Instant) {
        let assigning = self.assigning.as_mut().map(|it| &mut it.lookup);
        for lookup in assigning.into_iter().chain(&mut self.resolving) {
            while let Some((question, partitions)) = lookup.due(now) {
                self.questions += 1;
                let number = self.questions;
                let asked = match question.about(partitions.into_iter()) {
                    Asked::Aside(inquiry) => self.asker.ask(number, inquiry),
                    Asked::Brokers(request) => {
                        admin::ffi::ask(self.consumer.client(), &self.answers, number, &request);
                        true
                    }
                };
                lookup.sent(question, number, now);
                if !asked {
                    let failure = Failure { code: Code::QueueFull, reason: String::new() };
                    lookup.answered(Answer { number, result: Err(failure) }, now);
                }
            }
        }
        let deadline = self.driver.settings.lookup_deadline;
        let ready = self.assigning.as_mut().is_some_and(|it| {
            it.lookup.is_complete(now) || now.saturating_duration_since(it.at) > deadline
        });
        if ready && let Some(assigning) = self.assigning.take() {
            self.answer_assign(assigning, now);
        }
    }

    fn answer_assign(&mut self, assigning: Assigning, now: Instant) {
        if self.consumer.assignment_lost() {
            tracing::info!("an assignment was lost before it was answered");
            self.assigning = Some(assigning);
            self.end_assigning();
            return;
        }
        let Assigning { epoch, lookup, at } = assigning;
        let waited = now.saturating_duration_since(at);
        // The broker may have expired us without a word meanwhile.
        let late = waited > self.driver.session.timeout / 3;
        let mut list = TopicPartitionList::new();
        let mut chosen = false;
        for (name, known) in lookup.known() {
            let known = known.ok_or(lookup.failure());
            let mut partition = self.driver.partition(self.consumer, name, &epoch, now);
            let start = match known {
                Ok(known) => self.driver.start(&mut partition, &known, now),
                Err(failure) => {
                    tracing::warn!(partition = %name, ?failure, "where it starts is not known yet");
                    // Not read before it is: any position will do.
                    0
                }
            };
            if late && let Stage::Starting { gate, .. } = &mut partition.stage {
                *gate = gate.or(Some(Gate::Proof(now)));
            }
            chosen |=
                matches!(partition.stage, Stage::Starting { gate: Some(Gate::Acknowledged), .. });
            let mut entry = list.add_partition(&name.topic, name.partition);
            if entry.set_offset(Offset::Offset(start)).is_err() {
                tracing::warn!(partition = %name, start, "not an offset to start at");
            }
            self.partitions.insert(name.clone(), partition);
        }
        self.answer(true, &list);
        self.driver.metrics.rebalanced("assign", waited);
        if chosen {
            self.commits.unhold(now);
            self.commit(What::Chosen, now);
        }
    }

    /// Answers an assignment that nothing will work on: we are closing, or it
    /// is lost, which the client says as soon as it is answered.
    pub(super) fn end_assigning(&mut self) {
        if let Some(assigning) = self.assigning.take() {
            let names = assigning.lookup.known().map(|(name, _)| name);
            let list = starting_at_zero(names);
            self.answer(true, &list);
        }
    }

    pub(super) fn take_answers(&mut self, now: Instant) {
        while let Some(answer) = admin::ffi::answer(&self.answers).or_else(|| self.asker.answer()) {
            let answer = match &mut self.assigning {
                Some(assigning) => assigning.lookup.answered(answer, now),
                None => Some(answer),
            };
            let answer = match (answer, &mut self.resolving) {
                (Some(answer), Some(lookup)) => lookup.answered(answer, now),
                (answer, _) => answer,
            };
            if let Some(answer) = answer {
                self.take_check(answer, now);
            }
        }
    }

    // ===== drains =====

    /// Lets what runs of some partitions finish; there is no new intake.
    pub(super) fn begin_drain(&mut self, draining: Draining) {
        for name in &draining.names {
            let Some(partition) = self.partitions.get_mut(name) else { continue };
            match &partition.stage {
                Stage::Working(stack) | Stage::Stopping { stack, .. } => stack.owner.drain(),
                _ => partition.settle(),
            }
        }
        self.draining = Some(draining);
    }

    /// Drained, or out of time: the last commit, its result, the answer.
    pub(super) fn serve_draining(&mut self, now: Instant) {
        let Some(mut draining) = self.draining.take() else { return };
        if !self.drain(&mut draining, now) {
            self.draining = Some(draining);
            return;
        }
        let how = draining.since.elapsed();
        for name in &draining.names {
            self.give_back(name);
        }
        if let Some(list) = draining.list {
            self.answer(false, &list);
            tracing::info!(partitions = %list_of(names(&list)), waited = ?how, "partitions given back");
            self.driver.metrics.rebalanced("revoke", how);
        }
    }

    /// Goes on with a drain. Returns whether it is over.
    fn drain(&mut self, draining: &mut Draining, now: Instant) -> bool {
        let late = now >= draining.deadline;
        let mut running = false;
        let mut ghosts = Vec::new();
        for name in &draining.names {
            let Some(partition) = self.partitions.get_mut(name) else { continue };
            let Some(stack) = partition.stack() else { continue };
            // The task ends when nothing runs any more, at once if nothing did.
            let idle = stack.ended;
            if !idle && !late {
                running = true;
                continue;
            }
            let waited = draining.since.elapsed();
            self.driver.metrics.drained(if idle { "finished" } else { "deadline" }, waited);
            let in_flight = stack.frontier.standing().in_flight;
            if idle {
                tracing::info!(partition = %name, ?waited, in_flight, "a partition is drained");
            } else {
                tracing::warn!(
                    partition = %name,
                    ?waited,
                    in_flight,
                    "the drain's deadline has passed",
                );
            }
            ghosts.extend(partition.end_stack(|frontier, owner| Stage::Drained {
                frontier: Some(frontier),
                owner: Some(owner),
            }));
        }
        self.driver.haunt(ghosts);
        if running {
            if self.commits.since_last(now) > self.driver.session.heartbeat {
                self.commit(What::Proof, now);
            }
            return false;
        }
        let since = *draining.committing.get_or_insert(now);
        let confirmed =
            |name: &TopicPartition| self.partitions.get(name).is_none_or(Partition::is_confirmed);
        if draining.names.iter().all(confirmed) {
            return true;
        }
        // Before our own close there is no hurry: the commit may wait behind our
        // request to join.
        let own = draining.list.is_none();
        let patience = if own { COMMIT.max(self.driver.session.timeout) } else { COMMIT };
        if now.saturating_duration_since(since) < patience {
            self.commit(What::Moved, now);
            return false;
        }
        tracing::warn!(
            "the last commit was not confirmed in time: the next owner repeats some work"
        );
        true
    }

    /// How long a drain may take.
    pub(super) fn drain_deadline(&self) -> Duration {
        self.driver.settings.drain(self.driver.session)
    }
}

impl super::Driver {
    /// Decides where a partition starts. Returns the offset to assign it with.
    pub(super) fn start(
        &mut self,
        partition: &mut Partition<'_>,
        known: &Known,
        now: Instant,
    ) -> i64 {
        let name = partition.name.clone();
        let before = self.topic_ids.get(&name.topic);
        match resolve(known, before, self.settings.start) {
            Ok(Start { offset, chosen }) => {
                if let Some(topic_id) = &known.topic_id {
                    self.topic_ids.insert(name.topic.clone(), topic_id.clone());
                }
                if chosen {
                    tracing::info!(partition = %name, offset, "nothing is committed: starting here");
                }
                partition.topic_id.clone_from(&known.topic_id);
                partition.end = Some(known.high);
                partition.acknowledged = (!chosen).then_some(offset);
                partition.position = offset;
                let gate = chosen.then_some(Gate::Acknowledged);
                partition.stage = Stage::Starting { at: offset, gate };
                offset
            }
            Err(refusal) => {
                partition.position = -1;
                self.stopped(partition, refusal.into(), None, now);
                known.high
            }
        }
    }
}

/// What the client knows of a revoke: it was never told of an assignment that
/// is not answered.
fn assigned_of(list: &TopicPartitionList, never: Option<&Assigning>) -> TopicPartitionList {
    let mut assigned = TopicPartitionList::new();
    for name in names(list) {
        if never.is_none_or(|it| !it.lookup.contains(&name)) {
            assigned.add_partition(&name.topic, name.partition);
        }
    }
    assigned
}

/// Explicit offsets, so that the client looks nothing up by itself, for what is
/// never read.
fn starting_at_zero<'a>(names: impl Iterator<Item = &'a TopicPartition>) -> TopicPartitionList {
    admin::ffi::list(names.map(|name| (name, Offset::Offset(0))))
}

fn names(list: &TopicPartitionList) -> BTreeSet<TopicPartition> {
    list.elements().iter().map(|it| TopicPartition::new(it.topic(), it.partition())).collect()
}

/// Partitions, or what is said of them, as a log shows them.
pub(super) fn list_of(all: impl IntoIterator<Item = impl ToString>) -> String {
    let all: Vec<_> = all.into_iter().map(|it| it.to_string()).collect();
    all.join(" ")
}
