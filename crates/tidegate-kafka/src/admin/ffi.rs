//! librdkafka's administrative requests, which the safe bindings do not have.
#![expect(unsafe_code, reason = "the bindings of librdkafka are raw; all of it is in this file")]

use std::{
    collections::BTreeMap,
    ffi::{c_char, c_void},
    ptr::NonNull,
    time::Duration,
};

use rdkafka::{
    ClientContext, Offset, TopicPartitionList, client::Client, error::RDKafkaErrorCode as Code,
};
use rdkafka_sys as sys;
use tidegate_core::{TopicId, TopicPartition};

use super::{Answer, Facts, Failure, Position, Request, Spec, Topic};
use crate::{
    ffi::{Event, Queue, array, bytes, c_string, elements, partition_of, text},
    group::{GroupDescription, GroupState, GroupType, MemberDescription},
};

// The time-out of a request must never fire before its own requests end: a
// ListConsumerGroupOffsets that times out while it waits for its coordinator
// aborts the process when the answer comes (librdkafka 2.12.1, assertion in
// `rd_kafka_enq_once_del_source_return`). A dead connection ends it earlier,
// and deadlines are the caller's own.
const NEVER_MS: i32 = 3_600_000;

/// Sends a request, whose answer comes into `answers` with `number`.
pub(crate) fn ask<C: ClientContext>(
    client: &Client<C>,
    answers: &Queue<'_>,
    number: u64,
    request: &Request,
) {
    let rk = client.native_ptr();
    let options = Options::new(rk, request, number);
    let (options, queue) = (options.0.as_ptr(), answers.as_ptr());
    // SAFETY: in each branch everything is alive for the call, which copies
    // what it keeps; what is made here is destroyed once.
    match request {
        Request::Committed { group, partitions } => {
            let list =
                partitions.as_ref().map(|it| list(it.iter().map(|it| (it, Offset::Invalid))));
            let list = list.as_ref().map_or(std::ptr::null_mut(), TopicPartitionList::ptr);
            let group = c_string(group);
            unsafe {
                let mut asked = sys::rd_kafka_ListConsumerGroupOffsets_new(group.as_ptr(), list);
                sys::rd_kafka_ListConsumerGroupOffsets(rk, &raw mut asked, 1, options, queue);
                sys::rd_kafka_ListConsumerGroupOffsets_destroy(asked);
            }
        }
        Request::Offsets(offsets) => {
            let list = list(offsets.iter().map(|(name, spec)| (name, offset(*spec))));
            unsafe { sys::rd_kafka_ListOffsets(rk, list.ptr(), options, queue) }
        }
        Request::Topics(topics) => {
            let names: Vec<_> = topics.iter().map(|name| c_string(name)).collect();
            let mut names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
            unsafe {
                let topics =
                    sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
                sys::rd_kafka_DescribeTopics(rk, topics, options, queue);
                sys::rd_kafka_TopicCollection_destroy(topics);
            }
        }
        Request::Describe { group } => {
            let group = c_string(group);
            let mut groups = [group.as_ptr()];
            unsafe {
                sys::rd_kafka_DescribeConsumerGroups(rk, groups.as_mut_ptr(), 1, options, queue);
            }
        }
        Request::Config { group, .. } => {
            let group = c_string(group);
            unsafe {
                let of_group = sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_GROUP;
                let mut resource = sys::rd_kafka_ConfigResource_new(of_group, group.as_ptr());
                sys::rd_kafka_DescribeConfigs(rk, &raw mut resource, 1, options, queue);
                sys::rd_kafka_ConfigResource_destroy(resource);
            }
        }
        Request::Alter { group, offsets } => {
            let group = c_string(group);
            let mut list = TopicPartitionList::new();
            for (name, position) in offsets {
                let mut entry = list.add_partition(&name.topic, name.partition);
                entry.set_offset(Offset::Offset(position.offset)).expect("it is an offset");
                entry.set_metadata(&position.metadata);
            }
            unsafe {
                let mut order =
                    sys::rd_kafka_AlterConsumerGroupOffsets_new(group.as_ptr(), list.ptr());
                sys::rd_kafka_AlterConsumerGroupOffsets(rk, &raw mut order, 1, options, queue);
                sys::rd_kafka_AlterConsumerGroupOffsets_destroy(order);
            }
        }
        Request::Forget { group, partitions } => {
            let group = c_string(group);
            let list = list(partitions.iter().map(|it| (it, Offset::Invalid)));
            unsafe {
                let mut order =
                    sys::rd_kafka_DeleteConsumerGroupOffsets_new(group.as_ptr(), list.ptr());
                sys::rd_kafka_DeleteConsumerGroupOffsets(rk, &raw mut order, 1, options, queue);
                sys::rd_kafka_DeleteConsumerGroupOffsets_destroy(order);
            }
        }
    }
}

