//! What the driver needs of librdkafka and the safe bindings do not have.
//!
//! Everything here is called on the poll thread, which owns the consumer. A
//! [`Queue`] borrows the client, so it is destroyed before it.
#![expect(unsafe_code, reason = "the bindings of librdkafka are raw; all of it is in this file")]

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    marker::PhantomData,
    mem,
    ptr::{self, NonNull},
    slice,
    sync::{Arc, mpsc},
    thread::{self, Thread},
    time::Duration,
};

use rdkafka::{
    ClientContext, TopicPartitionList,
    client::Client,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::RDKafkaErrorCode as Code,
};
use rdkafka_sys as sys;
use tidegate_core::{Epoch, TopicPartition};

/// A queue of librdkafka's.
///
/// It wakes its thread when something comes into it. There is one for each
/// partition at any time: two would share a place for the wake-up, and the
/// drop of one would take it from the other.
pub(crate) struct Queue<'c> {
    queue: NonNull<sys::rd_kafka_queue_t>,
    // Pointed to by librdkafka until the wake-up is disabled.
    _thread: Option<Arc<Thread>>,
    _client: PhantomData<&'c ()>,
}

/// A message that librdkafka lends for the time of a call.
pub(crate) struct Message<'m> {
    message: &'m sys::rd_kafka_message_t,
}

/// Places for messages that a call takes from a queue.
pub(crate) type Buffer = [*mut sys::rd_kafka_message_t];

/// The result of a commit.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The error of the request.
    pub(crate) error: Code,
    /// The errors of single partitions.
    pub(crate) refused: BTreeMap<TopicPartition, Code>,
}

// ===== impl Queue =====

impl<'c> Queue<'c> {
    /// A new queue, to take results from.
    pub(crate) fn new<C: ClientContext>(client: &'c Client<C>) -> Self {
        // SAFETY: the handle lives as long as the client, which is borrowed.
        let queue = unsafe { sys::rd_kafka_queue_new(client.native_ptr()) };
        Self::owning(queue)
    }

    /// The queue that rebalances, errors, logs and statistics come through.
    pub(crate) fn main<C: ConsumerContext>(consumer: &'c BaseConsumer<C>) -> Self {
        // SAFETY: as in `new`; the consumer has a group, hence such a queue.
        let queue = unsafe { sys::rd_kafka_queue_get_consumer(consumer.client().native_ptr()) };
        Self::owning(queue)
    }

    /// Splits a partition's queue from the consumer's, which has to be done
    /// before each assign.
    pub(crate) fn of_partition<C: ConsumerContext>(
        consumer: &'c BaseConsumer<C>,
        partition: &TopicPartition,
    ) -> Self {
        let topic = c_string(&partition.topic);
        let rk = consumer.client().native_ptr();
        // SAFETY: the handle is alive and the topic is a C string. The queue is
        // never null: the partition is created where it is not known.
        unsafe {
            let queue = sys::rd_kafka_queue_get_partition(rk, topic.as_ptr(), partition.partition);
            sys::rd_kafka_queue_forward(queue, ptr::null_mut());
            Self::owning(queue)
        }
    }

    fn owning(queue: *mut sys::rd_kafka_queue_t) -> Self {
        let queue = NonNull::new(queue).expect("librdkafka allocates queues or aborts");
        Self { queue, _thread: None, _client: PhantomData }
    }

