//! What the group has committed, asked by way of the membership.

use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, Scope},
    time::Duration,
};

use rdkafka::{
    Offset,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::RDKafkaErrorCode as Code,
};
use tidegate_core::TopicPartition;

use crate::admin::{self, Answer, Facts, Failure};

/// A thread that asks, since the client has no such call that does not wait.
///
/// The client's administrative request does not wait, and will not do. It keeps
/// the handle of the broker that was the coordinator when it first asked. Once
/// the client has replaced that handle, after the broker was missing in its list
/// of brokers, such a request is never sent, and its time-out must not fire:
/// that would end the process (librdkafka 2.12.1, `rd_kafka_coord_req_fsm` and
/// `rd_kafka_admin_coord_request`).
///
/// It ends when this is dropped, and a call that it is in.
#[derive(Debug)]
pub(super) struct Asker {
    questions: SyncSender<(u64, Vec<TopicPartition>)>,
    answers: Receiver<Answer>,
}

// How long a call waits for the coordinator, at most. It is repeated.
const PATIENCE: Duration = Duration::from_secs(2);

// Of look-ups that are over, questions may be left.
const BACKLOG: usize = 16;

impl Asker {
    /// Starts the thread. It wakes the one that calls this.
    pub(super) fn start<'scope, C: ConsumerContext + 'static>(
        scope: &'scope Scope<'scope, '_>,
        consumer: &'scope BaseConsumer<C>,
    ) -> std::io::Result<Self> {
        let (questions, asked) = sync_channel::<(u64, Vec<TopicPartition>)>(BACKLOG);
        let (answer, answers) = sync_channel(BACKLOG);
        let driver = thread::current();
        let work = move || {
            for (number, partitions) in asked {
                let result = committed(consumer, &partitions);
                if answer.send(Answer { number, result }).is_err() {
                    return;
                }
                driver.unpark();
            }
        };
        thread::Builder::new().name("tidegate-kafka-ask".to_owned()).spawn_scoped(scope, work)?;
        Ok(Self { questions, answers })
    }

    /// Asks about partitions. Returns whether there was room for the question.
    pub(super) fn ask(&self, number: u64, partitions: Vec<TopicPartition>) -> bool {
        self.questions.try_send((number, partitions)).is_ok()
    }

    /// The next answer.
    pub(super) fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[TopicPartition],
) -> Result<Facts, Failure> {
    let list = admin::ffi::list(partitions.iter().map(|name| (name, Offset::Invalid)));
    let committed = consumer.committed_offsets(list, PATIENCE).map_err(|error| Failure {
        code: error.rdkafka_error_code().unwrap_or(Code::Fail),
        reason: String::new(),
    })?;
    Ok(Facts::Committed(admin::ffi::positions(&committed)))
}
