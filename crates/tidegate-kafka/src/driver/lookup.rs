//! What the brokers know about partitions, asked without waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tidegate_core::{TopicId, TopicPartition};
use tokio::time::Instant;

use super::{aside::Inquiry, start::Known};
use crate::admin::{Answer, Facts, Failure, Position, Request, Spec};

/// What has to be known of a partition before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Question {
    /// What the group has committed.
    Committed,
    /// Where its log begins.
    Low,
    /// Where its log ends.
    High,
    /// The id of its topic.
    TopicIds,
    /// Who leads it now: what the client believes is from before.
    Leaders,
}

/// How a question is asked.
#[derive(Debug)]
pub(crate) enum Asked {
    /// By a call of the client that waits.
    Aside(Inquiry),
    /// By a request to the brokers.
    Brokers(Request),
}

/// A look-up of where partitions start.
///
/// It asks all its questions at once, repeats those that fail, for the
/// partitions that they fail for, and says which partitions are known.
///
/// Where a log begins and ends is asked of its leader, and the client takes the
/// one that it knows: of a leader that is gone, it waits for the return. So what
/// is not answered soon is asked again, once the client has learned who leads.
#[derive(Debug)]
pub(crate) struct Lookup {
    since: Instant,
    asks: BTreeMap<Question, Ask>,
    found: BTreeMap<TopicPartition, Found>,
    topic_ids: BTreeMap<Arc<str>, TopicId>,
    // When all was known but the ids of topics.
    without_ids: Option<Instant>,
    failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    /// To be sent, at that time.
    Due(Instant),
    /// Sent, with that number, at that time. Answers with other numbers are too
    /// late.
    Sent(u64, Instant),
    Done,
}

#[derive(Debug, Default)]
struct Found {
    committed: Option<Option<Position>>,
    low: Option<i64>,
    high: Option<i64>,
}

// A question that failed is asked again after this.
const AGAIN: Duration = Duration::from_millis(100);

// How long a leader may take to answer.
const LEADER: Duration = Duration::from_secs(1);

// How long all else waits for the ids of topics, which guard against a topic
// made anew and are not needed to start.
const FOR_IDS: Duration = Duration::from_millis(250);

