//! The calls of the client that wait, made on a thread beside the driver's.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, Scope},
    time::Duration,
};

use rdkafka::{
    Offset,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tidegate_core::TopicPartition;

use crate::admin::{self, Answer, Facts, Failure};

/// A thread that asks what the client cannot be asked without waiting.
///
/// It ends when this is dropped, and a call that it is in.
#[derive(Debug)]
pub(super) struct Asker {
    questions: SyncSender<(u64, Inquiry)>,
    answers: Receiver<Answer>,
}

/// What is asked.
#[derive(Debug)]
pub(crate) enum Inquiry {
    /// What the group has committed, by way of the membership.
    ///
    /// The client's administrative request does not wait, and will not do. It
    /// keeps the handle of the broker that was the coordinator when it first
    /// asked. Once the client has replaced that handle, after the broker was
    /// missing in its list of brokers, such a request is never sent, and its
    /// time-out must not fire: that would end the process (librdkafka 2.12.1,
    /// `rd_kafka_coord_req_fsm` and `rd_kafka_admin_coord_request`).
    Committed(Vec<TopicPartition>),
    /// Who leads the partitions of some topics: the client is to learn it.
    ///
    /// Of itself it looks every few minutes. Until then a request to a leader
    /// that is gone waits for its return (librdkafka 2.12.1,
    /// `rd_kafka_topic_partition_list_get_leaders`: a broker in any state will
    /// do).
    Leaders(BTreeSet<Arc<str>>),
}

// How long a call waits for a broker, at most. It is repeated.
const PATIENCE: Duration = Duration::from_secs(2);

// Of look-ups that are over, questions may be left.
const BACKLOG: usize = 16;

impl Asker {
    /// Starts the thread. It wakes the one that calls this.
    pub(super) fn start<'scope, C: ConsumerContext + 'static>(
        scope: &'scope Scope<'scope, '_>,
        consumer: &'scope BaseConsumer<C>,
    ) -> std::io::Result<Self> {
        let (questions, asked) = sync_channel::<(u64, Inquiry)>(BACKLOG);
        let (answer, answers) = sync_channel(BACKLOG);
        let driver = thread::current();
        let work = move || {
            for (number, inquiry) in asked {
                let result = match inquiry {
                    Inquiry::Committed(partitions) => committed(consumer, &partitions),
                    Inquiry::Leaders(topics) => leaders(consumer, &topics),
                };
                let result = result.map_err(|error: KafkaError| Failure {
                    code: error.rdkafka_error_code().unwrap_or(Code::Fail),
                    reason: String::new(),
                });
                if answer.send(Answer { number, result }).is_err() {
                    return;
                }
                driver.unpark();
            }
        };
        thread::Builder::new().name("tidegate-kafka-ask".to_owned()).spawn_scoped(scope, work)?;
        Ok(Self { questions, answers })
    }

    /// Asks. Returns whether there was room for the question.
    pub(super) fn ask(&self, number: u64, inquiry: Inquiry) -> bool {
        self.questions.try_send((number, inquiry)).is_ok()
    }

    /// The next answer.
    pub(super) fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[TopicPartition],
) -> Result<Facts, KafkaError> {
    let list = admin::ffi::list(partitions.iter().map(|name| (name, Offset::Invalid)));
    let committed = consumer.committed_offsets(list, PATIENCE)?;
    Ok(Facts::Committed(admin::ffi::positions(&committed)))
}

fn leaders<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topics: &BTreeSet<Arc<str>>,
) -> Result<Facts, KafkaError> {
    for topic in topics {
        consumer.fetch_metadata(Some(topic), PATIENCE)?;
    }
    Ok(Facts::Leaders)
}