/// Takes the next answer.
pub(crate) fn answer(answers: &Queue<'_>) -> Option<Answer> {
    answer_within(answers, Duration::ZERO)
}

/// Takes the next answer, and waits for it.
pub(crate) fn answer_within(answers: &Queue<'_>, time: Duration) -> Option<Answer> {
    let event = answers.poll_for(time)?;
    // SAFETY: the event is alive.
    let number = unsafe { sys::rd_kafka_event_opaque(event.as_ptr()) } as u64;
    Some(Answer { number, result: facts(&event) })
}

struct Options(NonNull<sys::rd_kafka_AdminOptions_t>);

impl Options {
    fn new(rk: *mut sys::rd_kafka_t, request: &Request, number: u64) -> Self {
        use sys::rd_kafka_admin_op_t as Op;
        let operation = match request {
            Request::Committed { .. } => Op::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS,
            Request::Offsets(_) => Op::RD_KAFKA_ADMIN_OP_LISTOFFSETS,
            Request::Topics(_) => Op::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            Request::Describe { .. } => Op::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS,
            Request::Config { .. } => Op::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS,
            Request::Alter { .. } => Op::RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS,
            Request::Forget { .. } => Op::RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS,
        };
        let mut reason: [c_char; 256] = [0; 256];
        // SAFETY: the handle is alive, the options are ours, and the texts of
        // errors have room. The settings are valid for their operations.
        unsafe {
            let options = NonNull::new(sys::rd_kafka_AdminOptions_new(rk, operation))
                .expect("librdkafka allocates options or aborts");
            sys::rd_kafka_AdminOptions_set_request_timeout(
                options.as_ptr(),
                NEVER_MS,
                reason.as_mut_ptr(),
                reason.len(),
            );
            sys::rd_kafka_AdminOptions_set_opaque(options.as_ptr(), number as *mut c_void);
            if let Request::Config { broker, .. } = request {
                // The client would ask the controller, and any broker knows.
                sys::rd_kafka_AdminOptions_set_broker(
                    options.as_ptr(),
                    *broker,
                    reason.as_mut_ptr(),
                    reason.len(),
                );
            }
            if matches!(request, Request::Committed { .. }) {
                // With offsets of open transactions in mind, as a consumer that
                // reads what is committed has to.
                let error =
                    sys::rd_kafka_AdminOptions_set_require_stable_offsets(options.as_ptr(), 1);
                if !error.is_null() {
                    sys::rd_kafka_error_destroy(error);
                }
            }
            Self(options)
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again.
        unsafe { sys::rd_kafka_AdminOptions_destroy(self.0.as_ptr()) }
    }
}

fn facts(event: &Event) -> Result<Facts, Failure> {
    let code = event.error();
    let event = event.as_ptr();
    if code != Code::NoError {
        // SAFETY: the event is alive, and the text its own.
        let reason = unsafe { text(sys::rd_kafka_event_error_string(event)) };
        return Err(Failure { code, reason });
    }
    let mut count = 0;
    // SAFETY: each result is the event's own, of the type that its kind of
    // event has, and its lists have `count` elements.
    unsafe {
        Ok(match sys::rd_kafka_event_type(event) {
            sys::RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT => {
                let result = sys::rd_kafka_event_ListConsumerGroupOffsets_result(event);
                let groups =
                    sys::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &raw mut count);
                Facts::Committed(of_groups(groups, count, |it| position_of(it))?)
            }
            sys::RD_KAFKA_EVENT_LISTOFFSETS_RESULT => {
                let result = sys::rd_kafka_event_ListOffsets_result(event);
                let infos = sys::rd_kafka_ListOffsets_result_infos(result, &raw mut count);
                let offset = |&info: &*const _| {
                    let it = &*sys::rd_kafka_ListOffsetsResultInfo_topic_partition(info);
                    (partition_of(it), checked(it.err).map(|()| it.offset))
                };
                Facts::Offsets(array(infos.cast_const(), count).iter().map(offset).collect())
            }
            sys::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT => {
                let result = sys::rd_kafka_event_DescribeTopics_result(event);
                let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
                let topic = |&it: &*const _| {
                    (text(sys::rd_kafka_TopicDescription_name(it)).into(), topic_of(it))
                };
                Facts::Topics(array(topics.cast_const(), count).iter().map(topic).collect())
            }
            sys::RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT => {
                let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event);
                let groups =
                    sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
                match array(groups.cast_const(), count).first() {
                    Some(&group) => Facts::Group(group_of(group)?),
                    None => return Err(unexpected()),
                }
            }
            sys::RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT => {
                let result = sys::rd_kafka_event_DescribeConfigs_result(event);
                let resources =
                    sys::rd_kafka_DescribeConfigs_result_resources(result, &raw mut count);
                match array(resources.cast_const(), count).first() {
                    Some(&resource) => Facts::Config(config_of(resource)?),
                    None => return Err(unexpected()),
                }
            }
            sys::RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT => {
                let result = sys::rd_kafka_event_AlterConsumerGroupOffsets_result(event);
                let groups =
                    sys::rd_kafka_AlterConsumerGroupOffsets_result_groups(result, &raw mut count);
                Facts::Altered(of_groups(groups, count, |it| checked(it.err))?)
            }
            sys::RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT => {
                let result = sys::rd_kafka_event_DeleteConsumerGroupOffsets_result(event);
                let groups =
                    sys::rd_kafka_DeleteConsumerGroupOffsets_result_groups(result, &raw mut count);
                Facts::Altered(of_groups(groups, count, |it| checked(it.err))?)
            }
            _ => return Err(unexpected()),
        })
    }
}

