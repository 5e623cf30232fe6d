//! The poll loop.

use std::{thread, time::Duration};

use rdkafka::{consumer::Consumer as _, error::RDKafkaErrorCode as Code};
use tokio::time::Instant;

use super::{Client, Draining, End, Phase, Stage, is_fatal};
use crate::{ServeError, task::Reported};

// The loop turns at least this often. Wake-ups make it turn at once; this
// bounds what a missed one costs.
const IDLE: Duration = Duration::from_millis(10);

// So many events are taken from the main queue at most before the rest of the
// loop gets its turn.
const EVENTS: usize = 5_000;

impl Client<'_> {
    pub(super) fn run(mut self) -> End {
        let mut last = Instant::now();
        loop {
            let now = Instant::now();
            let gap = now.saturating_duration_since(last);
            last = now;
            self.membership.turned(gap);
            self.driver.metrics.turned(gap);
            self.take_reports(now);
            let broken = self.poll_main(now);
            self.take_commit_results(now);
            if broken || self.consumer.client().fatal_error().is_some() {
                return self.broken(now);
            }
            self.take_answers(now);
            self.take_events(now);
            self.serve_assigning(now);
            self.serve_draining(now);
            self.keep_membership(now);
            self.serve_partitions(now);
            let busy = self.is_serving() && self.feed(now);
            self.watch_for_stalls(now);
            self.look_for_heartbeat(now);
            self.check_around(now);
            self.publish(now);
            if let Some(end) = self.serve_shutdown(now) {
                return end;
            }
            if !busy {
                thread::park_timeout(IDLE);
            }
        }
    }

    /// Takes what tasks say.
    fn take_reports(&mut self, now: Instant) {
        while let Ok(report) = self.driver.inbox.try_recv() {
            let Some(partition) = self.partitions.get_mut(report.lease.partition()) else {
                continue;
            };
            let stage = &mut partition.stage;
            let (Stage::Working(stack) | Stage::Stopping { stack, .. }) = stage else { continue };
            // Of another lease of the partition, it changes nothing (I4).
            if *stack.lease != report.lease {
                continue;
            }
            match report.what {
                Reported::Ended => stack.ended = true,
                Reported::Failed(cause) => {
                    let name = report.lease.partition().clone();
                    self.stop_partition(&name, cause, now);
                }
            }
        }
    }

    /// Empties the main queue, and so keeps the membership of a client that is
    /// polled. Returns whether the client is broken.
    fn poll_main(&mut self, now: Instant) -> bool {
        let mut broken = false;
        for turn in 0..EVENTS {
            // Once at least: it is what the poll interval is counted by.
            if turn > 0 && self.main.len() == 0 {
                break;
            }
            match self.consumer.poll(Duration::ZERO) {
                Some(Err(error)) => broken |= is_fatal(&error),
                // Every partition's queue was split off before it was assigned.
                Some(Ok(message)) => {
                    use rdkafka::Message as _;
                    let (topic, partition) = (message.topic(), message.partition());
                    tracing::error!(topic, partition, "a record came through the main queue");
                }
                None => {}
            }
        }
        for error in self.consumer.context().errors() {
            self.driver.metrics.client_error();
            if self.shown.is_due(&error, now) {
                tracing::warn!(error, "the client reports an error");
            }
        }
        broken
    }

    /// The client is broken: everything is lost, and it has to be replaced.
    fn broken(&mut self, now: Instant) -> End {
        self.lose_all("the client failed", now);
        let (code, reason) =
            self.consumer.client().fatal_error().unwrap_or((Code::Fatal, String::new()));
        tracing::error!(%code, reason, "the client failed for good");
        match code {
            Code::FencedInstanceId => End::Failed(ServeError::Fenced { reason }),
            Code::UnreleasedInstanceId => End::Unreleased(reason),
            _ => End::Rebuild(format!("{code}: {reason}")),
        }
    }

    /// Drains and commits everything, then closes the queue, then answers what
    /// still comes until the client has closed.
    fn serve_shutdown(&mut self, now: Instant) -> Option<End> {
        let asked = self.driver.stop.is_asked() || self.rebuild.is_some();
        match self.phase {
            Phase::Serving | Phase::Stopping if self.driver.stop.is_abandoned() => {
                // Nobody waits for us: no drain, and no last commit.
                self.lose_all("the source was dropped", now);
                self.close_queue(now)
            }
            Phase::Serving if asked && self.draining.is_none() => {
                self.phase = Phase::Stopping;
                self.end_assigning();
                let names = self.partitions.keys().cloned().collect();
                self.begin_drain(Draining::own(names, now + self.drain_deadline(), now));
                None
            }
            // The drain is over, unless an event took its place and was answered.
            Phase::Stopping if self.draining.is_none() => {
                if self.partitions.is_empty() {
                    self.close_queue(now)
                } else {
                    self.phase = Phase::Serving;
                    None
                }
            }
            Phase::Closing(since) => {
                if self.consumer.closed() {
                    return Some(self.end());
                }
                if now.saturating_duration_since(since) > self.driver.settings.close_deadline {
                    tracing::warn!("the consumer did not close in time, and is given up");
                    return Some(self.end());
                }
                None
            }
            Phase::Serving | Phase::Stopping => None,
        }
    }

    fn close_queue(&mut self, now: Instant) -> Option<End> {
        self.phase = Phase::Closing(now);
        match self.consumer.close_queue() {
            Ok(()) => None,
            Err(error) => Some(End::Rebuild(error.to_string())),
        }
    }

    fn end(&mut self) -> End {
        match self.rebuild.take() {
            Some(reason) if !self.driver.stop.is_asked() => End::Rebuild(reason),
            _ => End::Closed,
        }
    }
}
