//! Reading: from the partitions' queues to their tasks, as far as there is room.

use std::cmp::min;

use bytes::{Bytes, BytesMut};
use rdkafka::error::RDKafkaErrorCode as Code;
use tidegate_core::{Class, Error, Header, Headers, OutOfOrder, Record, TopicPartition};
use tokio::time::Instant;

use super::{Client, PositionError, Stage, partition::Partition, stall::Watch};
use crate::{
    ffi::{Buffer, Message},
    task::Item,
};

/// The broker or the client could not deliver the next record of a partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the partition cannot be read: {code}: {reason}")]
#[non_exhaustive]
pub struct ReadError {
    /// The error's code.
    pub code: Code,
    /// What the client says about it.
    pub reason: String,
}

// So many records are taken from a queue at a time.
pub(super) const BATCH: usize = 1_000;

// Bytes of records are copied into arenas of this size, many to one, so that a
// record takes no allocation of its own. A record that lives on keeps its arena
// alive: an arena is small, and a large record has bytes of its own.
const ARENA: usize = 16 << 10;

impl Client<'_> {
    /// Reads from each partition that has room. Returns whether there was
    /// anything.
    pub(super) fn feed(&mut self, now: Instant) -> bool {
        let settings = &self.driver.settings;
        let (records, unconfirmed) = (settings.records, settings.unconfirmed);
        // An equal share each: what is full blocks itself alone (I10).
        let share = settings.bytes_in_all / self.partitions.len().max(1);
        let bytes = min(settings.bytes, share);
        let mut failed = Vec::new();
        let mut busy = false;
        for partition in self.partitions.values_mut() {
            if partition.unconfirmed() > unconfirmed {
                partition.watch.excused(now);
                continue;
            }
            let room = partition.room(records, bytes);
            if room == 0 {
                partition.watch.excused(now);
                continue;
            }
            let read = partition.read(&mut self.buffer[..min(room, BATCH)], now);
            busy |= read.records > 0;
            self.driver.metrics.read(read.records, read.bytes);
            if let Some(error) = read.error {
                failed.push((partition.name.clone(), error));
            }
        }
        for (name, error) in failed {
            self.stop_partition(&name, error, now);
        }
        busy
    }
}

#[derive(Default)]
struct Read {
    records: usize,
    bytes: usize,
    error: Option<Error>,
}

impl Partition<'_> {
    /// How many records there is room for. It is none from when the partition
    /// is full until it is half empty, so that chunks do not get small.
    fn room(&mut self, records: usize, bytes: usize) -> usize {
        let Stage::Working(stack) = &mut self.stage else { return 0 };
        let (taken, taken_bytes) = (stack.load.records(), stack.load.bytes());
        if !stack.open {
            stack.open = taken <= records / 2 && taken_bytes <= bytes / 2;
        }
        if taken >= records || taken_bytes >= bytes {
            stack.open = false;
        }
        if !stack.open {
            stack.load.want(records / 2, bytes / 2);
            return 0;
        }
        // Of a lease that has run out, by the clock, nothing is read.
        if stack.chunks.capacity() == 0 || !stack.lease.is_active() {
            return 0;
        }
        min(records - taken, (bytes - taken_bytes) / self.record_size + 1)
    }

    /// Reads as many records as the buffer has room for, and hands them to the
    /// task.
    fn read(&mut self, buffer: &mut Buffer, now: Instant) -> Read {
        let Self { name, queue, stage, position, end, watch, record_size, .. } = self;
        let Stage::Working(stack) = stage else { return Read::default() };
        let mut read = Read::default();
        let mut items = Vec::new();
        let mut arena = BytesMut::new();
        queue.consume(buffer, |message| {
            // What comes behind an error is read again, from the frontier.
            if read.error.is_some() {
                return;
            }
            match item(&message, name, *position, watch, &mut arena) {
                Ok(Some(Item::Record(record))) => {
                    *position = record.offset + 1;
                    read.records += 1;
                    read.bytes += record.size();
                    watch.record(now);
                    items.push(Item::Record(record));
                }
                Ok(Some(Item::End(at))) => {
                    *position = (*position).max(at);
                    *end = Some(at);
                    watch.end(now);
                    items.push(Item::End(at));
                }
                Ok(None) => {}
                Err(error) => read.error = Some(error),
            }
        });
        if let Some(mean) = read.bytes.checked_div(read.records) {
            // Decaying: it follows what the topic holds now.
            *record_size = ((*record_size * 3 + mean) / 4).max(1);
        }
        stack.load.take(read.records, read.bytes);
        if !items.is_empty() && stack.chunks.try_send(items).is_err() {
            // There was room, so the task is gone, and says why.
            stack.open = false;
        }
        read
    }
}

