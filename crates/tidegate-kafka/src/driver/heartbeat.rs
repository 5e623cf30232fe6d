//! Heartbeats of the classic protocols, when they are due.
//!
//! The client looks whether a heartbeat is due whenever its main thread has
//! something else to do. An idle member's has that about twice a second, however
//! short the interval is (librdkafka 2.12.1, `rd_kafka_thread_main` and
//! `rd_kafka_cgrp_join_state_serve`), and a partition that moves waits for the
//! next heartbeat of who has it. So that thread is given something to do: a
//! commit of no offset, which it refuses by itself, without a request. In the
//! consumer protocol the client keeps a timer of its own.

use std::time::Duration;

use rdkafka::{TopicPartitionList, consumer::Consumer as _};
use tokio::time::Instant;

use super::{Client, Consumer, Phase};
use crate::{
    config::{GroupProtocol, Settings},
    ffi::{self, Queue},
};

/// Lets the client look in time.
pub(super) struct Heartbeat<'c> {
    /// How often, if it has to be made to.
    every: Option<Duration>,
    last: Instant,
    refusals: Queue<'c>,
}

// It looks so often in an interval: a heartbeat is late by a quarter at most, and
// a turn of the loop.
const LOOKS: u32 = 4;

impl<'c> Heartbeat<'c> {
    pub(super) fn new(settings: &Settings, consumer: &'c Consumer, now: Instant) -> Self {
        let every = match settings.protocol {
            GroupProtocol::Classic(session) => Some(session.heartbeat / LOOKS),
            GroupProtocol::Consumer(_) => None,
        };
        Self { every, last: now, refusals: Queue::new(consumer.client()) }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.every.is_some_and(|every| now.saturating_duration_since(self.last) >= every);
        if due {
            self.last = now;
        }
        due
    }
}

impl Client<'_> {
    /// Makes the client look whether a heartbeat is due. Once the queue is
    /// closed there is none.
    pub(super) fn look_for_heartbeat(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Closing(_)) || !self.heartbeat.is_due(now) {
            return;
        }
        while self.heartbeat.refusals.poll().is_some() {}
        ffi::commit(self.consumer, &TopicPartitionList::new(), &self.heartbeat.refusals);
    }
}
