use std::{collections::HashSet, sync::Arc};

use rdkafka::{
    Message as _,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
    topic_partition_list::Offset,
};
use tokio::time::Instant;

use super::{Kafka, KafkaFailure, NO_GROUP, list};
use crate::{Bounds, Partition, RawRecord};

type Read = (Vec<RawRecord>, Vec<(Partition, Bounds)>);

pub(super) fn read(kafka: &Kafka, topics: &[Arc<str>]) -> Result<Read, KafkaFailure> {
    let consumer = kafka.consumer(NO_GROUP, &[("enable.partition.eof", "true")])?;
    let mut records = Vec::new();
    let mut bounds = Vec::new();
    // One after the other: the client does not say of which topic an end is.
    for topic in topics {
        let ends = bounds_of(kafka, &consumer, topic)?;
        read_topic(kafka, &consumer, topic, &ends, &mut records)?;
        bounds.extend(ends);
    }
    Ok((records, bounds))
}

fn bounds_of(
    kafka: &Kafka,
    consumer: &BaseConsumer,
    topic: &Arc<str>,
) -> Result<Vec<(Partition, Bounds)>, KafkaFailure> {
    let partitions = kafka.partitions(consumer, std::slice::from_ref(topic))?;
    let bounds = |partition: Partition| match consumer.fetch_watermarks(
        topic,
        partition.partition,
        kafka.deadline,
    ) {
        Ok((start, end)) => Ok((partition, Bounds { start, end })),
        Err(source) => Err(KafkaFailure::Ends { partition, source }),
    };
    partitions.into_iter().map(bounds).collect()
}

fn read_topic(
    kafka: &Kafka,
    consumer: &BaseConsumer,
    topic: &Arc<str>,
    ends: &[(Partition, Bounds)],
    records: &mut Vec<RawRecord>,
) -> Result<(), KafkaFailure> {
    let failed = |source| KafkaFailure::Read { topic: Arc::clone(topic), source };
    let starts =
        ends.iter().map(|(partition, bounds)| (partition.clone(), Offset::Offset(bounds.start)));
    consumer.assign(&list(starts)).map_err(failed)?;
    let mut unread: HashSet<_> = ends.iter().map(|(partition, _)| partition.partition).collect();
    let deadline = Instant::now() + kafka.deadline;
    while !unread.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        match consumer.poll(left) {
            Some(Ok(message)) => {
                let place = Partition::new(Arc::clone(topic), message.partition());
                let place = place.at(message.offset());
                let (key, payload) = (message.key(), message.payload());
                let (key, payload) = (key.map(Vec::from), payload.map(Vec::from));
                records.push(RawRecord { place, key, payload });
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                unread.remove(&partition);
            }
            Some(Err(error)) if is_final(&error) => return Err(failed(error)),
            // The client goes on by itself.
            Some(Err(_)) => {}
            None if left.is_zero() => {
                let deadline = kafka.deadline;
                return Err(KafkaFailure::Deadline { topic: Arc::clone(topic), deadline });
            }
            None => {}
        }
    }
    // What was written meanwhile lies above the end that is judged by.
    records.retain(|record| {
        let partition = &record.place.partition;
        let end = ends.iter().find(|(it, _)| it == partition).map(|(_, bounds)| bounds.end);
        end.is_none_or(|end| record.place.offset < end)
    });
    Ok(())
}

/// Whether waiting helps against an error.
fn is_final(error: &KafkaError) -> bool {
    use rdkafka::types::RDKafkaErrorCode::{
        AllBrokersDown, BrokerTransportFailure, OperationTimedOut, Resolve,
    };
    let code = error.rdkafka_error_code();
    !matches!(code, Some(AllBrokersDown | BrokerTransportFailure | OperationTimedOut | Resolve))
}
