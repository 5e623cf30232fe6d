//! What a proxy lets pass, and what not.

#![cfg(feature = "proxy")]

use std::{io, time::Duration};

use tidegate_testkit::{ApiKey, Message, Mode, Proxy, Toward, Traffic, Wire};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

const DEADLINE: Duration = Duration::from_secs(30);

/// A server that answers what it reads with the same, and tells what it read.
struct Server {
    addr: String,
    read: mpsc::Receiver<Vec<u8>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let addr = listener.local_addr().expect("it is bound").to_string();
        let (reads, read) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, reads.clone()));
            }
        });
        Self { addr, read }
    }

    /// What the server has read, up to so many bytes.
    async fn reads(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let read = timeout(DEADLINE, self.read.recv()).await.expect("something arrives");
            bytes.extend(read.expect("the server lives"));
        }
        bytes
    }

    fn has_read_nothing(&mut self) -> bool {
        self.read.try_recv().is_err()
    }
}

async fn serve(mut stream: TcpStream, reads: mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        // The test is over.
        if reads.send(buffer[..count].to_vec()).await.is_err() {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

async fn setup(wire: Wire) -> (Server, Proxy, TcpStream) {
    let server = Server::start().await;
    let proxy = Proxy::start(&server.addr, wire).await.expect("a port is free");
    let client = TcpStream::connect(proxy.addr()).await.expect("it listens");
    (server, proxy, client)
}

async fn read(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let read = timeout(DEADLINE, client.read_exact(&mut bytes)).await;
    read.expect("something arrives").expect("the connection lives");
    bytes
}

/// Whether the connection ends, without another byte.
async fn ends(client: &mut TcpStream) -> bool {
    let read = timeout(DEADLINE, client.read(&mut [0])).await.expect("something happens");
    read.map_or(true, |count| count == 0)
}

/// Waits until the proxy has seen what is looked for.
async fn until(proxy: &Proxy, is: impl Fn(Traffic) -> bool) {
    let seen = async {
        while !is(proxy.traffic()) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(DEADLINE, seen).await.expect("it is seen");
}

#[tokio::test]
async fn what_is_sent_arrives_in_both_directions() {
    let (mut server, proxy, mut client) = setup(Wire::Raw).await;
    client.write_all(b"one").await.unwrap();
    assert_eq!(server.reads(3).await, b"one");
    assert_eq!(read(&mut client, 3).await, b"one");
    let Traffic { connections, open, requests_delivered, replies_delivered, .. } = proxy.traffic();
    assert_eq!((connections, open, requests_delivered, replies_delivered), (1, 1, 3, 3));

    // An end is passed on, and comes back.
    client.shutdown().await.unwrap();
    assert!(ends(&mut client).await);
    until(&proxy, |traffic| traffic.open == 0).await;
}

#[tokio::test]
async fn what_is_delayed_comes_later() {
    let (_server, proxy, mut client) = setup(Wire::Raw).await;
    let delay = Duration::from_millis(50);
    proxy.set(Mode::Delay(delay)).await;
    let sent = Instant::now();
    client.write_all(b"one").await.unwrap();
    read(&mut client, 3).await;
    assert!(sent.elapsed() >= 2 * delay, "there and back");

    // What waits does not wait longer than the mode.
    proxy.set(Mode::Delay(Duration::from_secs(3600))).await;
    client.write_all(b"two").await.unwrap();
    until(&proxy, |traffic| traffic.requests_received == 6).await;
    proxy.set(Mode::Pass).await;
    assert_eq!(read(&mut client, 3).await, b"two");
}

#[tokio::test]
async fn what_is_throttled_takes_its_time() {
    let (_server, proxy, mut client) = setup(Wire::Raw).await;
    proxy.set(Mode::Throttle(1000)).await;
    let sent = Instant::now();
    client.write_all(&[7; 50]).await.unwrap();
    read(&mut client, 50).await;
    assert!(sent.elapsed() >= Duration::from_millis(100), "there and back");
}

#[tokio::test]
async fn half_open_toward_the_server_loses_nothing_and_tells_nobody() {
    let (mut server, proxy, mut client) = setup(Wire::Raw).await;
    proxy.set(Mode::HalfOpen(Toward::Server)).await;
    client.write_all(b"one").await.unwrap();
    until(&proxy, |traffic| traffic.requests_received == 3).await;
    let mut other = TcpStream::connect(proxy.addr()).await.unwrap();
    other.write_all(b"two").await.unwrap();
    until(&proxy, |traffic| traffic.requests_received == 6).await;
    assert_eq!(proxy.traffic().requests_delivered, 0);
    assert!(server.has_read_nothing());

    proxy.set(Mode::Pass).await;
    assert_eq!(read(&mut client, 3).await, b"one");
    assert_eq!(read(&mut other, 3).await, b"two");
}

#[tokio::test]
async fn half_open_toward_the_client_lets_requests_pass() {
    let (mut server, proxy, mut client) = setup(Wire::Raw).await;
    proxy.set(Mode::HalfOpen(Toward::Client)).await;
    client.write_all(b"one").await.unwrap();
    assert_eq!(server.reads(3).await, b"one");
    until(&proxy, |traffic| traffic.replies_received == 3).await;
    assert_eq!(proxy.traffic().replies_delivered, 0);
    assert!(client.try_read(&mut [0]).is_err());
    proxy.set(Mode::Pass).await;
    assert_eq!(read(&mut client, 3).await, b"one");
}

#[tokio::test]
async fn connections_are_cut_and_refused_until_the_mode_ends() {
    let (_server, proxy, mut client) = setup(Wire::Raw).await;
    until(&proxy, |traffic| traffic.open == 1).await;
    proxy.set(Mode::Cut).await;
    assert!(ends(&mut client).await);
    let refused = TcpStream::connect(proxy.addr()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

    proxy.set(Mode::Pass).await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    client.write_all(b"one").await.unwrap();
    assert_eq!(read(&mut client, 3).await, b"one");
}

#[tokio::test]
async fn new_connections_are_refused_and_old_ones_live_on() {
    let (_server, proxy, mut client) = setup(Wire::Raw).await;
    until(&proxy, |traffic| traffic.open == 1).await;
    proxy.set(Mode::Refuse).await;
    assert!(TcpStream::connect(proxy.addr()).await.is_err());
    client.write_all(b"one").await.unwrap();
    assert_eq!(read(&mut client, 3).await, b"one");
}

#[tokio::test]
async fn connections_are_closed_once_and_made_anew() {
    let (_server, proxy, mut client) = setup(Wire::Raw).await;
    until(&proxy, |traffic| traffic.open == 1).await;
    proxy.close_connections();
    assert!(ends(&mut client).await);
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    client.write_all(b"one").await.unwrap();
    assert_eq!(read(&mut client, 3).await, b"one");
}

#[tokio::test]
async fn without_a_server_a_connection_ends() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start(nobody.to_string(), Wire::Raw).await.unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert!(ends(&mut client).await);
}

#[tokio::test]
async fn a_proxy_that_is_dropped_closes_its_connections() {
    let (_server, proxy, mut client) = setup(Wire::Raw).await;
    client.write_all(b"one").await.unwrap();
    read(&mut client, 3).await;
    drop(proxy);
    assert!(ends(&mut client).await);
}

fn query(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len() + 5).expect("a query is short");
    [b"Q", &length.to_be_bytes()[..], text.as_bytes(), &[0]].concat()
}

const START: &[u8] = b"\0\0\0\x09\0\x03\0\0\0";

#[tokio::test]
async fn the_reply_to_one_message_is_held_and_comes_when_it_is_released() {
    let (mut server, proxy, mut client) = setup(Wire::Postgres).await;
    let held = proxy.hold_replies(Message::query("COMMIT"));
    let mut other = TcpStream::connect(proxy.addr()).await.unwrap();

    let begin = [START, &query("BEGIN")].concat();
    client.write_all(&begin).await.unwrap();
    assert_eq!(read(&mut client, begin.len()).await, begin);
    server.reads(begin.len()).await;
    assert!(held.reached(Duration::ZERO).await.is_err(), "there was no such message");

    // In two parts, as the network may have it.
    let commit = query("commit");
    client.write_all(&commit[..7]).await.unwrap();
    client.flush().await.unwrap();
    until(&proxy, |traffic| traffic.requests_received == begin.len() as u64 + 7).await;
    assert!(server.has_read_nothing(), "half a message is none");
    client.write_all(&commit[7..]).await.unwrap();
    held.reached(DEADLINE).await.unwrap();
    assert_eq!(server.reads(commit.len()).await, commit);
    held.answered(DEADLINE).await.unwrap();
    assert_eq!(held.waiting(), 1);
    assert!(client.try_read(&mut [0]).is_err());

    // Another connection is not concerned.
    other.write_all(&begin).await.unwrap();
    assert_eq!(read(&mut other, begin.len()).await, begin);

    held.release();
    assert_eq!(read(&mut client, commit.len()).await, commit);
    client.write_all(&commit).await.unwrap();
    assert_eq!(read(&mut client, commit.len()).await, commit);
}

fn request(api: ApiKey, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 2).expect("a request is short");
    [&length.to_be_bytes()[..], &api.0.to_be_bytes(), body].concat()
}

#[tokio::test]
async fn a_request_is_held_before_it_reaches_the_server_with_all_that_follows() {
    let (mut server, proxy, mut client) = setup(Wire::Kafka).await;
    let held = proxy.hold_requests(Message::request(ApiKey::OFFSET_COMMIT));
    let heartbeat = request(ApiKey::HEARTBEAT, b"first");
    let commit = request(ApiKey::OFFSET_COMMIT, b"commit");
    let behind = request(ApiKey::HEARTBEAT, b"behind");
    client.write_all(&[&heartbeat[..], &commit, &behind].concat()).await.unwrap();

    held.reached(DEADLINE).await.unwrap();
    assert_eq!(server.reads(heartbeat.len()).await, heartbeat);
    assert_eq!(read(&mut client, heartbeat.len()).await, heartbeat);
    assert!(server.has_read_nothing());
    let failure = held.answered(Duration::ZERO).await.unwrap_err();
    assert_eq!(failure.to_string(), "no such answer came within 0 ms");

    held.release();
    let rest = [commit, behind].concat();
    assert_eq!(server.reads(rest.len()).await, rest);
}

#[tokio::test]
async fn a_request_is_lost_and_what_follows_it_is_not() {
    let (mut server, proxy, mut client) = setup(Wire::Kafka).await;
    let lost = proxy.lose_requests(Message::request(ApiKey::HEARTBEAT));
    let heartbeat = request(ApiKey::HEARTBEAT, b"lost");
    let commit = request(ApiKey::OFFSET_COMMIT, b"commit");
    client.write_all(&[&heartbeat[..], &commit, &heartbeat].concat()).await.unwrap();

    lost.reached(DEADLINE).await.unwrap();
    assert_eq!(server.reads(commit.len()).await, commit);
    assert_eq!(read(&mut client, commit.len()).await, commit);
    let behind = request(ApiKey::OFFSET_COMMIT, b"behind");
    client.write_all(&behind).await.unwrap();
    assert_eq!(server.reads(behind.len()).await, behind);

    lost.release();
    client.write_all(&heartbeat).await.unwrap();
    assert_eq!(server.reads(heartbeat.len()).await, heartbeat);
}

#[tokio::test]
async fn what_is_held_can_be_thrown_away_with_its_connection() {
    let (mut server, proxy, mut client) = setup(Wire::Kafka).await;
    let held = proxy.hold_requests(Message::any());
    client.write_all(&request(ApiKey::FETCH, b"lost")).await.unwrap();
    held.reached(DEADLINE).await.unwrap();
    held.cut();
    assert!(ends(&mut client).await);
    assert!(server.has_read_nothing());

    let held = proxy.hold_replies(Message::any());
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    let fetch = request(ApiKey::FETCH, b"read");
    client.write_all(&fetch).await.unwrap();
    held.answered(DEADLINE).await.unwrap();
    assert_eq!(server.reads(fetch.len()).await, fetch);
    held.cut();
    assert!(ends(&mut client).await);
}

#[tokio::test]
async fn a_message_comes_to_the_server_although_its_client_is_gone() {
    let (mut server, proxy, mut client) = setup(Wire::Postgres).await;
    let held = proxy.hold_requests(Message::query("COMMIT"));
    let commit = query("COMMIT");
    client.write_all(&[START, &commit].concat()).await.unwrap();
    held.reached(DEADLINE).await.unwrap();
    server.reads(START.len()).await;
    assert_eq!(read(&mut client, START.len()).await, START);
    drop(client);
    held.release();
    assert_eq!(server.reads(commit.len()).await, commit);
}

mod with_a_database {
    use std::{env, process};

    use sqlx::{
        AssertSqlSafe, Connection as _, PgConnection,
        postgres::{PgConnectOptions, PgSslMode},
    };

    use super::{DEADLINE, Message, Proxy, Wire};

    // "COMMIT sent, reply not read": it is done, and whoever asked for it does
    // not know.
    #[tokio::test]
    async fn the_reply_to_a_commit_is_held_when_it_is_done() {
        let Ok(url) = env::var("TIDEGATE_DATABASE") else {
            eprintln!("skipped on PostgreSQL: TIDEGATE_DATABASE names none");
            return;
        };
        let options: PgConnectOptions = url.parse().expect("it is an address");
        let upstream = format!("{}:{}", options.get_host(), options.get_port());
        let proxy = Proxy::start(upstream, Wire::Postgres).await.unwrap();
        let through = options.clone().host("127.0.0.1").port(proxy.addr().port());
        let mut direct = PgConnection::connect_with(&options).await.unwrap();
        let through = through.ssl_mode(PgSslMode::Disable);
        let mut connection = PgConnection::connect_with(&through).await.unwrap();

        let table = format!("tidegate_proxy_{}", process::id());
        let create = format!("CREATE TABLE {table} (id int)");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut direct).await.unwrap();
        let insert = format!("INSERT INTO {table} VALUES (1)");
        let held = proxy.hold_replies(Message::query("COMMIT"));
        let commit = tokio::spawn(async move {
            let mut transaction = connection.begin().await?;
            sqlx::query(AssertSqlSafe(insert)).execute(&mut *transaction).await?;
            transaction.commit().await
        });
        held.answered(DEADLINE).await.unwrap();
        assert!(!commit.is_finished());
        let count = format!("SELECT count(*) FROM {table}");
        let count = sqlx::query_scalar::<_, i64>(AssertSqlSafe(count)).fetch_one(&mut direct).await;
        held.release();
        commit.await.unwrap().unwrap();
        let remove = format!("DROP TABLE {table}");
        sqlx::raw_sql(AssertSqlSafe(remove)).execute(&mut direct).await.unwrap();
        assert_eq!(count.unwrap(), 1);
    }
}