    /// Wakes the current thread whenever something comes into the empty queue.
    pub(crate) fn waking(mut self) -> Self {
        let thread = Arc::new(thread::current());
        // SAFETY: the thread is kept until the wake-up is disabled in `drop`.
        // librdkafka calls it under the queue's lock, which disabling takes too.
        unsafe {
            let opaque = Arc::as_ptr(&thread).cast_mut().cast();
            sys::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), Some(unpark), opaque);
        }
        self._thread = Some(thread);
        self
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rd_kafka_queue_t {
        self.queue.as_ptr()
    }

    /// Takes the next event.
    pub(crate) fn poll(&self) -> Option<Event> {
        self.poll_for(Duration::ZERO)
    }

    /// Takes the next event, and waits for it.
    pub(crate) fn poll_for(&self, time: Duration) -> Option<Event> {
        let millis = c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is alive, and the event ours.
        NonNull::new(unsafe { sys::rd_kafka_queue_poll(self.queue.as_ptr(), millis) }).map(Event)
    }

    /// How many events wait in it.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the queue is ours until `drop`.
        unsafe { sys::rd_kafka_queue_length(self.queue.as_ptr()) }
    }

    /// Takes at most as many messages as `buffer` has room for, and lends each
    /// to `take`. Returns how many there were.
    pub(crate) fn consume(&self, buffer: &mut Buffer, mut take: impl FnMut(Message<'_>)) -> usize {
        // SAFETY: the queue is ours, and the buffer has room for what is asked.
        let count = unsafe {
            sys::rd_kafka_consume_batch_queue(
                self.queue.as_ptr(),
                0,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        for message in &mut buffer[..count] {
            let message = mem::replace(message, ptr::null_mut());
            // SAFETY: librdkafka filled in `count` messages, which are ours
            // until they are destroyed, each once.
            unsafe {
                take(Message { message: &*message });
                sys::rd_kafka_message_destroy(message);
            }
        }
        count
    }

    /// Throws away what waits in the queue. Returns how much that was.
    pub(crate) fn discard(&self, buffer: &mut Buffer) -> usize {
        let mut discarded = 0;
        loop {
            match self.consume(buffer, |_| {}) {
                0 => return discarded,
                count => discarded += count,
            }
        }
    }

    /// Takes the next result of a commit.
    pub(crate) fn committed(&self) -> Option<Committed> {
        let event = self.poll()?;
        // SAFETY: the event is alive. Its list is its own, and null where the
        // request failed before there was one.
        let refused = unsafe {
            let list = sys::rd_kafka_event_topic_partition_list(event.0.as_ptr());
            elements(list)
                .iter()
                .filter(|it| Code::from(it.err) != Code::NoError)
                .map(|it| (partition_of(it), it.err.into()))
                .collect()
        };
        Some(Committed { error: event.error(), refused })
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again. Disabling first: afterwards nobody
        // points to the thread.
        unsafe {
            sys::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), None, ptr::null_mut());
            sys::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// Runs under the lock of the queue: it may do no more than this.
unsafe extern "C" fn unpark(_: *mut sys::rd_kafka_t, thread: *mut c_void) {
    // SAFETY: `Queue::waking` passed a thread that outlives the wake-up.
    unsafe { (*thread.cast_const().cast::<Thread>()).unpark() }
}

// ===== impl Message =====

impl Message<'_> {
    /// The error that stands in the message's place.
    pub(crate) fn error(&self) -> Option<Code> {
        let code = Code::from(self.message.err);
        (code != Code::NoError).then_some(code)
    }

    /// What librdkafka says about the error.
    pub(crate) fn reason(&self) -> String {
        // SAFETY: an error's payload is its text.
        let text = unsafe { bytes(self.message.payload, self.message.len) };
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }

    pub(crate) fn offset(&self) -> i64 {
        self.message.offset
    }

    /// Milliseconds since the Unix epoch, or -1.
    pub(crate) fn timestamp(&self) -> i64 {
        // SAFETY: the message is alive, and the type of the timestamp may be null.
        unsafe { sys::rd_kafka_message_timestamp(self.message, ptr::null_mut()) }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        // SAFETY: the message's own, and alive as long as it.
        unsafe { bytes(self.message.key, self.message.key_len) }
    }

    pub(crate) fn payload(&self) -> Option<&[u8]> {
        // SAFETY: as the key.
        unsafe { bytes(self.message.payload, self.message.len) }
    }

    /// Calls `each` with the name and the value of each header.
    pub(crate) fn headers(&self, mut each: impl FnMut(&str, Option<&[u8]>)) {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive, and so are its headers, whose names are
        // C strings. The index ends the loop when it is out of range.
        unsafe {
            let error = sys::rd_kafka_message_headers(self.message, &raw mut headers);
            if Code::from(error) != Code::NoError {
                return;
            }
            for index in 0.. {
                let (mut name, mut value, mut len) = (ptr::null(), ptr::null(), 0);
                let error = sys::rd_kafka_header_get_all(
                    headers,
                    index,
                    &raw mut name,
                    &raw mut value,
                    &raw mut len,
                );
                if Code::from(error) != Code::NoError {
                    return;
                }
                each(&CStr::from_ptr(name).to_string_lossy(), bytes(value, len));
            }
        }
    }
}

// ===== consumers =====

/// The current generation and member id.
///
/// It waits for the client's group handler, which may have ended once the
/// consumer is closing: call it only while a rebalance is unanswered.
pub(crate) fn epoch<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> Option<Epoch> {
    // SAFETY: the handle is alive; the metadata is ours, and its member id a C
    // string that lives as long as it.
    unsafe {
        let metadata =
            NonNull::new(sys::rd_kafka_consumer_group_metadata(consumer.client().native_ptr()))?;
        let generation = sys::rd_kafka_consumer_group_metadata_generation_id(metadata.as_ptr());
        let member = sys::rd_kafka_consumer_group_metadata_member_id(metadata.as_ptr());
        let epoch = Epoch::new(generation, text(member));
        sys::rd_kafka_consumer_group_metadata_destroy(metadata.as_ptr());
        Some(epoch)
    }
}

/// Sends a commit, whose result comes into `results`.
pub(crate) fn commit<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    offsets: &TopicPartitionList,
    results: &Queue<'_>,
) {
    // SAFETY: all three are alive, and librdkafka copies the list. With a queue
    // there is no callback, and the call fails only without a group.
    unsafe {
        sys::rd_kafka_commit_queue(
            consumer.client().native_ptr(),
            offsets.ptr(),
            results.queue.as_ptr(),
            None,
            ptr::null_mut(),
        );
    }
}

/// The ends of a partition's log as the client has last seen them.
pub(crate) fn watermarks<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partition: &TopicPartition,
) -> (i64, i64) {
    let topic = c_string(&partition.topic);
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the handle is alive, and both places are there to be written to.
    unsafe {
        sys::rd_kafka_get_watermark_offsets(
            consumer.client().native_ptr(),
            topic.as_ptr(),
            partition.partition,
            &raw mut low,
            &raw mut high,
        );
    }
    (low, high)
}

