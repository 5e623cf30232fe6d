//! What becomes of each partition: starts, stops, pauses, ends.

use std::{
    sync::Arc,
    task::{Wake, Waker},
    thread::Thread,
};

use rdkafka::consumer::Consumer as _;
use tidegate_core::{Epoch, Error, Frontier, Lease, Terms, TopicPartition};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Client, Consumer, Driver, PositionError, Stage,
    lookup::Lookup,
    partition::{Gate, Partition, Progress, Stack},
    pause::Pause,
    stall::{Advice, Watch},
};
use crate::{
    OnFailure,
    ffi::{self, Queue},
    task::{Load, Work},
};

// Chunks that wait between the poll loop and a task; what is in them is bounded
// by the load.
const CHUNKS: usize = 64;

struct Unpark(Arc<Thread>);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Driver {
    /// A partition that was just assigned. Its queue is split off, and emptied:
    /// the client may have fetched into it while it was not ours.
    pub(super) fn partition<'c>(
        &mut self,
        consumer: &'c Consumer,
        name: &TopicPartition,
        epoch: &Epoch,
        now: Instant,
    ) -> Partition<'c> {
        self.numbers += 1;
        let queue = Queue::of_partition(consumer, name).waking();
        let stale = queue.discard(&mut [std::ptr::null_mut(); 256]);
        if stale > 0 {
            tracing::debug!(partition = %name, stale, "records were fetched before the assignment");
        }
        let (first, longest) = match self.settings.on_failure {
            OnFailure::Retry { first, longest } => (first, longest),
            OnFailure::End => Default::default(),
        };
        Partition {
            name: name.clone(),
            epoch: epoch.clone(),
            topic_id: None,
            queue,
            number: self.numbers,
            position: -1,
            end: None,
            acknowledged: None,
            stage: Stage::Unresolved,
            disowned: false,
            pause: Pause::new(first, longest),
            watch: Watch::new(now),
            progress: Progress::at(-1, now),
            record_size: 1,
        }
    }

    /// A partition stops, and is tried again after a pause.
    pub(super) fn stopped(
        &mut self,
        partition: &mut Partition<'_>,
        cause: Error,
        frontier: Option<i64>,
        now: Instant,
    ) {
        let pause = partition.pause.after(frontier);
        tracing::error!(
            partition = %partition.name,
            class = %cause.class(),
            cause = cause.chain(),
            frontier,
            ?pause,
            "the partition is stopped",
        );
        self.metrics.stopped(cause.class());
        if self.settings.on_failure == OnFailure::End && self.failure.is_none() {
            self.failure = Some(cause.clone());
            self.stop.ask();
        }
        partition.stage = Stage::Stopped { cause, frontier, until: now + pause };
    }

    /// Remembers leases whose deliveries may still be alive.
    pub(super) fn haunt(&mut self, leases: impl IntoIterator<Item = Arc<Lease>>) {
        for lease in leases {
            let name = lease.partition().clone();
            self.ghosts.entry(name).or_default().push(lease);
        }
    }

    /// Whether deliveries of an earlier stack of the partition are alive (I7).
    fn is_haunted(&mut self, name: &TopicPartition) -> bool {
        let Some(leases) = self.ghosts.get_mut(name) else { return false };
        leases.retain(|lease| Arc::strong_count(lease) > 1);
        if leases.is_empty() {
            self.ghosts.remove(name);
            return false;
        }
        true
    }

    /// Starts a stack on a partition.
    fn start_stack(&mut self, partition: &mut Partition<'_>, at: i64, proof: Instant) {
        let name = &partition.name;
        let terms = Terms {
            session: Some(self.session.timeout),
            since: Some(proof),
            topic_id: partition.topic_id.clone(),
            acknowledged: partition.acknowledged,
            waker: Some(Waker::from(Arc::new(Unpark(Arc::clone(&self.thread))))),
        };
        let (owner, lease) = Lease::grant_on(name.clone(), partition.epoch.clone(), terms);
        let lease = Arc::new(lease);
        let frontier = Frontier::starting_at(at);
        let load = Arc::new(Load::new(Arc::clone(&self.thread)));
        let (chunks, receiver) = mpsc::channel(CHUNKS);
        let span = tracing::info_span!(
            "assignment",
            topic = &*name.topic,
            partition = name.partition,
            generation = partition.epoch.generation,
            member = &*partition.epoch.member,
        );
        let work = Work {
            lease: Arc::clone(&lease),
            frontier: frontier.clone(),
            chunks: receiver,
            load: Arc::clone(&load),
            reports: self.reports.clone(),
        };
        tracing::debug!(partition = %name, at, "a stack starts");
        let task = (self.spawn)(work, span);
        partition.stage = Stage::Working(Stack {
            owner,
            lease,
            frontier,
            load,
            chunks,
            open: true,
            ended: false,
            task,
        });
    }
}

