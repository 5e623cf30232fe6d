//! Asks services whether they are there, by the smallest real request.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::missing::Missing;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(5);

// The requests of Kafka's protocol that are used here, by number and version.
const METADATA: (i16, i16) = (3, 1);
const API_VERSIONS: (i16, i16) = (18, 0);

/// The request that members of the consumer protocol live by, since Kafka 4.0
/// part of each release.
const CONSUMER_GROUP_HEARTBEAT: i16 = 68;

/// The oldest PostgreSQL that is tested, as `server_version_num`.
const OLDEST_POSTGRES: u32 = 150_000;

/// The ids of the brokers that the broker at `address` knows to be alive.
pub(super) fn brokers(address: SocketAddr) -> Result<Vec<i32>> {
    // Of no topic: an array of none.
    let answer = ask(address, METADATA, &0_i32.to_be_bytes())?;
    let mut answer = answer.as_slice();
    let count = read_i32(&mut answer)?;
    (0..count)
        .map(|_| {
            let id = read_i32(&mut answer)?;
            // Its host, its port and its rack.
            skip_string(&mut answer)?;
            read_i32(&mut answer)?;
            skip_string(&mut answer)?;
            Ok(id)
        })
        .collect()
}

/// Whether one of the brokers answers, and is new enough.
pub(super) fn check_kafka(bootstrap: &str) -> Result<()> {
    let remedy = "start it, or leave the address out to have one started";
    let mut refused = None;
    for address in bootstrap.split(',').map(str::trim) {
        match resolve(address).and_then(keys) {
            Ok(keys) if keys.contains(&CONSUMER_GROUP_HEARTBEAT) => return Ok(()),
            Ok(_) => {
                let what = format!("the Kafka at {address} does not speak the consumer protocol");
                return Err(Missing::new(what, "use Kafka 4.0 or newer").into());
            }
            Err(error) => refused = Some(format!("no Kafka answers at {address} ({error:#})")),
        }
    }
    Err(Missing::new(refused.unwrap_or_else(|| "no address of a Kafka".to_owned()), remedy).into())
}

/// The version of the PostgreSQL behind `url`, if it can be used.
pub(super) fn check_postgres(url: &str) -> Result<String> {
    let mut config: postgres::Config =
        url.parse().map_err(|error| shown("the database's address is not one", &error))?;
    config.connect_timeout(LIMIT);
    // What takes connections and says nothing may be no PostgreSQL; the time limit of
    // the client is for the connection alone.
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(version_of(&config)));
    let silent = || Missing::new("what answers there is no PostgreSQL, or a busy one", REMEDY);
    let version = answered.recv_timeout(2 * LIMIT).map_err(|_| silent())?;
    let (version, number) =
        version.map_err(|error| shown("the database cannot be connected to", &error))?;
    if u32::try_from(number).is_ok_and(|number| number < OLDEST_POSTGRES) {
        let what = format!("the database is PostgreSQL {version}");
        return Err(Missing::new(what, "use PostgreSQL 15 or newer").into());
    }
    Ok(version)
}

/// What a server says of its version, in words and as a number.
fn version_of(config: &postgres::Config) -> Result<(String, i32), postgres::Error> {
    let row = config.connect(postgres::NoTls)?.query_one(
        "SELECT current_setting('server_version'), current_setting('server_version_num')::int",
        &[],
    )?;
    Ok((row.get(0), row.get(1)))
}

const REMEDY: &str = "check the URL, postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// An error on one line, with its cause, and without the password in the URL.
fn shown(what: &str, error: &postgres::Error) -> anyhow::Error {
    let mut what = format!("{what} ({error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        what = format!("{what}: {error}");
        cause = error.source();
    }
    Missing::new(what + ")", REMEDY).into()
}

fn resolve(address: &str) -> Result<SocketAddr> {
    let mut addresses = address.to_socket_addrs().context("not of the form HOST:PORT")?;
    addresses.next().context("the name has no address")
}