/// Asks with a consumer that has no group, and destroys it: its drop might wait
/// for ever.
pub(crate) fn ask_once<C: ConsumerContext + 'static, R>(
    consumer: BaseConsumer<C>,
    ask: impl FnOnce(&BaseConsumer<C>) -> R,
) -> R {
    let answer = ask(&consumer);
    destroy(consumer);
    answer
}

// How long the threads of a client that is destroyed may take to end.
const DESTROY: Duration = Duration::from_secs(3);

/// Destroys a consumer that is closed, or has no group, on a thread of its own,
/// and waits for that, but not for ever.
///
/// librdkafka waits there for its own threads, without a bound, and one of them
/// may not end: that of a broker which it has replaced lives as long as a
/// request waits for that broker.
///
/// All its queues must be dropped before.
pub(crate) fn destroy<C: ConsumerContext + 'static>(consumer: BaseConsumer<C>) {
    let (done, destroyed) = mpsc::sync_channel(1);
    let destroying = move || {
        drop(consumer);
        // Nobody may be waiting any more.
        let _ = done.send(());
    };
    // Without a thread it is destroyed here.
    let thread = thread::Builder::new().name("tidegate-kafka-destroy".to_owned());
    if thread.spawn(destroying).is_ok() && destroyed.recv_timeout(DESTROY).is_err() {
        tracing::warn!("the client's threads do not end in time, and are left behind");
    }
}

/// Gives a consumer up that does not close, or cannot: it is destroyed without
/// a close on a thread of its own. Its membership ends by the session timeout.
///
/// All its queues must be dropped before.
pub(crate) fn give_up<C: ConsumerContext + 'static>(consumer: BaseConsumer<C>) {
    struct Handle(*mut sys::rd_kafka_t);
    // SAFETY: librdkafka's handles may be used from any thread, and after
    // `forget` nobody else has it.
    unsafe impl Send for Handle {}

    impl Handle {
        fn destroy(self) {
            // SAFETY: destroyed once, since it is taken by value.
            unsafe {
                sys::rd_kafka_destroy_flags(self.0, sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
            }
        }
    }

    let handle = Handle(consumer.client().native_ptr());
    // Dropping it would close it, and block until that ends. The context, to
    // which the handle points, is leaked with it.
    mem::forget(consumer);
    // Without a thread the handle is leaked too, and is a member until its poll
    // interval ends.
    let _ = thread::Builder::new()
        .name("tidegate-kafka-destroy".to_owned())
        .spawn(move || handle.destroy());
}

// ===== events =====

/// What came into a queue.
pub(crate) struct Event(NonNull<sys::rd_kafka_event_t>);

impl Event {
    pub(crate) fn as_ptr(&self) -> *mut sys::rd_kafka_event_t {
        self.0.as_ptr()
    }

    pub(crate) fn error(&self) -> Code {
        // SAFETY: the event is alive.
        unsafe { sys::rd_kafka_event_error(self.0.as_ptr()) }.into()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again.
        unsafe { sys::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

// ===== conversions =====

/// # Safety
///
/// The element is one of a list of librdkafka's, and alive.
pub(crate) unsafe fn partition_of(element: &sys::rd_kafka_topic_partition_t) -> TopicPartition {
    // SAFETY: its topic is a C string.
    TopicPartition::new(unsafe { text(element.topic) }, element.partition)
}

/// # Safety
///
/// The list is null, or one of librdkafka's that outlives the slice.
pub(crate) unsafe fn elements<'a>(
    list: *const sys::rd_kafka_topic_partition_list_t,
) -> &'a [sys::rd_kafka_topic_partition_t] {
    if list.is_null() {
        return &[];
    }
    // SAFETY: it has as many elements as it says.
    unsafe { array((*list).elems, usize::try_from((*list).cnt).unwrap_or(0)) }
}

/// # Safety
///
/// There are `count` elements at `first`, which outlive the slice; or none, and
/// it may be null.
pub(crate) unsafe fn array<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { slice::from_raw_parts(first, count) }
}

/// # Safety
///
/// There are `len` bytes, which outlive the slice, or the pointer is null.
pub(crate) unsafe fn bytes<'a>(first: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: as promised.
    (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first.cast(), len) })
}

/// # Safety
///
/// The text is a C string, or null.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).expect("names of topics and groups hold no null byte: it is checked before")
}
