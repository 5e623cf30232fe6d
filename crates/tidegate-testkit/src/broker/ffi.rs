//! librdkafka's mock cluster. The `rdkafka` crate has it too, but hides the
//! handle without which most of its settings are out of reach.

#![expect(unsafe_code, reason = "a mock cluster exists in C only")]

use std::{
    ffi::{CStr, CString, c_char, c_int},
    ptr::{self, NonNull},
    slice,
};

use rdkafka_sys as sys;

use super::{BrokerFailure, ErrorCode, Request};
use crate::ApiKey;

/// A cluster of mock brokers, and the client that librdkafka hangs it on.
pub(super) struct Cluster {
    client: NonNull<sys::rd_kafka_t>,
    cluster: NonNull<sys::rd_kafka_mock_cluster_t>,
}

// SAFETY: librdkafka's handles may be used from any thread. Each function of
// the mock cluster that is called here takes the cluster's lock, or sends an
// operation to its thread and waits for the answer; the list of bootstrap
// servers is written once, before the cluster is handed out.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

// ===== impl Cluster =====

impl Cluster {
    pub(super) fn new(brokers: i32) -> Result<Self, BrokerFailure> {
        let client = client()?;
        // SAFETY: `client` was made above and is not destroyed before the
        // cluster is.
        let cluster = unsafe { sys::rd_kafka_mock_cluster_new(client.as_ptr(), brokers) };
        let Some(cluster) = NonNull::new(cluster) else {
            // SAFETY: nothing else has this handle.
            unsafe { sys::rd_kafka_destroy(client.as_ptr()) };
            return Err(BrokerFailure::Start { reason: "no port could be bound".to_owned() });
        };
        Ok(Self { client, cluster })
    }

    pub(super) fn bootstrap(&self) -> String {
        // SAFETY: the cluster lives as long as `self`, and with it the text,
        // which ends with a zero and is not changed.
        let text =
            unsafe { CStr::from_ptr(sys::rd_kafka_mock_cluster_bootstraps(self.cluster.as_ptr())) };
        text.to_string_lossy().into_owned()
    }

    pub(super) fn set_rebalance_delay(&self, millis: i32) {
        // SAFETY: the cluster lives as long as `self`.
        unsafe {
            sys::rd_kafka_mock_group_initial_rebalance_delay_ms(self.cluster.as_ptr(), millis);
        }
    }

    pub(super) fn set_consumer_heartbeat(&self, millis: c_int) {
        // SAFETY: the cluster lives as long as `self`.
        unsafe {
            sys::rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(
                self.cluster.as_ptr(),
                millis,
            );
        }
    }

    pub(super) fn set_consumer_session(&self, millis: c_int) {
        // SAFETY: the cluster lives as long as `self`.
        unsafe {
            sys::rd_kafka_mock_set_group_consumer_session_timeout_ms(self.cluster.as_ptr(), millis);
        }
    }

    pub(super) fn create_topic(&self, topic: &CStr, partitions: c_int) -> ErrorCode {
        // SAFETY: the cluster lives as long as `self`; the name is copied.
        let code = unsafe {
            sys::rd_kafka_mock_topic_create(self.cluster.as_ptr(), topic.as_ptr(), partitions, 1)
        };
        code.into()
    }

    pub(super) fn set_coordinator(&self, group: &CStr, broker: i32) -> ErrorCode {
        // SAFETY: the cluster lives as long as `self`; the names are copied.
        let code = unsafe {
            sys::rd_kafka_mock_coordinator_set(
                self.cluster.as_ptr(),
                c"group".as_ptr(),
                group.as_ptr(),
                broker,
            )
        };
        code.into()
    }

    pub(super) fn set_up(&self, broker: i32, up: bool) -> ErrorCode {
        let set =
            if up { sys::rd_kafka_mock_broker_set_up } else { sys::rd_kafka_mock_broker_set_down };
        // SAFETY: the cluster lives as long as `self`.
        let code = unsafe { set(self.cluster.as_ptr(), broker) };
        code.into()
    }

    pub(super) fn set_round_trip(&self, broker: i32, millis: c_int) -> ErrorCode {
        // SAFETY: the cluster lives as long as `self`.
        let code =
            unsafe { sys::rd_kafka_mock_broker_set_rtt(self.cluster.as_ptr(), broker, millis) };
        code.into()
    }

