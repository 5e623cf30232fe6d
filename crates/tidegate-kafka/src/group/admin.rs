use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use rdkafka::{
    consumer::{BaseConsumer, Consumer as _},
    error::RDKafkaErrorCode as Code,
};
use tidegate_core::TopicPartition;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{GroupDescription, Move, Plan, ResetTo, plan::Log};
use crate::{
    ConfigError, KafkaConfig,
    admin::{self, Answer, Facts, Failure, Position, Request, Spec, Topic},
    driver::metadata,
    ffi::Queue,
};

/// Looks at a group, and sets its offsets: what `kafka-consumer-groups` does.
///
/// Offsets can be set only while the group has no members.
#[derive(Clone)]
pub struct GroupAdmin {
    client: Arc<BaseConsumer>,
    group: String,
}

/// What a group has committed for a partition, and where its log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The committed offset; `None` is nothing.
    pub offset: Option<i64>,
    /// Where the log begins.
    pub low: i64,
    /// Where the log ends.
    pub high: i64,
}

/// A group could not be looked at, or its offsets not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group has members, which would go on from where they are.
    #[error("the group `{group}` has {members} members: stop them first, its offsets are theirs")]
    #[non_exhaustive]
    Active {
        /// The group.
        group: String,
        /// How many there are.
        members: usize,
    },
    /// An offset is not in the log, or there is none to move from.
    #[error(
        "{partition} cannot be set to {to:?}: its log is {low}..{high}, committed is {committed:?}"
    )]
    #[non_exhaustive]
    NoSuchOffset {
        /// The partition.
        partition: TopicPartition,
        /// Where it was to be set.
        to: ResetTo,
        /// Where its log begins.
        low: i64,
        /// Where its log ends.
        high: i64,
        /// What the group has committed.
        committed: Option<i64>,
    },
    /// The group's offsets are not what the plan says they are.
    #[error(
        "{partition} has {found:?} committed, and not {planned:?} as the plan says: make a new one"
    )]
    #[non_exhaustive]
    Outdated {
        /// The partition.
        partition: TopicPartition,
        /// What the plan says.
        planned: Option<i64>,
        /// What is there.
        found: Option<i64>,
    },
    /// The brokers refused, for one partition or for all.
    #[error("the brokers refused{}: {code}{}", place(.partition.as_ref()), detail(.reason))]
    #[non_exhaustive]
    Refused {
        /// The partition, if it is about one.
        partition: Option<TopicPartition>,
        /// The error's code.
        code: Code,
        /// What the client says about it.
        reason: String,
    },
    /// No answer came in time: it is not known what was done.
    #[error("the brokers did not answer within {0:?}")]
    TimedOut(Duration),
}

const DEADLINE: Duration = Duration::from_secs(30);

// Between two tries while the coordinator is not ready.
const AGAIN: Duration = Duration::from_millis(100);

// ===== impl GroupAdmin =====

impl GroupAdmin {
    /// Creates a client for the group of `config`, with its connection.
    ///
    /// # Errors
    ///
    /// When the client refuses the configuration.
    pub fn new(config: &KafkaConfig) -> Result<Self, ConfigError> {
        // A consumer, which never joins: asked for committed offsets, any other
        // client of librdkafka 2.12.1 dies of the answer that the coordinator has
        // moved (`rd_kafka_handle_OffsetFetch` looks for one by way of the
        // consumer's group).
        let client = config
            .plain_client()
            .set("group.id", config.group())
            .set("enable.auto.commit", "false")
            .create()
            .map_err(|error| ConfigError::Refused { reason: error.to_string() })?;
        Ok(Self { client: Arc::new(client), group: config.group().to_owned() })
    }