impl Lookup {
    /// Begins to look up partitions, with the ids of their topics or without.
    pub(crate) fn new(
        partitions: impl IntoIterator<Item = TopicPartition>,
        with_ids: bool,
        now: Instant,
    ) -> Self {
        let questions = [Question::Committed, Question::Low, Question::High];
        let ids = with_ids.then_some(Question::TopicIds);
        Self {
            since: now,
            asks: questions.into_iter().chain(ids).map(|it| (it, Ask::Due(now))).collect(),
            found: partitions.into_iter().map(|it| (it, Found::default())).collect(),
            topic_ids: BTreeMap::new(),
            without_ids: None,
            failure: None,
        }
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn contains(&self, partition: &TopicPartition) -> bool {
        self.found.contains_key(partition)
    }

    /// Why something is not known yet, if the brokers said.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The next question to be sent, and what it is about. The caller tells the
    /// number that it sends it with by [`sent`](Self::sent).
    pub(crate) fn due(&mut self, now: Instant) -> Option<(Question, BTreeSet<&TopicPartition>)> {
        if self.of_leaders().any(|ask| ask.is_overdue(now)) {
            self.asks.entry(Question::Leaders).or_insert(Ask::Due(now));
        }
        let is_due = |ask: &Ask| matches!(ask, Ask::Due(at) if *at <= now);
        let (&question, _) = self.asks.iter().find(|(_, ask)| is_due(ask))?;
        let lacks = |(name, found): (&'_ TopicPartition, &Found)| match question {
            Question::Committed => found.committed.is_none(),
            Question::Low => found.low.is_none(),
            Question::High => found.high.is_none(),
            Question::TopicIds => !self.topic_ids.contains_key(&name.topic),
            Question::Leaders => found.low.is_none() || found.high.is_none(),
        };
        Some((question, self.found.iter().filter(|it| lacks(*it)).map(|(name, _)| name).collect()))
    }

    pub(crate) fn sent(&mut self, question: Question, number: u64, now: Instant) {
        self.asks.insert(question, Ask::Sent(number, now));
    }

    /// Takes an answer. Returns it if it belongs to another look-up.
    pub(crate) fn answered(&mut self, answer: Answer, now: Instant) -> Option<Answer> {
        let is_it = |ask: &Ask| matches!(ask, Ask::Sent(number, _) if *number == answer.number);
        let Some((&question, _)) = self.asks.iter().find(|(_, ask)| is_it(ask)) else {
            return Some(answer);
        };
        let failure = match answer.result {
            Ok(facts) => self.learn(question, facts),
            Err(failure) => Some(failure),
        };
        let done = failure.is_none();
        self.failure = failure.or_else(|| self.failure.take());
        if done && question == Question::Leaders {
            self.asks.remove(&question);
            let overdue = |ask: &&mut Ask| ask.is_overdue(now);
            self.of_leaders().filter(overdue).for_each(|ask| *ask = Ask::Due(now));
        } else {
            self.asks.insert(question, if done { Ask::Done } else { Ask::Due(now + AGAIN) });
        }
        None
    }

    /// Whether there is nothing to wait for any more.
    pub(crate) fn is_complete(&mut self, now: Instant) -> bool {
        let (mut positions, mut ids) = (true, true);
        for (question, ask) in &self.asks {
            let done = matches!(ask, Ask::Done);
            match question {
                Question::Committed | Question::Low | Question::High => positions &= done,
                Question::TopicIds => ids = done,
                Question::Leaders => {}
            }
        }
        if !positions {
            return false;
        }
        let since = *self.without_ids.get_or_insert(now);
        ids || now.saturating_duration_since(since) >= FOR_IDS
    }

    /// What is known: whole for some partitions, nothing yet for the others.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&TopicPartition, Option<Known>)> {
        self.found.iter().map(|(name, found)| {
            let topic_id = self.topic_ids.get(&name.topic).cloned();
            (name, found.known(topic_id))
        })
    }

    /// Learns what an answer says. Returns a failure if it lacks something.
    fn learn(&mut self, question: Question, facts: Facts) -> Option<Failure> {
        let mut failure = None;
        let mut missing = |it: Failure| failure = Some(it);
        match facts {
            Facts::Committed(committed) => {
                for (name, position) in committed {
                    let Some(found) = self.found.get_mut(&name) else { continue };
                    match position {
                        Ok(position) => found.committed = Some(position),
                        Err(error) => missing(error),
                    }
                }
            }
            Facts::Offsets(offsets) => {
                for (name, offset) in offsets {
                    let Some(found) = self.found.get_mut(&name) else { continue };
                    let end =
                        if question == Question::Low { &mut found.low } else { &mut found.high };
                    match offset {
                        Ok(offset) => *end = Some(offset),
                        Err(error) => missing(error),
                    }
                }
            }
            Facts::Topics(topics) => {
                for (name, topic) in topics {
                    match topic {
                        Ok(topic) => drop(self.topic_ids.insert(name, topic.id)),
                        Err(error) => missing(error),
                    }
                }
            }
            Facts::Leaders | Facts::Group(_) | Facts::Config(_) | Facts::Altered(_) => {}
        }
        failure
    }

    /// The questions that go to leaders.
    fn of_leaders(&mut self) -> impl Iterator<Item = &mut Ask> {
        let is_one = |it: &Question| matches!(it, Question::Low | Question::High);
        self.asks.iter_mut().filter(move |(it, _)| is_one(it)).map(|(_, ask)| ask)
    }
}

impl Ask {
    fn is_overdue(&self, now: Instant) -> bool {
        matches!(self, Self::Sent(_, at) if now.saturating_duration_since(*at) >= LEADER)
    }
}

