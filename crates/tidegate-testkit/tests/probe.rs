//! Barriers, poll by poll on a paused clock.

use std::{convert::Infallible, env, io, process::Command as Process, time::Duration};

use tidegate_core::{Batch, Delivery, Epoch, Lease, LeaseOwner, Record, TopicPartition};
use tidegate_testkit::{
    Command, Echo, Event, Located as _, Place, Point, ProbeLayer, Probes, Strict, When,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    time,
};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_test::{assert_request_eq, mock};

const DEADLINE: Duration = Duration::from_secs(5);

fn place(partition: i32, offset: i64) -> Place {
    Place::new("transfers", partition, offset)
}

async fn readied<S: Service<Place, Error = Infallible>>(service: &mut S) -> &mut S {
    service.ready().await.expect("these services do not fail")
}

#[tokio::test(start_paused = true)]
async fn what_is_held_before_a_call_is_not_called_and_not_overtaken() {
    let probes = Probes::new();
    let held = probes.hold(Point::BeforeBegin, When::any().partition(0));
    let layer = ProbeLayer::new(&probes, Point::BeforeBegin);
    let (mut service, mut inner) = mock::spawn_layer::<Place, (), _>(layer);

    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(place(0, 7)));
    assert_pending!(response.poll());
    assert_pending!(inner.poll_request());
    assert_pending!(service.poll_ready());
    assert_eq!(held.reached(DEADLINE).await.unwrap(), [place(0, 7)]);
    assert_eq!(held.waiting(), 1);

    held.release();
    assert!(response.is_woken(), "the barrier must wake what it holds");
    assert_pending!(response.poll());
    assert_request_eq!(inner, place(0, 7)).send_response(());
    assert_ready_ok!(response.poll());
    assert!(service.is_woken(), "the service must wake who waits for it");
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn what_is_held_after_a_call_was_called() {
    let probes = Probes::new();
    let held = probes.hold(Point::AfterEffect, When::any());
    let layer = ProbeLayer::new(&probes, Point::AfterEffect);
    let (mut service, mut inner) = mock::spawn_layer::<Place, &str, _>(layer);

    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(place(0, 7)));
    let reply = assert_request_eq!(inner, place(0, 7));
    assert_pending!(response.poll());
    assert_eq!(held.waiting(), 0, "the effect is not made yet");

    reply.send_response("done");
    assert_pending!(response.poll());
    assert_eq!(held.waiting(), 1);
    // A barrier behind a call keeps nobody from the next one.
    assert_ready_ok!(service.poll_ready());

    held.release();
    assert_eq!(assert_ready_ok!(response.poll()), "done");
}