    /// Says how the group stands.
    ///
    /// # Errors
    ///
    /// When the coordinator does not say.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn describe(&self) -> Result<GroupDescription, GroupError> {
        match self.request(Request::Describe { group: self.group.clone() }).await? {
            Facts::Group(group) => Ok(group),
            _ => Err(unexpected()),
        }
    }

    /// Says what the group has committed, for all partitions for which it has.
    ///
    /// # Errors
    ///
    /// When the brokers do not say.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn offsets(&self) -> Result<BTreeMap<TopicPartition, Committed>, GroupError> {
        let committed = self.committed(None).await?;
        let names: Vec<_> = committed.keys().cloned().collect();
        let (low, high) = (self.log(&names, Spec::Low).await?, self.log(&names, Spec::High).await?);
        let of = |(name, offset): (TopicPartition, Option<i64>)| {
            let it = Committed { offset, low: low[&name], high: high[&name] };
            (name, it)
        };
        Ok(committed.into_iter().map(of).collect())
    }

    /// Plans to set the group's offsets, for all partitions of some topics.
    /// Nothing is done: a dry run.
    ///
    /// # Errors
    ///
    /// When an offset is not in its log, or the brokers do not say.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn plan<T: Into<Arc<str>>>(
        &self,
        topics: impl IntoIterator<Item = T>,
        to: ResetTo,
    ) -> Result<Plan, GroupError> {
        let topics = self.topics(topics.into_iter().map(Into::into).collect()).await?;
        let names = |(name, topic): (&Arc<str>, &Topic)| {
            let name = Arc::clone(name);
            let partitions = topic.partitions.clone().into_iter();
            partitions.map(move |it| TopicPartition::new(Arc::clone(&name), it))
        };
        let names: Vec<_> = topics.iter().flat_map(names).collect();
        let committed = self.committed(Some(names.clone())).await?;
        let low = self.log(&names, Spec::Low).await?;
        let high = self.log(&names, Spec::High).await?;
        let at = match to {
            ResetTo::Time(time) => self.log(&names, Spec::At(time)).await?,
            _ => BTreeMap::new(),
        };
        let mut moves = Vec::with_capacity(names.len());
        for name in names {
            let from = committed.get(&name).copied().flatten();
            let (low, high) = (low[&name], high[&name]);
            let log = Log { low, high, at: at.get(&name).copied().unwrap_or(-1) };
            let Some(offset) = to.within(log, from) else {
                return Err(GroupError::NoSuchOffset {
                    partition: name,
                    to,
                    low,
                    high,
                    committed: from,
                });
            };
            moves.push(Move {
                topic: name.topic.to_string(),
                partition: name.partition,
                from,
                to: Some(offset),
                topic_id: Some(topics[&name.topic].id.to_string()),
            });
        }
        Ok(Plan { group: self.group.clone(), moves })
    }

    /// Executes a plan.
    ///
    /// # Errors
    ///
    /// When the group has members, when its offsets are not what the plan says
    /// they are, or when the brokers refuse.
    ///
    /// # Cancel safety
    ///
    /// Once it was sent it goes on, also when this is dropped.
    pub async fn execute(&self, plan: &Plan) -> Result<(), GroupError> {
        self.check_idle().await?;
        let names: Vec<_> = plan.moves.iter().map(Move::name).collect();
        let committed = self.committed(Some(names)).await?;
        for it in &plan.moves {
            let found = committed.get(&it.name()).copied().flatten();
            if found != it.from {
                let (partition, planned) = (it.name(), it.from);
                return Err(GroupError::Outdated { partition, planned, found });
            }
        }
        let group = || self.group.clone();
        let offsets: Vec<_> = plan.moves.iter().filter_map(position).collect();
        if !offsets.is_empty() {
            self.alter(Request::Alter { group: group(), offsets }).await?;
        }
        let forgotten = plan.moves.iter().filter(|it| it.to.is_none());
        let partitions: Vec<_> = forgotten.map(Move::name).collect();
        if !partitions.is_empty() {
            self.alter(Request::Forget { group: group(), partitions }).await?;
        }
        Ok(())
    }

    async fn check_idle(&self) -> Result<(), GroupError> {
        match self.describe().await?.members.len() {
            0 => Ok(()),
            members => Err(GroupError::Active { group: self.group.clone(), members }),
        }
    }

    async fn alter(&self, request: Request) -> Result<(), GroupError> {
        let Facts::Altered(altered) = self.request(request).await? else {
            return Err(unexpected());
        };
        for (name, result) in altered {
            match result {
                // A member has joined since the group was looked at.
                Err(failure) if failure.code == Code::UnknownMemberId => {
                    self.check_idle().await?;
                    return Err(refused(Some(name), failure));
                }
                Err(failure) => return Err(refused(Some(name), failure)),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    async fn committed(
        &self,
        partitions: Option<Vec<TopicPartition>>,
    ) -> Result<BTreeMap<TopicPartition, Option<i64>>, GroupError> {
        let request = Request::Committed { group: self.group.clone(), partitions };
        let Facts::Committed(committed) = self.request(request).await? else {
            return Err(unexpected());
        };
        each(committed, |position| position.map(|it| it.offset))
    }

    async fn log(
        &self,
        names: &[TopicPartition],
        spec: Spec,
    ) -> Result<BTreeMap<TopicPartition, i64>, GroupError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let asked = names.iter().map(|name| (name.clone(), spec)).collect();
        let Facts::Offsets(offsets) = self.request(Request::Offsets(asked)).await? else {
            return Err(unexpected());
        };
        each(offsets, |offset| offset)
    }

    async fn topics(
        &self,
        names: BTreeSet<Arc<str>>,
    ) -> Result<BTreeMap<Arc<str>, Topic>, GroupError> {
        let Facts::Topics(topics) = self.request(Request::Topics(names)).await? else {
            return Err(unexpected());
        };
        let topic = |(name, topic): (Arc<str>, Result<Topic, Failure>)| match topic {
            Ok(topic) => Ok((name, topic)),
            Err(failure) => {
                let Failure { code, reason } = failure;
                Err(refused(None, Failure { code, reason: format!("{name} {reason}") }))
            }
        };
        topics.into_iter().map(topic).collect()
    }

    /// Sends a request, and waits for its answer. A coordinator that is not ready
    /// yet is asked again.
    async fn request(&self, request: Request) -> Result<Facts, GroupError> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.ask(request.clone(), deadline).await?.result {
                Ok(facts) => return Ok(facts),
                Err(Failure { code, .. }) if is_moving(code) && Instant::now() < deadline => {
                    sleep(AGAIN).await;
                }
                Err(failure) => return Err(refused(None, failure)),
            }
        }
    }

    async fn ask(&self, request: Request, deadline: Instant) -> Result<Answer, GroupError> {
        let client = Arc::clone(&self.client);
        let answer = spawn_blocking(move || {
            let client = client.client();
            let answers = Queue::new(client);
            admin::ffi::ask(client, &answers, 0, &request);
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if let Some(answer) = admin::ffi::answer_within(&answers, left) {
                    return Some(answer);
                }
                if left.is_zero() {
                    return None;
                }
            }
        });
        answer.await.ok().flatten().ok_or(GroupError::TimedOut(DEADLINE))
    }
}

