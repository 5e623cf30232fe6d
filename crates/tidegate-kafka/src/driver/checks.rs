//! Looks around from time to time, at what no event tells a member.

use std::{sync::Arc, time::Duration};

use rdkafka::consumer::Consumer as _;
use tidegate_core::TopicPartition;
use tokio::time::Instant;

use super::{Client, Phase, PositionError, Stage, agreement::Agreement, rebalance::list_of};
use crate::{
    admin::{self, Answer, Facts, Request},
    group::{GroupDescription, GroupType},
};

/// The looks that are under way, and when the last ones were.
#[derive(Debug)]
pub(super) struct Checks {
    topics: Check,
    group: Check,
    /// Our id in the group, since the first assignment.
    member: Option<Arc<str>>,
    agreement: Agreement,
    /// The requests that the client had given up when the group was last looked at.
    timeouts: u64,
}

#[derive(Debug)]
struct Check {
    /// The number of the question, until it is answered.
    asked: Option<u64>,
    last: Instant,
}

// How often the group is looked at, as a multiple of the time after which a
// silent partition is: a member without partitions says nothing, and none of
// them sees by itself what the client has missed.
const GROUP: u32 = 3;

impl Checks {
    pub(super) fn new(now: Instant) -> Self {
        let check = || Check { asked: None, last: now };
        let agreement = Agreement::default();
        Self { topics: check(), group: check(), member: None, agreement, timeouts: 0 }
    }

    /// Partitions are about to move, for the member of this id.
    pub(super) fn moving(&mut self, member: Option<&Arc<str>>) {
        self.agreement.forget();
        if let Some(member) = member {
            self.member = Some(Arc::clone(member));
        }
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
        if self.phase != Phase::Serving {
            return;
        }
        let every = self.driver.settings.topic_check.filter(|_| !self.partitions.is_empty());
        if every.is_some_and(|every| self.checks.topics.is_due(every, now)) {
            let topics = self.partitions.keys().map(|name| name.topic.clone()).collect();
            let number = self.ask(&Request::Topics(topics));
            self.checks.topics.ask(number, now);
        }
        if self.is_look_due(now) {
            self.checks.timeouts = self.consumer.context().timeouts();
            let number = self.ask(&Request::Describe { group: self.driver.settings.group.clone() });
            self.checks.group.ask(number, now);
        }
    }

    /// Whether the group is to be looked at: a member without partitions, too,
    /// which may have missed that it was given some.
    fn is_look_due(&self, now: Instant) -> bool {
        let Checks { group, member, agreement, timeouts, .. } = &self.checks;
        let after = self.driver.settings.stall_after;
        // What the client has missed was in the answer to a request that it has
        // given up.
        member.is_some()
            && group.is_due(after, now)
            && (group.is_due(after.saturating_mul(GROUP), now)
                || agreement.is_doubted()
                || self.consumer.context().timeouts() != *timeouts)
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
            Ok(Facts::Group(group)) => {
                self.driver.metrics.idle_members(group.idle_members());
                self.compare(&group);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a look around was not answered"),
        }
    }

    /// Compares what the broker has given us with what the client has told us.
    fn compare(&mut self, group: &GroupDescription) {
        let is_me = |id: &str| self.checks.member.as_deref() == Some(id);
        let me = group.members.iter().find(|member| is_me(&member.id));
        // What is on its way to us, or lost by us already, is no difference.
        let settled = self.phase == Phase::Serving
            && self.assigning.is_none()
            && self.draining.is_none()
            && !self.membership.expects_loss();
        // In the classic protocols a member cannot miss it.
        let Some(me) = me.filter(|_| settled && group.protocol == GroupType::Consumer) else {
            self.checks.agreement.forget();
            return;
        };
        let held = self.partitions.keys().cloned().collect();
        let (after, asked) = (self.driver.settings.stall_after, self.checks.group.last);
        if self.checks.agreement.is_broken(&me.assignment, held, after, asked) {
            self.rebuild.get_or_insert_with(|| {
                "the client has missed which partitions the broker gave it".to_owned()
            });
        } else if self.checks.agreement.is_doubted() {
            tracing::debug!(
                given = %list_of(&me.assignment),
                held = %list_of(self.partitions.keys()),
                "the broker has given us other partitions than the client says",
            );
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
                // No proof will come for it: it is looked up where it starts.
                if matches!(partition.stage, Stage::Suspended { .. }) {
                    partition.stage = Stage::Unresolved;
                }
            }
            self.stop_partition(&name, refusal.clone().into(), now);
        }
    }
}