/// The numbers of the requests that a broker answers.
fn keys(address: SocketAddr) -> Result<Vec<i16>> {
    let answer = ask(address, API_VERSIONS, &[])?;
    let mut answer = answer.as_slice();
    let code = read_i16(&mut answer)?;
    if code != 0 {
        bail!("the broker answered with error {code}");
    }
    let count = read_i32(&mut answer)?;
    (0..count)
        .map(|_| {
            let key = read_i16(&mut answer)?;
            // The versions, from and to.
            read_i32(&mut answer)?;
            Ok(key)
        })
        .collect()
}

/// Sends one request of Kafka's protocol and reads the body of its answer.
fn ask(address: SocketAddr, (key, version): (i16, i16), body: &[u8]) -> Result<Vec<u8>> {
    const CORRELATION: i32 = 1;
    // The client's name: none.
    const CLIENT: i16 = -1;
    // No answer to these requests is near as long: whoever sends one is no broker.
    const LONGEST: i32 = 1 << 20;

    let mut request = Vec::new();
    request.extend(key.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(CORRELATION.to_be_bytes());
    request.extend(CLIENT.to_be_bytes());
    request.extend(body);

    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(&i32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;

    let length = read_i32(&mut stream)?;
    if !(4..=LONGEST).contains(&length) || read_i32(&mut stream)? != CORRELATION {
        bail!("what answers there is no Kafka");
    }
    let mut answer = vec![0; usize::try_from(length - 4)?];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn read_i32(from: &mut impl io::Read) -> io::Result<i32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(i32::from_be_bytes(bytes))
}

/// Passes over a string, or none, which has the length -1.
fn skip_string(from: &mut impl io::Read) -> io::Result<()> {
    let length = u64::try_from(read_i16(from)?).unwrap_or(0);
    let read = io::copy(&mut from.take(length), &mut io::sink())?;
    if read < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn read_i16(from: &mut impl io::Read) -> io::Result<i16> {
    let mut bytes = [0; 2];
    from.read_exact(&mut bytes)?;
    Ok(i16::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpListener},
        thread,
    };

    use super::{brokers, check_kafka, check_postgres};

    /// Answers one connection with `answer`, whatever it asks.
    fn serve(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the test connects");
            stream.read_exact(&mut [0; 14]).expect("each request is at least as long");
            stream.write_all(answer).expect("the test reads");
        });
        address
    }

    #[test]
    fn a_broker_that_knows_the_consumer_protocol_is_taken() {
        let new = b"\0\0\0\x10\0\0\0\x01\0\0\0\0\0\x01\0\x44\0\0\0\x01";
        check_kafka(&serve(new).to_string()).unwrap();
        let old = b"\0\0\0\x10\0\0\0\x01\0\0\0\0\0\x01\0\x03\0\0\0\x01";
        let error = check_kafka(&serve(old).to_string()).unwrap_err().to_string();
        assert!(error.ends_with("use Kafka 4.0 or newer"), "{error}");
    }

    #[test]
    fn the_brokers_of_a_cluster_are_told() {
        let answer = b"\0\0\0\x22\0\0\0\x01\0\0\0\x02\
            \0\0\0\x07\0\x02ab\0\0\0\x50\xff\xff\0\0\0\x09\xff\xff\0\0\0\x51\0\0";
        assert_eq!(brokers(serve(answer)).unwrap(), [7, 9]);
        let cut = b"\0\0\0\x0e\0\0\0\x01\0\0\0\x02\0\0\0\x07\0\x02";
        brokers(serve(cut)).unwrap_err();
    }

    #[test]
    fn what_is_no_broker_is_refused_on_one_line() {
        for address in
            [&serve(b"HTTP/1.1 400 Bad Request\r\n\r\n").to_string(), "nowhere", "127.0.0.1:1"]
        {
            let error = check_kafka(address).unwrap_err().to_string();
            assert!(error.contains(address) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown_when_a_database_is_not_there() {
        for url in ["postgres://u:secret@127.0.0.1:1/d", "postgres://u:secret@:bad/d"] {
            let error = format!("{:#}", check_postgres(url).unwrap_err());
            assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
        }
    }
}
