use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rdkafka::{
    consumer::{BaseConsumer, Consumer as _},
    topic_partition_list::{Offset, TopicPartitionList},
};

use super::{Kafka, KafkaFailure, list, run};
use crate::{Committed, Partition};

/// A thread that looks at a group's committed offsets again and again.
///
/// It notes what has changed. Offsets that go back and forth between two looks
/// are not seen.
///
/// Before the offsets are set back on purpose, stop it, and start another one
/// [in the next era](Self::in_era).
pub struct GroupWatch {
    shared: Arc<Shared>,
    // Dropped with this, it ends the thread as well.
    stop: SyncSender<()>,
    thread: Option<JoinHandle<Result<(), KafkaFailure>>>,
    era: u32,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    changes: Vec<Committed>,
    last: BTreeMap<Partition, Option<i64>>,
}

/// A group, asked by a consumer that never subscribes.
struct Group {
    consumer: BaseConsumer,
    name: String,
    partitions: Vec<Partition>,
    deadline: Duration,
}

pub(super) fn once(
    kafka: &Kafka,
    group: &str,
    topics: &[Arc<str>],
) -> Result<Vec<Committed>, KafkaFailure> {
    Group::new(kafka, group.to_owned(), topics)?.committed()
}

// ===== impl GroupWatch =====

impl GroupWatch {
    pub(super) fn start(
        kafka: &Kafka,
        group: String,
        topics: &[Arc<str>],
        every: Duration,
    ) -> Result<Self, KafkaFailure> {
        let group = Group::new(kafka, group, topics)?;
        let shared = Arc::<Shared>::default();
        let (stop, stopped) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("tidegate-oracle".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || loop {
                let last = stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
                match group.committed() {
                    Ok(seen) => shared.note(seen),
                    // An outage is no finding; that the end is unknown is.
                    Err(error) if last => return Err(error),
                    Err(_) => {}
                }
                if last {
                    return Ok(());
                }
            }
        });
        let thread = Some(thread.map_err(|_| KafkaFailure::Ended)?);
        Ok(Self { shared, stop, thread, era: 0 })
    }

    /// Says how often the offsets were set back on purpose before this watch.
    #[must_use]
    pub fn in_era(self, era: u32) -> Self {
        Self { era, ..self }
    }

    /// The offsets that were seen last, of the partitions that have one.
    #[must_use]
    pub fn latest(&self) -> BTreeMap<Partition, i64> {
        let seen = self.shared.lock();
        let known =
            seen.last.iter().filter_map(|(partition, offset)| Some((partition, (*offset)?)));
        known.map(|(partition, offset)| (partition.clone(), offset)).collect()
    }

    /// Looks a last time, and ends.
    ///
    /// # Errors
    ///
    /// When that last look fails.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// What was seen is lost if this is dropped.
    pub async fn stop(mut self) -> Result<Vec<Committed>, KafkaFailure> {
        let thread = self.thread.take();
        // It is full if it was told before, which is as well.
        let _ = self.stop.try_send(());
        run(move || {
            let ended = thread.ok_or(KafkaFailure::Ended)?.join();
            ended.map_err(|_| KafkaFailure::Ended)?
        })
        .await?;
        let mut seen = std::mem::take(&mut self.shared.lock().changes);
        for committed in &mut seen {
            committed.era = self.era;
        }
        Ok(seen)
    }
}

impl fmt::Debug for GroupWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWatch").field("era", &self.era).finish_non_exhaustive()
    }
}

// ===== impl Shared =====

impl Shared {
    fn note(&self, looked: Vec<Committed>) {
        let mut seen = self.lock();
        for committed in looked {
            let before = seen.last.insert(committed.partition.clone(), committed.offset);
            if before != Some(committed.offset) {
                seen.changes.push(committed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// ===== impl Group =====

impl Group {
    fn new(kafka: &Kafka, name: String, topics: &[Arc<str>]) -> Result<Self, KafkaFailure> {
        let consumer = kafka.consumer(&name, &[])?;
        let partitions = kafka.partitions(&consumer, topics)?;
        Ok(Self { consumer, name, partitions, deadline: kafka.deadline })
    }

    fn committed(&self) -> Result<Vec<Committed>, KafkaFailure> {
        let partitions = self.partitions.iter().cloned();
        let asked = list(partitions.map(|partition| (partition, Offset::Invalid)));
        let answered = self.consumer.committed_offsets(asked, self.deadline);
        let answered = answered
            .and_then(|list| list.elements().iter().try_for_each(|it| it.error()).map(|()| list));
        match answered {
            Ok(answered) => Ok(of(&answered)),
            Err(source) => Err(KafkaFailure::Committed { group: self.name.clone(), source }),
        }
    }
}

fn of(answered: &TopicPartitionList) -> Vec<Committed> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    let committed = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        let partition = Partition::new(element.topic(), element.partition());
        let offset = match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        Committed { partition, offset, at, era: 0 }
    };
    answered.elements().iter().map(committed).collect()
}