impl Question {
    /// How it is asked about partitions.
    pub(crate) fn about<'a>(self, partitions: impl Iterator<Item = &'a TopicPartition>) -> Asked {
        use Asked::{Aside, Brokers};
        use Inquiry::{Committed, Leaders};
        use Request::{Offsets, Topics};

        let spec = |spec| move |it: &TopicPartition| (it.clone(), spec);
        let topic = |it: &TopicPartition| it.topic.clone();
        match self {
            Self::Committed => Aside(Committed(partitions.cloned().collect())),
            Self::Low => Brokers(Offsets(partitions.map(spec(Spec::Low)).collect())),
            Self::High => Brokers(Offsets(partitions.map(spec(Spec::High)).collect())),
            Self::TopicIds => Brokers(Topics(partitions.map(topic).collect())),
            Self::Leaders => Aside(Leaders(partitions.map(topic).collect())),
        }
    }
}

impl Found {
    fn known(&self, topic_id: Option<TopicId>) -> Option<Known> {
        let Self { committed, low, high } = self;
        Some(Known { committed: committed.clone()?, low: (*low)?, high: (*high)?, topic_id })
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::error::RDKafkaErrorCode as Code;

    use super::{
        AGAIN, Answer, BTreeMap, FOR_IDS, Facts, Failure, Instant, LEADER, Lookup, Position,
        Question, TopicId, TopicPartition,
    };
    use crate::admin::Topic;

    fn name(partition: i32) -> TopicPartition {
        TopicPartition::new("t", partition)
    }

    fn failure() -> Failure {
        Failure { code: Code::UnstableOffsetCommit, reason: String::new() }
    }

    fn committed(of: &[(i32, Result<Option<i64>, Failure>)]) -> Facts {
        let position = |offset| Position { offset, metadata: String::new() };
        let of = of.iter().cloned();
        Facts::Committed(of.map(|(it, at)| (name(it), at.map(|at| at.map(position)))).collect())
    }

    fn offsets(of: &[(i32, i64)]) -> Facts {
        Facts::Offsets(of.iter().map(|&(it, at)| (name(it), Ok(at))).collect())
    }

    fn ids() -> Facts {
        let topic = Topic { id: TopicId::new("id"), partitions: vec![0, 1] };
        Facts::Topics(BTreeMap::from([("t".into(), Ok(topic))]))
    }

    /// Sends all that is due, numbered from `first`, in the order of questions.
    fn send(lookup: &mut Lookup, now: Instant, first: u64) -> Vec<(Question, Vec<i32>)> {
        let mut sent = Vec::new();
        for number in first.. {
            let Some((question, about)) = lookup.due(now) else { break };
            sent.push((question, about.iter().map(|it| it.partition).collect()));
            lookup.sent(question, number, now);
        }
        sent
    }

    fn answer(lookup: &mut Lookup, number: u64, facts: Facts, now: Instant) {
        assert!(lookup.answered(Answer { number, result: Ok(facts) }, now).is_none());
    }

    #[test]
    fn all_questions_go_out_at_once_and_are_needed() {
        let now = Instant::now();
        let mut lookup = Lookup::new([name(0), name(1)], true, now);
        let all = |question| (question, vec![0, 1]);
        use Question::{Committed, High, Low, TopicIds};
        assert_eq!(send(&mut lookup, now, 1), [Committed, Low, High, TopicIds].map(all));
        answer(&mut lookup, 1, committed(&[(0, Ok(Some(5))), (1, Ok(None))]), now);
        answer(&mut lookup, 2, offsets(&[(0, 0), (1, 2)]), now);
        answer(&mut lookup, 4, ids(), now);
        assert!(!lookup.is_complete(now));
        answer(&mut lookup, 3, offsets(&[(0, 9), (1, 9)]), now);
        assert!(lookup.is_complete(now));
        let known: Vec<_> = lookup.known().map(|(_, known)| known.unwrap()).collect();
        assert_eq!((known[0].low, known[0].high, known[1].low), (0, 9, 2));
        assert_eq!(known[0].committed.as_ref().unwrap().offset, 5);
        assert_eq!(known[1].committed, None);
        assert_eq!(known[1].topic_id, Some(TopicId::new("id")));
    }

    #[test]
    fn what_fails_is_asked_again_for_the_partitions_that_lack_it() {
        let now = Instant::now();
        let mut lookup = Lookup::new([name(0), name(1)], false, now);
        send(&mut lookup, now, 1);
        answer(&mut lookup, 1, committed(&[(0, Ok(Some(5))), (1, Err(failure()))]), now);
        answer(&mut lookup, 2, offsets(&[(0, 0), (1, 0)]), now);
        answer(&mut lookup, 3, offsets(&[(0, 9), (1, 9)]), now);
        assert!(!lookup.is_complete(now));
        assert_eq!(lookup.failure(), Some(&failure()));
        let known: Vec<_> = lookup.known().map(|(_, known)| known.is_some()).collect();
        assert_eq!(known, [true, false]);
        assert_eq!(send(&mut lookup, now, 4), []);
        assert_eq!(send(&mut lookup, now + AGAIN, 4), [(Question::Committed, vec![1])]);
        answer(&mut lookup, 4, committed(&[(1, Ok(Some(6)))]), now);
        assert!(lookup.is_complete(now));
    }

    #[test]
    fn a_whole_request_that_fails_is_asked_again() {
        let now = Instant::now();
        let mut lookup = Lookup::new([name(0)], false, now);
        send(&mut lookup, now, 1);
        assert!(lookup.answered(Answer { number: 1, result: Err(failure()) }, now).is_none());
        assert_eq!(send(&mut lookup, now + AGAIN, 4), [(Question::Committed, vec![0])]);
    }

    // The node that led a partition is gone, and the client does not know.
    #[test]
    fn a_leader_that_does_not_answer_is_looked_for_and_asked_again() {
        let start = Instant::now();
        let mut lookup = Lookup::new([name(0), name(1)], false, start);
        send(&mut lookup, start, 1);
        answer(&mut lookup, 1, committed(&[(0, Ok(Some(5))), (1, Ok(Some(5)))]), start);
        answer(&mut lookup, 2, offsets(&[(0, 0), (1, 0)]), start);
        let now = start + LEADER;
        assert_eq!(send(&mut lookup, now, 4), [(Question::Leaders, vec![0, 1])]);
        assert_eq!(send(&mut lookup, now + LEADER, 5), [], "it is looked for once at a time");
        answer(&mut lookup, 4, Facts::Leaders, now);
        assert_eq!(send(&mut lookup, now, 5), [(Question::High, vec![0, 1])]);
        answer(&mut lookup, 5, offsets(&[(0, 9), (1, 9)]), now);
        assert!(lookup.is_complete(now));
    }

    #[test]
    fn answers_with_other_numbers_are_not_taken() {
        let now = Instant::now();
        let mut lookup = Lookup::new([name(0)], false, now);
        send(&mut lookup, now, 7);
        let late = Answer { number: 1, result: Ok(offsets(&[(0, 3)])) };
        assert_eq!(lookup.answered(late, now).map(|it| it.number), Some(1));
    }

    #[test]
    fn ids_are_waited_for_a_little_and_needed_for_nothing() {
        let now = Instant::now();
        let mut lookup = Lookup::new([name(0)], true, now);
        send(&mut lookup, now, 1);
        answer(&mut lookup, 1, committed(&[(0, Ok(Some(5)))]), now);
        answer(&mut lookup, 2, offsets(&[(0, 0)]), now);
        answer(&mut lookup, 3, offsets(&[(0, 9)]), now);
        assert!(!lookup.is_complete(now));
        assert!(lookup.is_complete(now + FOR_IDS));
        let (_, known) = lookup.known().next().unwrap();
        assert_eq!(known.unwrap().topic_id, None);
    }
}
