//! What the sequencer owes to Tower, over services that hold it to that.

#[path = "../../tidegate-sql/tests/common/mod.rs"]
mod common;

use tidegate_core::{
    Batch, BoxError, Class, Delivery, Error, Lease, LeaseOwner, Outcome, Outcomes, Record,
    Sequenced,
};
use tidegate_sequencer::{Parked, Sequencer, SequencerLayer, SequencerService};
use tidegate_sql::{Database, DbErr, InTransaction, Txn, effect_fn};
use tidegate_testkit::Strict;
use tokio_test::{assert_pending, assert_ready_ok};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_test::mock;

use crate::common::TestDatabase;

#[derive(Debug)]
struct Revision(i64);

impl Sequenced for Revision {
    fn entity(&self) -> &[u8] {
        b"a"
    }

    fn revision(&self) -> i64 {
        self.0
    }
}

type InTxn = InTransaction<Batch<Delivery<Revision>>>;

fn decode(_: &Record) -> Result<Revision, BoxError> {
    Err("nothing is parked here".into())
}

fn layer() -> SequencerLayer<Revision> {
    SequencerLayer::new(Sequencer::parking(decode))
}

/// A delta in a transaction, under a lease that is lost with its owner.
fn request(txn: Txn, revision: i64) -> (LeaseOwner, InTxn) {
    let (owner, lease) = common::lease();
    let record = Record::new(lease.partition().clone(), revision, "");
    let delivery = Delivery::new(lease, record).with_value(Revision(revision));
    (owner, InTransaction::new(txn, Batch::of_one(delivery)))
}

#[tokio::test]
async fn readiness_is_the_inner_services() {
    let (mut stack, mut handle) = mock::spawn_layer::<InTxn, Outcomes, _>(layer());
    handle.allow(0);
    assert_pending!(stack.poll_ready::<InTxn>());
    handle.allow(1);
    assert!(stack.is_woken());
    assert_ready_ok!(stack.poll_ready::<InTxn>());
}

#[tokio::test]
async fn the_inner_services_error_passes_through() {
    let test = TestDatabase::sqlite().await;
    let owner = test.database.begin().await.unwrap();
    let (_lease, request) = request(owner.txn(), 1);
    let (inner, mut handle) = mock::pair::<InTxn, Outcomes>();
    let call = tokio::spawn(layer().layer(inner).oneshot(request));
    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_error(Error::new(Class::Poison, "no"));
    let error = call.await.unwrap().unwrap_err();
    assert_eq!((error.class(), error.culprit()), (Class::Poison, None));
}

#[tokio::test]
async fn the_readied_inner_service_is_the_one_called() {
    let test = TestDatabase::sqlite().await;
    let owner = test.database.begin().await.unwrap();
    let nothing = async |_: &Txn, _: &Revision| -> Result<(), DbErr> { Ok(()) };
    let mut stack = layer().layer(Strict::new(effect_fn(nothing)));
    for revision in [1, 2] {
        let (_lease, request) = request(owner.txn(), revision);
        let outcomes = (&mut stack).oneshot(request).await.unwrap();
        assert_eq!(outcomes, Outcomes::all(Outcome::Applied, 1));
    }
}

#[tokio::test]
async fn what_does_not_pass_does_not_reach_the_inner_service() {
    let test = TestDatabase::sqlite().await;
    let owner = test.database.begin().await.unwrap();
    let (inner, mut handle) = mock::pair::<InTxn, Outcomes>();
    let (_lease, request) = request(owner.txn(), 7);
    let outcomes = layer().layer(inner).oneshot(request).await.unwrap();
    assert_eq!(outcomes, Outcomes::all(Outcome::Parked, 1));
    assert!(handle.next_request().await.is_none());
}

#[test]
fn the_future_is_send_and_static() {
    fn check<S>(_: impl Fn(S))
    where
        S: Service<InTxn, Future: Send + 'static>,
    {
    }
    check(|_: SequencerService<mock::Mock<InTxn, Outcomes>, Revision>| ());
}

#[test]
fn upkeep_can_run_in_a_task_of_its_own() {
    fn is_send<F: Send>(_: F) {}
    let check = |sequencer: Sequencer<Revision>, database: &Database, lease: &Lease| {
        let nothing = async |_: &Txn, _: &Revision| -> Result<(), DbErr> { Ok(()) };
        is_send(sequencer.sweep(database, lease, effect_fn(nothing)));
        is_send(sequencer.give_up_aged(database));
        is_send(Parked::new(database.clone()).skip_to(b"a", 1));
    };
    let _ = check;
}