impl Client<'_> {
    /// Moves each partition on to its next stage, if it is time.
    pub(super) fn serve_partitions(&mut self, now: Instant) {
        let serving = self.is_serving();
        let proof = self.membership.proof();
        // A lease is granted from the last proof on: it may have run out already.
        let (membership, context) = (&self.membership, self.consumer.context());
        let silent = || membership.is_silent(now, context.group_state().rejoining);
        let mut sought = Vec::new();
        let mut ghosts = Vec::new();
        for partition in self.partitions.values_mut() {
            match &partition.stage {
                Stage::Starting { at, gate } if serving => {
                    let at = *at;
                    let open = match gate {
                        None => true,
                        Some(Gate::Acknowledged) => {
                            partition.acknowledged.is_some_and(|acknowledged| acknowledged >= at)
                        }
                        Some(Gate::Proof(after)) => proof > *after,
                    };
                    if !open || silent() || self.driver.is_haunted(&partition.name) {
                        continue;
                    }
                    if partition.position != at {
                        partition.position = at;
                        sought.push(partition.name.clone());
                    }
                    partition.watch = Watch::new(now);
                    self.driver.start_stack(partition, at, proof);
                }
                Stage::Stopping { stack, deadline, .. } if stack.ended || now >= *deadline => {
                    let Stage::Stopping { cause, .. } = &partition.stage else { continue };
                    let cause = cause.clone();
                    let keeps =
                        !partition.disowned && cause.downcast_ref::<PositionError>().is_none();
                    let mut last = None;
                    ghosts.extend(partition.end_stack(|frontier, owner| {
                        owner.release();
                        last = Some(frontier);
                        Stage::Unresolved
                    }));
                    // A position that is not in the log is looked up again.
                    let frontier = last.filter(|_| keeps);
                    self.driver.stopped(partition, cause, frontier, now);
                }
                Stage::Stopped { until, frontier, .. } if serving && now >= *until => {
                    match *frontier {
                        Some(frontier) => partition.begin_again(frontier),
                        None => partition.stage = Stage::Unresolved,
                    }
                }
                _ => {}
            }
        }
        self.driver.haunt(ghosts);
        for name in sought {
            self.seek(&name);
        }
        if serving {
            self.serve_unresolved(now);
        }
    }

    /// Looks up again where partitions start that could not be resolved in time,
    /// or were refused.
    fn serve_unresolved(&mut self, now: Instant) {
        let Some(mut lookup) = self.resolving.take() else {
            let unresolved: Vec<_> = self
                .partitions
                .values()
                .filter(|partition| matches!(partition.stage, Stage::Unresolved))
                .map(|partition| partition.name.clone())
                .collect();
            if !unresolved.is_empty() {
                let with_ids = self.driver.settings.topic_check.is_some();
                self.resolving = Some(Lookup::new(unresolved, with_ids, now));
            }
            return;
        };
        let late =
            now.saturating_duration_since(lookup.since()) > self.driver.settings.lookup_deadline;
        if !lookup.is_complete(now) && !late {
            self.resolving = Some(lookup);
            return;
        }
        for (name, known) in lookup.known() {
            let Some(partition) = self.partitions.get_mut(name) else { continue };
            if let (Stage::Unresolved, Some(known)) = (&partition.stage, known) {
                partition.disowned = false;
                self.driver.start(partition, &known, now);
                // The client is elsewhere.
                partition.position = -1;
            }
        }
    }

    /// A stack failed: it takes no more, and what runs may finish.
    pub(super) fn stop_partition(&mut self, name: &TopicPartition, cause: Error, now: Instant) {
        let deadline = now + self.drain_deadline();
        let drained = self.draining.as_ref().is_some_and(|it| it.contains(name));
        let Some(partition) = self.partitions.get_mut(name) else { return };
        // What fails in a drain is left to the next owner.
        if drained {
            return;
        }
        match std::mem::replace(&mut partition.stage, Stage::Unresolved) {
            Stage::Working(stack) => {
                stack.owner.drain();
                tracing::debug!(partition = %name, cause = cause.chain(), "a stack failed");
                partition.stage = Stage::Stopping { stack, cause, deadline };
            }
            other => partition.stage = other,
        }
    }

    /// Gives a partition back: its lease is over.
    pub(super) fn give_back(&mut self, name: &TopicPartition) {
        if let Some(partition) = self.partitions.remove(name)
            && let Stage::Drained { owner: Some(owner), .. } = partition.stage
        {
            owner.release();
        }
    }

    /// Forgets a partition that is assigned anew.
    pub(super) fn forget(&mut self, name: &TopicPartition) {
        if let Some(mut partition) = self.partitions.remove(name) {
            tracing::warn!(partition = %name, "assigned while it was ours");
            let ended = partition.end_stack(|_, owner| {
                owner.lose();
                Stage::Unresolved
            });
            self.driver.haunt(ended);
        }
    }

    /// Everything is gone: by an event, by a commit's result, or with the client.
    pub(super) fn lose_all(&mut self, why: &str, now: Instant) {
        if !self.partitions.is_empty() {
            tracing::warn!(why, partitions = self.partitions.len(), "partitions are lost");
            self.driver.metrics.lost(self.partitions.len());
        }
        self.membership.end();
        self.commits.unhold(now);
        self.suspended = false;
        self.resolving = None;
        let mut ghosts = Vec::new();
        for partition in self.partitions.values_mut() {
            ghosts.extend(partition.end_stack(|_, owner| {
                owner.lose();
                Stage::Unresolved
            }));
        }
        self.partitions.clear();
        self.driver.haunt(ghosts);
        if let Some(list) = self.draining.take().and_then(super::Draining::into_list) {
            self.answer_lost(&list);
        }
    }

    // ===== stalls =====

    pub(super) fn watch_for_stalls(&mut self, now: Instant) {
        if !self.is_serving() {
            return;
        }
        let (consumer, after) = (self.consumer, self.driver.settings.stall_after);
        let mut probes = Vec::new();
        for partition in self.partitions.values_mut() {
            if !matches!(partition.stage, Stage::Working(_)) {
                continue;
            }
            if !partition.watch.is_quiet(after, now) {
                continue;
            }
            // While a broker is away, all its partitions are quiet.
            if !consumer.context().leader_is_up(&partition.name) {
                partition.watch.excused(now);
                continue;
            }
            let (_, high) = ffi::watermarks(consumer, &partition.name);
            match partition.watch.advise(high > partition.position, after, now) {
                Advice::Wait => {}
                Advice::Probe => probes.push(partition.name.clone()),
                Advice::Rebuild => {
                    let name = &partition.name;
                    self.rebuild.get_or_insert_with(|| format!("{name} stands still"));
                }
            }
        }
        for name in probes {
            tracing::debug!(partition = %name, "no sign of life: probing");
            self.driver.metrics.stall_probed();
            if !self.probe(&name) {
                self.rebuild.get_or_insert_with(|| format!("{name} is not read"));
            }
        }
    }
}
