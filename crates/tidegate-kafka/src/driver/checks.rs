//! Looks around from time to time, at what no event tells a member.

use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use tidegate_core::TopicPartition;
use tokio::time::Instant;

use super::{Client, Phase, PositionError};
use crate::admin::{self, Answer, Facts, Request};

/// The looks that are under way, and when the last ones were.
#[derive(Debug)]
pub(super) struct Checks {
    topics: Check,
    group: Check,
}

#[derive(Debug)]
struct Check {
    /// The number of the question, until it is answered.
    asked: Option<u64>,
    last: Instant,
}

// How often the group is looked at: a partition that no member has can be seen
// by none of them, and a member without partitions says nothing.
const GROUP: Duration = Duration::from_secs(30);

impl Checks {
    pub(super) fn new(now: Instant) -> Self {
        let check = || Check { asked: None, last: now };
        Self { topics: check(), group: check() }
    }
}

impl Check {
    fn is_due(&self, every: Duration, now: Instant) -> bool {
        self.asked.is_none() && now.saturating_duration_since(self.last) >= every
    }

    fn ask(&mut self, number: u64, now: Instant) {
        *self = Self { asked: Some(number), last: now };
    }

    fn answered(&mut self, number: u64) -> bool {
        let mine = self.asked == Some(number);
        if mine {
            self.asked = None;
        }
        mine
    }
}

impl Client<'_> {
    pub(super) fn check_around(&mut self, now: Instant) {
        if self.phase != Phase::Serving || self.partitions.is_empty() {
            return;
        }
        let every = self.driver.settings.topic_check;
        if every.is_some_and(|every| self.checks.topics.is_due(every, now)) {
            let topics = self.partitions.keys().map(|name| name.topic.clone()).collect();
            let number = self.ask(&Request::Topics(topics));
            self.checks.topics.ask(number, now);
        }
        if self.checks.group.is_due(GROUP, now) {
            let number = self.ask(&Request::Describe { group: self.driver.settings.group.clone() });
            self.checks.group.ask(number, now);
        }
    }

    fn ask(&mut self, request: &Request) -> u64 {
        self.questions += 1;
        admin::ffi::ask(self.consumer.client(), &self.answers, self.questions, request);
        self.questions
    }

    /// Takes an answer that belongs to no look-up.
    pub(super) fn take_check(&mut self, answer: Answer, now: Instant) {
        let Answer { number, result } = answer;
        if !self.checks.topics.answered(number) && !self.checks.group.answered(number) {
            tracing::debug!(number, "an answer came too late");
            return;
        }
        match result {
            Ok(Facts::Topics(topics)) => {
                for (name, topic) in topics {
                    let known = self.driver.topic_ids.get(&name);
                    if let (Ok(topic), Some(known)) = (topic, known)
                        && topic.id != *known
                    {
                        let refusal = PositionError::MadeAnew { was: known.clone(), now: topic.id };
                        self.disown(&name, &refusal, now);
                    }
                }
            }
            Ok(Facts::Group(group)) => self.driver.metrics.idle_members(group.idle_members()),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a look around was not answered"),
        }
    }

    /// A topic was deleted and made anew under its running partitions, of which
    /// a classic member is not told. Their positions are of the old one.
    fn disown(&mut self, topic: &str, refusal: &PositionError, now: Instant) {
        let of_topic = |name: &&TopicPartition| *name.topic == *topic;
        let names: Vec<_> = self.partitions.keys().filter(of_topic).cloned().collect();
        for name in names {
            if let Some(partition) = self.partitions.get_mut(&name) {
                partition.disowned = true;
            }
            self.stop_partition(&name, refusal.clone().into(), now);
        }
    }
}
