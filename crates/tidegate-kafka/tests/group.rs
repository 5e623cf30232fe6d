//! Operations on a group, on the embedded broker.

mod support;

use support::{broker, config};
use tidegate_kafka::group::{GroupAdmin, GroupError};
use tidegate_testkit::{ApiKey, ErrorCode};

// A group is asked about first thing after a cluster has started.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_not_ready_is_asked_again() {
    let broker = broker(2, 3);
    let admin = GroupAdmin::new(&config(&broker)).expect("the settings are right");
    broker.fail_requests(
        ApiKey::OFFSET_FETCH,
        &[ErrorCode::CoordinatorLoadInProgress, ErrorCode::CoordinatorNotAvailable],
    );
    // The embedded broker names none where it is asked for all.
    assert!(admin.offsets().await.expect("the third time it is ready").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_error_is_not_waited_out() {
    let broker = broker(1, 1);
    let admin = GroupAdmin::new(&config(&broker)).expect("the settings are right");
    broker.fail_requests(ApiKey::OFFSET_FETCH, &[ErrorCode::GroupAuthorizationFailed]);
    let refused = admin.offsets().await.unwrap_err();
    let code = ErrorCode::GroupAuthorizationFailed;
    assert!(matches!(refused, GroupError::Refused { code: found, .. } if found == code));
}
