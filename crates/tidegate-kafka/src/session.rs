//! How long a session is under the consumer protocol: the broker says it.

use std::time::Duration;

use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier},
    client::DefaultClientContext,
    error::RDKafkaErrorCode as Code,
};
use tokio::time::sleep;

use crate::{KafkaConfig, config::Session};

const TIMEOUT: &str = "consumer.session.timeout.ms";
const HEARTBEAT: &str = "consumer.heartbeat.interval.ms";

// A broker that does not answer cannot be consumed from either: it is asked
// again until it does.
const AGAIN: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(10);

/// Reads the group's session from the broker, for as long as it takes.
pub(crate) async fn of_group(config: &KafkaConfig) -> Session {
    let client: Result<AdminClient<DefaultClientContext>, _> = config.plain_client().create();
    let Ok(client) = client else { return Session::BROKERS_DEFAULT };
    let resource = [ResourceSpecifier::Group(config.group())];
    let options = AdminOptions::new().request_timeout(Some(ANSWER));
    loop {
        let reason = match client.describe_configs(&resource, &options).await {
            Ok(results) => match results.into_iter().next() {
                Some(Ok(group)) => return of(&group),
                Some(Err(code @ (Code::UnsupportedVersion | Code::InvalidRequest))) => {
                    tracing::warn!(
                        %code,
                        "the broker does not tell the group's session: taken to be Kafka's default, \
                         unless `KafkaConfig::group_session` says otherwise",
                    );
                    return Session::BROKERS_DEFAULT;
                }
                Some(Err(code)) => code.to_string(),
                None => "no answer".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(reason, "the group's session is not known yet");
        sleep(AGAIN).await;
    }
}

fn of(group: &ConfigResource) -> Session {
    let entry = |name| {
        let value = group.get(name).and_then(|entry| entry.value.as_deref());
        value.and_then(|value| value.parse().ok()).map(Duration::from_millis)
    };
    let Session { timeout, heartbeat } = Session::BROKERS_DEFAULT;
    let timeout = entry(TIMEOUT).unwrap_or(timeout);
    Session { timeout, heartbeat: entry(HEARTBEAT).unwrap_or(heartbeat) }
}