    pub(super) fn advertise(&self, broker: i32, host: &CStr, port: u16) {
        // SAFETY: the cluster lives as long as `self`; the name is copied, cut
        // off where it is too long.
        unsafe {
            sys::rd_kafka_mock_broker_set_host_port(
                self.cluster.as_ptr(),
                broker,
                host.as_ptr(),
                port.into(),
            );
        }
    }

    pub(super) fn push_errors(&self, api: ApiKey, errors: &[ErrorCode]) {
        let numbers: Vec<i32> = errors.iter().map(|&code| code as i32).collect();
        // SAFETY: the cluster lives as long as `self`. C's enumeration is read
        // as the `int` that it is; the numbers are copied.
        unsafe {
            sys::rd_kafka_mock_push_request_errors_array(
                self.cluster.as_ptr(),
                api.0,
                numbers.len(),
                numbers.as_ptr().cast(),
            );
        }
    }

    pub(super) fn clear_errors(&self, api: ApiKey) {
        // SAFETY: the cluster lives as long as `self`.
        unsafe { sys::rd_kafka_mock_clear_request_errors(self.cluster.as_ptr(), api.0) };
    }

    pub(super) fn track_requests(&self) {
        // SAFETY: the cluster lives as long as `self`.
        unsafe { sys::rd_kafka_mock_start_request_tracking(self.cluster.as_ptr()) };
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        let mut count = 0;
        // SAFETY: the cluster lives as long as `self`.
        let all = unsafe { sys::rd_kafka_mock_get_requests(self.cluster.as_ptr(), &raw mut count) };
        // Of none there is no array.
        if all.is_null() {
            return Vec::new();
        }
        let request = |&request: &*mut sys::rd_kafka_mock_request_t| {
            // SAFETY: the array and what it points to are ours until they are
            // destroyed below.
            let (broker, api) = unsafe {
                (
                    sys::rd_kafka_mock_request_id(request),
                    sys::rd_kafka_mock_request_api_key(request),
                )
            };
            Request { broker, api: ApiKey(api) }
        };
        // SAFETY: librdkafka has made an array of `count` requests, none null.
        let requests = unsafe { slice::from_raw_parts(all, count) }.iter().map(request).collect();
        // SAFETY: it was given to us to be destroyed, and is not used again.
        unsafe { sys::rd_kafka_mock_request_destroy_array(all, count) };
        requests
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: nobody else has these handles. The cluster goes before the
        // client that it hangs on.
        unsafe {
            sys::rd_kafka_mock_cluster_destroy(self.cluster.as_ptr());
            sys::rd_kafka_destroy(self.client.as_ptr());
        }
    }
}

/// Makes the client that a cluster hangs on. It connects to nothing.
fn client() -> Result<NonNull<sys::rd_kafka_t>, BrokerFailure> {
    let mut reason = [0 as c_char; 512];
    // It would complain that it knows no brokers.
    let (name, value) = (c"log_level", c"3");
    // SAFETY: each pointer is to a text that ends with a zero, or to a buffer
    // whose length is said. The configuration belongs to the client if one is
    // made, and is destroyed if none is.
    let client = unsafe {
        let config = sys::rd_kafka_conf_new();
        let (reason, size) = (reason.as_mut_ptr(), reason.len());
        sys::rd_kafka_conf_set(config, name.as_ptr(), value.as_ptr(), reason, size);
        let kind = sys::rd_kafka_type_t::RD_KAFKA_PRODUCER;
        let client = sys::rd_kafka_new(kind, config, reason, size);
        if client.is_null() {
            sys::rd_kafka_conf_destroy(config);
        }
        client
    };
    NonNull::new(client).ok_or_else(|| {
        // SAFETY: librdkafka ends what it writes with a zero, and the buffer
        // was all zeros before.
        let reason = unsafe { CStr::from_ptr(ptr::from_ref(&reason).cast()) };
        BrokerFailure::Start { reason: reason.to_string_lossy().into_owned() }
    })
}

/// A text as C has it.
pub(super) fn text(text: &str) -> Result<CString, BrokerFailure> {
    CString::new(text).map_err(|_| BrokerFailure::Name { name: text.to_owned() })
}
