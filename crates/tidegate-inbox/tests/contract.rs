//! What the inbox owes to Tower, over services that hold it to that.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use tidegate_core::{
    Batch, Class, Delivery, Error, Identified, Lease, LeaseOwner, MessageId, Outcome, Outcomes,
    Record, TopicId,
};
use tidegate_inbox::{Inbox, InboxLayer, InboxService, Retention};
use tidegate_sql::{DbErr, InTransaction, Txn, effect_fn};
use tidegate_testkit::Strict;
use tokio_test::{assert_pending, assert_ready_ok};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_test::mock;

use crate::common::TestDatabase;

#[derive(Debug)]
struct Message(u128);

impl Identified for Message {
    fn message_id(&self) -> MessageId {
        self.0.into()
    }
}

type InTxn = InTransaction<Batch<Delivery<Message>>>;

/// A message, under a lease that is lost with its owner.
fn message(id: u128) -> (LeaseOwner, Batch<Delivery<Message>>) {
    let (owner, lease) = common::lease();
    let record = Record::new(lease.partition().clone(), 0, "");
    (owner, Batch::of_one(Delivery::new(lease, record).with_value(Message(id))))
}

fn layer(test: &TestDatabase) -> InboxLayer {
    InboxLayer::new(Inbox::new(test.database.clone()))
}

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let test = TestDatabase::sqlite().await;
    let (mut stack, mut handle) = mock::spawn_layer::<InTxn, Outcomes, _>(layer(&test));
    handle.allow(0);
    assert_pending!(stack.poll_ready::<Batch<Delivery<Message>>>());
    handle.allow(1);
    assert!(stack.is_woken());
    assert_ready_ok!(stack.poll_ready::<Batch<Delivery<Message>>>());
}

#[tokio::test]
async fn the_inner_services_error_passes_through() {
    let test = TestDatabase::sqlite().await;
    let (inner, mut handle) = mock::pair::<InTxn, Outcomes>();
    let (_owner, batch) = message(1);
    let call = tokio::spawn(layer(&test).layer(inner).oneshot(batch));
    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_error(Error::new(Class::Fatal, "no"));
    let error = call.await.unwrap().unwrap_err();
    assert_eq!((error.class(), &*error.chain()), (Class::Fatal, "the partition cannot go on: no"));
    assert_eq!(test.count("tidegate_inbox").await, 0);
}

#[tokio::test]
async fn the_readied_inner_service_is_the_one_called() {
    let test = TestDatabase::sqlite().await;
    let nothing = async |_: &Txn, _: &Message| -> Result<(), DbErr> { Ok(()) };
    let mut stack = layer(&test).layer(Strict::new(effect_fn(nothing)));
    for id in [1, 2] {
        let (_owner, batch) = message(id);
        let outcomes = (&mut stack).oneshot(batch).await.unwrap();
        assert_eq!(outcomes, Outcomes::all(Outcome::Applied, 1));
    }
}

#[tokio::test]
async fn a_lease_that_is_over_is_told_before_the_commit() {
    let test = TestDatabase::sqlite().await;
    let nothing = async |_: &Txn, _: &Message| -> Result<(), DbErr> { Ok(()) };
    let (owner, batch) = message(1);
    drop(owner);
    let error = layer(&test).layer(effect_fn(nothing)).oneshot(batch).await.unwrap_err();
    assert_eq!(error.class(), Class::Fenced);
}

#[test]
fn the_future_is_send_and_static() {
    fn check<S>(_: impl Fn(S))
    where
        S: Service<Batch<Delivery<Message>>, Future: Send + 'static>,
    {
    }
    check(|_: InboxService<mock::Mock<InTxn, Outcomes>>| ());
}

#[test]
fn pruning_can_run_in_a_task_of_its_own() {
    fn is_send<F: Send>(_: F) {}
    let check = |inbox: &Inbox, lease: &Lease| {
        is_send(inbox.prune(lease, &Retention::default()));
        is_send(inbox.accept_topic(lease.partition(), TopicId::new("id")));
    };
    let _ = check;
}