/// What a message has for the task, if it has anything. One that says that the
/// client reads elsewhere, or not at all, raises a doubt.
fn item(
    message: &Message<'_>,
    partition: &TopicPartition,
    position: i64,
    watch: &mut Watch,
    arena: &mut BytesMut,
) -> Result<Option<Item>, Error> {
    let offset = message.offset();
    match message.error() {
        None if offset < position => {
            Err(Error::new(Class::Fatal, OutOfOrder::new(offset, position)))
        }
        None => Ok(Some(Item::Record(record(message, partition, arena)))),
        Some(Code::PartitionEOF) => Ok(Some(Item::End(offset))),
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) if offset == position => {
            Err(PositionError::Lost { position }.into())
        }
        // It is about where the client was before it was sought.
        Some(code @ (Code::AutoOffsetReset | Code::OffsetOutOfRange)) => {
            tracing::debug!(%partition, %code, offset, position, "not where we are");
            watch.doubt();
            Ok(None)
        }
        // The client tries these again by itself.
        Some(
            code @ (Code::BrokerTransportFailure
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::NotLeaderForPartition
            | Code::LeaderNotAvailable
            | Code::ReplicaNotAvailable
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::OffsetNotAvailable
            | Code::KafkaStorageError),
        ) => {
            tracing::debug!(%partition, %code, "reading failed for now");
            Ok(None)
        }
        Some(code) => Err(Error::new(Class::Fatal, ReadError { code, reason: message.reason() })),
    }
}

fn record(message: &Message<'_>, partition: &TopicPartition, arena: &mut BytesMut) -> Record {
    let mut headers = Vec::new();
    message.headers(|name, value| {
        let value = value.map(Bytes::copy_from_slice);
        headers.push(Header { name: name.into(), value });
    });
    let mut copy = |bytes: &[u8]| copy(bytes, arena);
    Record {
        partition: partition.clone(),
        offset: message.offset(),
        timestamp: message.timestamp(),
        key: message.key().map(&mut copy),
        payload: message.payload().map(&mut copy),
        headers: if headers.is_empty() {
            Headers::default()
        } else {
            headers.into_iter().collect()
        },
    }
}

fn copy(bytes: &[u8], arena: &mut BytesMut) -> Bytes {
    if bytes.len() > ARENA / 2 {
        return Bytes::copy_from_slice(bytes);
    }
    if arena.capacity() < bytes.len() {
        *arena = BytesMut::with_capacity(ARENA);
    }
    arena.extend_from_slice(bytes);
    arena.split().freeze()
}

#[cfg(test)]
mod tests {
    use super::{ARENA, BytesMut, copy};

    #[test]
    fn small_bytes_share_an_arena_and_large_ones_do_not() {
        let mut arena = BytesMut::new();
        let copies: Vec<_> = (0..1_000_u32).map(|n| copy(&n.to_be_bytes(), &mut arena)).collect();
        for (n, bytes) in (0_u32..).zip(&copies) {
            assert_eq!(**bytes, n.to_be_bytes());
        }
        let large = vec![7; ARENA];
        assert_eq!(copy(&large, &mut arena), large);
        assert_eq!(copy(b"", &mut arena), b"".as_slice());
    }
}