#[tokio::test(start_paused = true)]
async fn what_failed_does_not_come_to_a_point_behind_it() {
    let probes = Probes::new();
    let held = probes.hold(Point::AfterEffect, When::any());
    let layer = ProbeLayer::new(&probes, Point::AfterEffect);
    let (mut service, mut inner) = mock::spawn_layer::<Place, (), _>(layer);

    assert_ready_ok!(service.poll_ready());
    let mut response = task::spawn(service.call(place(0, 7)));
    assert_request_eq!(inner, place(0, 7)).send_error("no");
    assert!(assert_ready!(response.poll()).is_err());
    assert_eq!(held.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_barrier_is_not_for_passes() {
    let probes = Probes::new();
    let _held = probes.hold(Point::BeforeBegin, When::at(&place(0, 7)));
    let elsewhere = probes.hold(Point::AfterMarker, When::any());
    let mut service = ProbeLayer::new(&probes, Point::BeforeBegin).layer(Echo);

    for place in [place(0, 6), place(1, 7)] {
        let echoed = (&mut service).oneshot(place.clone()).await;
        assert_eq!(echoed, Ok::<_, Infallible>(place));
    }
    let error = elsewhere.reached(DEADLINE).await.unwrap_err();
    assert_eq!(error.to_string(), "nothing came to after-marker for *:*@* within 5000 ms");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_is_held_leaves_the_service_ready() {
    let probes = Probes::new();
    let held = probes.hold(Point::BeforeBegin, When::at(&place(0, 7)));
    let strict = Strict::new(Echo);
    let mut service = ProbeLayer::new(&probes, Point::BeforeBegin).layer(strict);

    readied(&mut service).await;
    let mut response = task::spawn(service.call(place(0, 7)));
    assert_pending!(response.poll());
    assert_eq!(held.waiting(), 1);
    drop(response);
    assert_eq!(held.waiting(), 0);
    assert_eq!((&mut service).oneshot(place(0, 8)).await, Ok(place(0, 8)));
}

#[tokio::test(start_paused = true)]
async fn the_readied_inner_service_is_the_one_called() {
    let probes = Probes::new();
    let mut service = ProbeLayer::new(&probes, Point::Admitted).layer(Strict::new(Echo));
    for offset in 0..2 {
        assert_eq!((&mut service).oneshot(place(0, offset)).await, Ok(place(0, offset)));
    }
    // Held, it is moved to where it is called.
    let held = probes.hold(Point::Admitted, When::any());
    readied(&mut service).await;
    let mut response = task::spawn(service.call(place(0, 2)));
    assert_pending!(response.poll());
    held.release();
    assert_eq!(assert_ready_ok!(response.poll()), place(0, 2));
}

#[tokio::test(start_paused = true)]
async fn several_requests_wait_at_one_barrier_and_a_new_one_catches_again() {
    let probes = Probes::new();
    let held = probes.hold(Point::AfterEffect, When::any());
    let reach = |offset| {
        let probes = probes.clone();
        task::spawn(async move { probes.reach(Point::AfterEffect, &[place(0, offset)]).await })
    };
    let mut waiting = [reach(0), reach(1), reach(2)];
    for waits in &mut waiting {
        assert_pending!(waits.poll());
    }
    assert_eq!(held.waiting(), 3);
    // Behind it stands another one.
    let second = probes.hold(Point::AfterEffect, When::any().offset(1));
    held.release();
    assert_ready!(waiting[0].poll());
    assert_pending!(waiting[1].poll());
    assert_ready!(waiting[2].poll());
    drop(second);
    assert_ready!(waiting[1].poll());
    assert_ready!(reach(3).poll());
}

#[tokio::test(start_paused = true)]
async fn a_disarmed_point_lets_everything_pass() {
    let probes = Probes::new();
    let held = probes.hold(Point::Completed, When::any());
    probes.panic(Point::Completed, When::any().offset(1));
    let mut waits = task::spawn({
        let probes = probes.clone();
        async move { probes.reach(Point::Completed, &[place(0, 0)]).await }
    });
    assert_pending!(waits.poll());
    probes.disarm(Point::Completed);
    assert!(waits.is_woken());
    assert_ready!(waits.poll());
    probes.reach(Point::Completed, &[place(0, 1)]).await;
    assert_eq!(held.waiting(), 0);
}

#[tokio::test]
async fn work_panics_where_it_is_told_and_the_service_lives_on() {
    let probes = Probes::new();
    probes.panic(Point::BeforeBegin, When::at(&place(0, 7)));
    let mut service = ProbeLayer::new(&probes, Point::BeforeBegin).layer(Strict::new(Echo));

    let panics = tokio::spawn(readied(&mut service).await.call(place(0, 7)));
    let panic = panics.await.unwrap_err().into_panic();
    assert_eq!(*panic.downcast::<String>().unwrap(), "a test panics at before-begin");
    assert_eq!((&mut service).oneshot(place(0, 8)).await, Ok(place(0, 8)));
}

// Tower's retry clones what it has just called.
#[tokio::test(start_paused = true)]
async fn a_probe_that_holds_can_be_cloned_and_the_clone_holds_too() {
    let probes = Probes::new();
    let held = probes.hold(Point::BeforeBegin, When::any());
    let mut service = ProbeLayer::new(&probes, Point::BeforeBegin).layer(Strict::new(Echo));

    let mut response = task::spawn(readied(&mut service).await.call(place(0, 7)));
    assert_pending!(response.poll());
    let mut clone = service.clone();
    let mut other = task::spawn(readied(&mut clone).await.call(place(0, 8)));
    assert_pending!(other.poll());
    assert_eq!(held.waiting(), 2);

    held.release();
    assert_eq!(assert_ready!(response.poll()), Ok(place(0, 7)));
    assert_eq!(assert_ready!(other.poll()), Ok(place(0, 8)));
    assert_eq!((&mut service).oneshot(place(0, 9)).await, Ok(place(0, 9)));
}

#[test]
#[should_panic(expected = "no layer stands at commit-sent: a proxy holds what comes there")]
fn a_layer_cannot_stand_between_processes() {
    let _ = ProbeLayer::new(&Probes::new(), Point::CommitSent);
}

// Runs itself, in a process that can be ended.
#[tokio::test]
async fn a_process_ends_where_it_is_told() {
    const CHILD: &str = "TIDEGATE_TESTKIT_CHILD";
    if env::var_os(CHILD).is_some() {
        let probes = Probes::new();
        probes.exit(Point::AfterMarker, When::any(), 42);
        probes.reach(Point::AfterMarker, &[place(0, 0)]).await;
        unreachable!("the process has ended");
    }
    let own = env::current_exe().expect("a test is a file");
    let mut child = Process::new(own);
    child.args(["--exact", "a_process_ends_where_it_is_told"]).env(CHILD, "1");
    let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap();
    assert_eq!(output.expect("it can be run").status.code(), Some(42));
}

fn delivery(offset: i64) -> (LeaseOwner, Delivery) {
    let partition = TopicPartition::new("transfers", 3);
    let (owner, lease) = Lease::grant(partition.clone(), Epoch::new(1, "member"));
    (owner, Delivery::new(lease, Record::new(partition, offset, "payload")))
}

#[test]
fn a_batch_is_about_all_its_deliveries() {
    let (_owner, delivery) = delivery(7);
    assert_eq!(delivery.places(), [place(3, 7)]);
    let batch = Batch::new(vec![delivery.clone().into(), delivery.into()]).unwrap();
    assert_eq!(batch.places(), [place(3, 7), place(3, 7)]);
}

#[tokio::test]
async fn a_request_of_another_crate_is_located_by_a_function() {
    #[derive(Debug)]
    struct InTransaction(Delivery);
    let probes = Probes::new();
    let held = probes.hold(Point::AfterMarker, When::any().offset(7));
    let layer =
        ProbeLayer::new(&probes, Point::AfterMarker).located_by(|it: &InTransaction| it.0.places());
    let (_owner, delivery) = delivery(7);
    let mut response = task::spawn(layer.layer(Echo).oneshot(InTransaction(delivery)));
    assert_pending!(response.poll());
    assert_eq!(held.reached(DEADLINE).await.unwrap(), [place(3, 7)]);
}

#[tokio::test(start_paused = true)]
async fn an_experiment_holds_the_probes_of_another_process_over_a_pipe() {
    let probes = Probes::new();
    let (mut experiment, process) = tokio::io::duplex(1024);
    let (commands, events) = tokio::io::split(process);
    let serving = tokio::spawn({
        let probes = probes.clone();
        async move { probes.serve(BufReader::new(commands), events).await }
    });
    let (answers, mut orders) = tokio::io::split(&mut experiment);
    let mut answers = BufReader::new(answers).lines();
    let mut order = async |line: &str| orders.write_all(format!("{line}\n").as_bytes()).await;
    let mut answer = async || -> io::Result<Event> {
        let line = time::timeout(DEADLINE, answers.next_line()).await??;
        Ok(line.expect("the pipe is open").parse().expect("it is an event"))
    };

    let hold = "hold 5 after-effect transfers:0@7..";
    order(hold).await.unwrap();
    assert_eq!(answer().await.unwrap(), Event::Done(hold.parse::<Command>().unwrap()));
    order(hold).await.unwrap();
    assert_eq!(answer().await.unwrap(), Event::Refused(hold.to_owned()), "5 is taken");
    let work = tokio::spawn({
        let probes = probes.clone();
        async move { probes.reach(Point::AfterEffect, &[place(0, 9)]).await }
    });
    let reached = Event::Reached { id: 5, places: vec![place(0, 9)] };
    assert_eq!(answer().await.unwrap(), reached);
    assert!(!work.is_finished());
    order("release 5").await.unwrap();
    assert_eq!(answer().await.unwrap().to_string(), "done release 5");
    work.await.unwrap();

    order("release 5").await.unwrap();
    assert_eq!(answer().await.unwrap(), Event::Refused("release 5".to_owned()));
    order("panic after-effect *:*@*").await.unwrap();
    assert_eq!(answer().await.unwrap().to_string(), "done panic after-effect *:*@*");
    order("disarm after-effect").await.unwrap();
    assert_eq!(answer().await.unwrap().to_string(), "done disarm after-effect");

    // An experiment that goes leaves nothing held.
    order("hold 6 completed *:*@*").await.unwrap();
    answer().await.unwrap();
    drop(experiment);
    serving.await.unwrap().unwrap();
    time::timeout(DEADLINE, probes.reach(Point::Completed, &[place(0, 0)])).await.unwrap();
}

// A future that takes a service with it has to go to another thread.
#[test]
fn futures_of_probes_are_send() {
    fn check<T: Send>(_: T) {}
    let probes = Probes::new();
    check(probes.reach(Point::Admitted, &[]));
    check(ProbeLayer::new(&probes, Point::Admitted).layer(Echo).call(place(0, 0)));
}