/// Whether the group's coordinator is being found, or takes its groups over. It
/// has done nothing then.
fn is_moving(code: Code) -> bool {
    matches!(
        code,
        Code::CoordinatorLoadInProgress | Code::CoordinatorNotAvailable | Code::NotCoordinator
    )
}

impl fmt::Debug for GroupAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupAdmin").field("group", &self.group).finish_non_exhaustive()
    }
}

fn position(it: &Move) -> Option<(TopicPartition, Position)> {
    let metadata = it.topic_id.as_deref().map(metadata).unwrap_or_default();
    Some((it.name(), Position { offset: it.to?, metadata }))
}

fn each<T, U>(
    of: BTreeMap<TopicPartition, Result<T, Failure>>,
    value: impl Fn(T) -> U,
) -> Result<BTreeMap<TopicPartition, U>, GroupError> {
    of.into_iter()
        .map(|(name, result)| match result {
            Ok(it) => Ok((name, value(it))),
            Err(failure) => Err(refused(Some(name), failure)),
        })
        .collect()
}

fn refused(partition: Option<TopicPartition>, failure: Failure) -> GroupError {
    GroupError::Refused { partition, code: failure.code, reason: failure.reason }
}

fn unexpected() -> GroupError {
    let reason = "an answer to no question".to_owned();
    GroupError::Refused { partition: None, code: Code::Fail, reason }
}

fn place(partition: Option<&TopicPartition>) -> String {
    partition.map(|partition| format!(" for {partition}")).unwrap_or_default()
}

fn detail(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