fn unexpected() -> Failure {
    Failure { code: Code::Fail, reason: "an answer to no question".to_owned() }
}

/// Partitions, each with an offset, as the client takes them.
pub(crate) fn list<'a>(
    offsets: impl Iterator<Item = (&'a TopicPartition, Offset)>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (name, offset) in offsets {
        let mut entry = list.add_partition(&name.topic, name.partition);
        entry.set_offset(offset).expect("each of these has a number");
    }
    list
}

fn offset(spec: Spec) -> Offset {
    match spec {
        Spec::Low => Offset::Beginning,
        Spec::High => Offset::End,
        // In this request a time stands where an offset would.
        Spec::At(time) => Offset::Offset(time),
    }
}

/// # Safety
///
/// There are `count` results of groups at `groups`, and they are alive.
unsafe fn of_groups<T>(
    groups: *mut *const sys::rd_kafka_group_result_t,
    count: usize,
    each: impl Fn(&sys::rd_kafka_topic_partition_t) -> Result<T, Failure>,
) -> Result<BTreeMap<TopicPartition, Result<T, Failure>>, Failure> {
    let mut all = BTreeMap::new();
    // SAFETY: as promised; a group's partitions are its own.
    unsafe {
        for &group in array(groups.cast_const(), count) {
            failure(sys::rd_kafka_group_result_error(group))?;
            for it in elements(sys::rd_kafka_group_result_partitions(group)) {
                all.insert(partition_of(it), each(it));
            }
        }
    }
    Ok(all)
}

/// # Safety
///
/// The topic is one of an event that is alive.
unsafe fn topic_of(topic: *const sys::rd_kafka_TopicDescription_t) -> Result<Topic, Failure> {
    let mut count = 0;
    // SAFETY: as promised; its parts are its own.
    unsafe {
        failure(sys::rd_kafka_TopicDescription_error(topic))?;
        let id = sys::rd_kafka_TopicDescription_topic_id(topic);
        let id = TopicId::new(text(sys::rd_kafka_Uuid_base64str(id)));
        let partitions = sys::rd_kafka_TopicDescription_partitions(topic, &raw mut count);
        let partitions = array(partitions.cast_const(), count)
            .iter()
            .map(|&it| sys::rd_kafka_TopicPartitionInfo_partition(it));
        Ok(Topic { id, partitions: partitions.collect() })
    }
}

/// # Safety
///
/// The resource is one of an event that is alive.
unsafe fn config_of(
    resource: *const sys::rd_kafka_ConfigResource_t,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut count = 0;
    // SAFETY: as promised; its parts are its own.
    unsafe {
        checked(sys::rd_kafka_ConfigResource_error(resource))?;
        let entries = sys::rd_kafka_ConfigResource_configs(resource, &raw mut count);
        let entry = |&it: &*const _| {
            (text(sys::rd_kafka_ConfigEntry_name(it)), text(sys::rd_kafka_ConfigEntry_value(it)))
        };
        Ok(array(entries.cast_const(), count).iter().map(entry).collect())
    }
}

