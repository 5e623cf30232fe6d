//! How long a session is under the consumer protocol: the broker says it.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    consumer::{BaseConsumer, Consumer as _},
    error::RDKafkaErrorCode as Code,
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{
    KafkaConfig,
    admin::{self, Facts, Request},
    config::Session,
    ffi::{self, Queue},
};

const TIMEOUT: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

// A broker that does not answer cannot be consumed from either: it is asked
// again until it does.
const AGAIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the group's session from the broker, for as long as it takes.
pub(crate) async fn of_group(config: &KafkaConfig) -> Session {
    loop {
        let config = config.clone();
        let asked = spawn_blocking(move || ask(&config)).await;
        match asked.unwrap_or_else(|error| Err(Unknown::ForNow(error.to_string()))) {
            Ok(entries) => return session(&entries),
            Err(Unknown::ForGood(reason)) => {
                tracing::warn!(
                    reason,
                    "the broker does not tell the group's session: taken to be Kafka's default, \
                     unless `KafkaConfig::group_session` says otherwise",
                );
                return Session::BROKERS_DEFAULT;
            }
            Err(Unknown::ForNow(reason)) => {
                tracing::warn!(reason, "the group's session is not known yet");
            }
        }
        sleep(AGAIN).await;
    }
}

enum Unknown {
    /// No broker answered.
    ForNow(String),
    /// A broker answered, and will not say.
    ForGood(String),
}

fn ask(config: &KafkaConfig) -> Result<BTreeMap<String, String>, Unknown> {
    let for_now = |reason: &dyn ToString| Unknown::ForNow(reason.to_string());
    let consumer: BaseConsumer = config.plain_client().create().map_err(|error| for_now(&error))?;
    ffi::ask_once(consumer, |consumer| {
        let metadata =
            consumer.client().fetch_metadata(None, PATIENCE).map_err(|error| for_now(&error))?;
        let broker = metadata.brokers().first().ok_or_else(|| for_now(&"there is no broker"))?.id();
        let answers = Queue::new(consumer.client());
        let request = Request::Config { group: config.group().to_owned(), broker };
        admin::ffi::ask(consumer.client(), &answers, 0, &request);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(answer) = admin::ffi::answer_within(&answers, left) {
                return match answer.result {
                    Ok(Facts::Config(entries)) => Ok(entries),
                    Ok(_) => Err(for_now(&"an answer to no question")),
                    Err(failure) if is_transient(failure.code) => Err(for_now(&failure)),
                    Err(failure) => Err(Unknown::ForGood(failure.to_string())),
                };
            }
            if left.is_zero() {
                return Err(for_now(&"no answer in time"));
            }
        }
    })
}

fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
    )
}

fn session(entries: &BTreeMap<String, String>) -> Session {
    let entry = |name| entries.get(name)?.parse().ok().map(Duration::from_millis);
    let Session { timeout, heartbeat } = Session::BROKERS_DEFAULT;
    Session {
        timeout: entry(TIMEOUT).unwrap_or(timeout),
        heartbeat: entry(HEARTBEAT).unwrap_or(heartbeat),
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, HEARTBEAT, Session, TIMEOUT, session};

    #[test]
    fn a_session_is_what_the_broker_says() {
        let entries = [(TIMEOUT, "6000"), (HEARTBEAT, "500"), ("other", "x")];
        let entries = entries.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let timeout = Duration::from_secs(6);
        assert_eq!(session(&entries), Session { timeout, heartbeat: Duration::from_millis(500) });
        assert_eq!(session(&[].into()), Session::BROKERS_DEFAULT);
    }
}