#[cfg(feature = "broker")]
mod with_a_broker {
    use rdkafka::{
        ClientConfig, TopicPartitionList,
        consumer::{BaseConsumer, CommitMode, Consumer as _},
        error::KafkaError,
        topic_partition_list::Offset,
    };
    use tidegate_testkit::{Broker, BrokerConfig};

    use super::{ApiKey, DEADLINE, Message, Proxy, Wire};

    const TOPIC: &str = "transfers";

    /// A broker behind a proxy, and a consumer that knows the proxy only. What
    /// looks at the group has connected before, and does so directly.
    async fn setup() -> (Broker, Proxy, BaseConsumer) {
        let config = BrokerConfig::default().with_topic(TOPIC, 1);
        let broker = Broker::start(config).expect("a port is free");
        broker.begin_group("group", [TOPIC]).expect("the group has no members");
        let proxy = Proxy::start(broker.bootstrap(), Wire::Kafka).await.expect("a port is free");
        broker.advertise(1, proxy.addr());
        let consumer = ClientConfig::new()
            .set("bootstrap.servers", proxy.addr().to_string())
            .set("group.id", "group")
            .create()
            .expect("the settings are right");
        (broker, proxy, consumer)
    }

    fn commit(consumer: &BaseConsumer) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(TOPIC, 0, Offset::Offset(7))?;
        consumer.commit(&list, CommitMode::Sync)
    }

    // What is at stake in "commit sent, answer not read": the group has it, the
    // member does not know.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_answer_to_a_commit_is_held_when_the_group_has_it() {
        let (broker, proxy, consumer) = setup().await;
        let held = proxy.hold_replies(Message::request(ApiKey::OFFSET_COMMIT));
        let commit = tokio::task::spawn_blocking(move || commit(&consumer));
        held.answered(DEADLINE).await.unwrap();
        assert!(!commit.is_finished());
        assert_eq!(broker.committed("group", TOPIC).unwrap(), [(0, Some(7))].into());
        held.release();
        commit.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_commit_is_held_before_the_group_has_it() {
        let (broker, proxy, consumer) = setup().await;
        let held = proxy.hold_requests(Message::request(ApiKey::OFFSET_COMMIT));
        let commit = tokio::task::spawn_blocking(move || commit(&consumer));
        held.reached(DEADLINE).await.unwrap();
        assert_eq!(broker.committed("group", TOPIC).unwrap(), [(0, Some(0))].into());
        held.release();
        commit.await.unwrap().unwrap();
        assert_eq!(broker.committed("group", TOPIC).unwrap(), [(0, Some(7))].into());
    }
}