/// # Safety
///
/// The group is one of an event that is alive.
unsafe fn group_of(
    group: *const sys::rd_kafka_ConsumerGroupDescription_t,
) -> Result<GroupDescription, Failure> {
    use sys::{rd_kafka_consumer_group_state_t as State, rd_kafka_consumer_group_type_t as Type};
    // SAFETY: as promised; its parts are its own.
    unsafe {
        failure(sys::rd_kafka_ConsumerGroupDescription_error(group))?;
        let state = match sys::rd_kafka_ConsumerGroupDescription_state(group) {
            State::RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE
            | State::RD_KAFKA_CONSUMER_GROUP_STATE_COMPLETING_REBALANCE => GroupState::Rebalancing,
            State::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE => GroupState::Stable,
            State::RD_KAFKA_CONSUMER_GROUP_STATE_DEAD => GroupState::Dead,
            State::RD_KAFKA_CONSUMER_GROUP_STATE_EMPTY => GroupState::Empty,
            _ => GroupState::Unknown,
        };
        let protocol = match sys::rd_kafka_ConsumerGroupDescription_type(group) {
            Type::RD_KAFKA_CONSUMER_GROUP_TYPE_CONSUMER => GroupType::Consumer,
            Type::RD_KAFKA_CONSUMER_GROUP_TYPE_CLASSIC => GroupType::Classic,
            _ => GroupType::Unknown,
        };
        let count = sys::rd_kafka_ConsumerGroupDescription_member_count(group);
        let member = |index| member_of(sys::rd_kafka_ConsumerGroupDescription_member(group, index));
        Ok(GroupDescription {
            state,
            protocol,
            assignor: text(sys::rd_kafka_ConsumerGroupDescription_partition_assignor(group)),
            members: (0..count).map(member).collect(),
        })
    }
}

/// # Safety
///
/// The member is one of a group that is alive.
unsafe fn member_of(member: *const sys::rd_kafka_MemberDescription_t) -> MemberDescription {
    // SAFETY: as promised; its parts are its own, and an assignment may be null.
    unsafe {
        let partitions = |assignment: *const sys::rd_kafka_MemberAssignment_t| {
            if assignment.is_null() {
                return None;
            }
            let list = sys::rd_kafka_MemberAssignment_partitions(assignment);
            Some(elements(list).iter().map(|it| partition_of(it)).collect())
        };
        let instance = text(sys::rd_kafka_MemberDescription_group_instance_id(member));
        MemberDescription {
            id: text(sys::rd_kafka_MemberDescription_consumer_id(member)),
            client_id: text(sys::rd_kafka_MemberDescription_client_id(member)),
            instance_id: (!instance.is_empty()).then_some(instance),
            host: text(sys::rd_kafka_MemberDescription_host(member)),
            assignment: partitions(sys::rd_kafka_MemberDescription_assignment(member))
                .unwrap_or_default(),
            target: partitions(sys::rd_kafka_MemberDescription_target_assignment(member)),
        }
    }
}

/// What a list of the client's says about its partitions.
pub(crate) fn positions(
    list: &TopicPartitionList,
) -> BTreeMap<TopicPartition, Result<Option<Position>, Failure>> {
    // SAFETY: the list is alive, and its elements are its own.
    unsafe { elements(list.ptr()).iter().map(|it| (partition_of(it), position_of(it))).collect() }
}

/// # Safety
///
/// The element is one of a list of librdkafka's, and alive.
unsafe fn position_of(
    element: &sys::rd_kafka_topic_partition_t,
) -> Result<Option<Position>, Failure> {
    checked(element.err)?;
    // SAFETY: its metadata are as long as it says.
    let metadata = unsafe { bytes(element.metadata, element.metadata_size) };
    let metadata = String::from_utf8_lossy(metadata.unwrap_or_default()).into_owned();
    Ok((element.offset >= 0).then_some(Position { offset: element.offset, metadata }))
}

fn checked(error: sys::rd_kafka_resp_err_t) -> Result<(), Failure> {
    match Code::from(error) {
        Code::NoError => Ok(()),
        code => Err(Failure { code, reason: String::new() }),
    }
}

/// # Safety
///
/// The error is null, or one of librdkafka's that is alive.
unsafe fn failure(error: *const sys::rd_kafka_error_t) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: alive, and its text its own.
    unsafe {
        match Code::from(sys::rd_kafka_error_code(error)) {
            Code::NoError => Ok(()),
            code => Err(Failure { code, reason: text(sys::rd_kafka_error_string(error)) }),
        }
    }
}
