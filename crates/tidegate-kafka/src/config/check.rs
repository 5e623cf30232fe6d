use std::{cmp::min, time::Duration};

use rdkafka::{ClientConfig, config::RDKafkaLogLevel, error::KafkaError};

use super::{
    KafkaConfig, OnFailure, StartPosition,
    properties::{CLASSIC_DEFAULTS, DEFAULTS, FIXED, shown},
};

/// A configuration that cannot work, or would break a guarantee.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The property has to be what it is.
    #[error("`{property}` has to be `{needed}`, not `{value}`: {reason}")]
    #[non_exhaustive]
    Fixed {
        /// Its name.
        property: String,
        /// What it was set to.
        value: String,
        /// What it has to be.
        needed: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// The property is set in another way.
    #[error("`{property}` is not set as a property: {instead}")]
    #[non_exhaustive]
    Elsewhere {
        /// Its name.
        property: String,
        /// How it is set.
        instead: &'static str,
    },
    /// The value is none that the property may have.
    #[error("`{property}` = `{value}`: {reason}")]
    #[non_exhaustive]
    Value {
        /// Its name.
        property: String,
        /// What it was set to.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Assignors of both kinds in one list.
    #[error(
        "`partition.assignment.strategy` = `{value}` mixes eager and cooperative assignors: choose \
         `range`, `roundrobin` or both, or `cooperative-sticky` alone"
    )]
    #[non_exhaustive]
    MixedAssignors {
        /// The list.
        value: String,
    },
    /// A drain that may take longer than the broker waits.
    #[error(
        "a drain of {drain:?} does not fit into half of `max.poll.interval.ms` = {poll_interval:?}: \
         the broker would give all partitions away; shorten the one or lengthen the other"
    )]
    #[non_exhaustive]
    DrainTooLong {
        /// The deadline of drains.
        drain: Duration,
        /// The longest time between polls.
        poll_interval: Duration,
    },
    /// A session that ends before two heartbeats of it can fail.
    #[error(
        "a session of {session:?} is too short for heartbeats each {heartbeat:?}: it has to be \
         three times as long at least"
    )]
    #[non_exhaustive]
    SessionTooShort {
        /// The session timeout.
        session: Duration,
        /// The heartbeat interval.
        heartbeat: Duration,
    },
    /// librdkafka refuses the properties as they stand together.
    #[error("librdkafka refuses the configuration: {reason}")]
    #[non_exhaustive]
    Refused {
        /// In its own words.
        reason: String,
    },
}

/// What the driver works with.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) client: ClientConfig,
    pub(crate) group: String,
    pub(crate) protocol: GroupProtocol,
    pub(crate) start: StartPosition,
    pub(crate) on_failure: OnFailure,
    pub(crate) commit_interval: Duration,
    pub(crate) drain_deadline: Option<Duration>,
    pub(crate) poll_interval: Duration,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
    pub(crate) bytes_in_all: usize,
    pub(crate) unconfirmed: i64,
    pub(crate) topic_check: Option<Duration>,
    pub(crate) stall_after: Duration,
    pub(crate) lookup_deadline: Duration,
    pub(crate) close_deadline: Duration,
}

/// Who says how long a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupProtocol {
    /// The member does.
    Classic(Session),
    /// The group does, and this is what we were told.
    Consumer(Option<Session>),
}

/// How long the broker keeps a member that is not heard of, and how often it
/// is to be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) timeout: Duration,
    pub(crate) heartbeat: Duration,
}

impl KafkaConfig {
    pub(crate) fn settings(&self) -> Result<Settings, ConfigError> {
        self.check_fixed()?;
        if self.group.is_empty() || self.group.contains('\0') {
            return Err(value("group.id", &self.group, "a group has a name"));
        }
        let classic = match self.properties.get("group.protocol") {
            None => true,
            Some(protocol) => !protocol.eq_ignore_ascii_case("consumer"),
        };
        let client = self.client(classic)?;
        let poll_interval = millis(&client, "max.poll.interval.ms")?;
        let protocol = if classic {
            let timeout = millis(&client, "session.timeout.ms")?;
            let heartbeat = millis(&client, "heartbeat.interval.ms")?;
            GroupProtocol::Classic(Session { timeout, heartbeat }.checked()?)
        } else {
            let told = self.group_session;
            let session = |(timeout, heartbeat)| Session { timeout, heartbeat }.checked();
            GroupProtocol::Consumer(told.map(session).transpose()?)
        };
        if let Some(drain) = self.drain_deadline.filter(|drain| *drain > poll_interval / 2) {
            return Err(ConfigError::DrainTooLong { drain, poll_interval });
        }
        let statistics = millis(&client, "statistics.interval.ms")?;
        if statistics.is_zero() || statistics > Duration::from_secs(1) {
            let reason = "the driver sees by the statistics whether a member rejoins, and whether a \
                          partition stalls: it has to be between 1 and 1000";
            return Err(value(
                "statistics.interval.ms",
                &statistics.as_millis().to_string(),
                reason,
            ));
        }
        Ok(Settings {
            client,
            group: self.group.clone(),
            protocol,
            start: self.start,
            on_failure: self.on_failure,
            commit_interval: self.commit_interval,
            drain_deadline: self.drain_deadline,
            poll_interval,
            records: self.in_flight.0.max(1),
            bytes: self.in_flight.1.max(1),
            bytes_in_all: self.in_flight_in_all.max(1),
            unconfirmed: i64::try_from(self.unconfirmed).unwrap_or(i64::MAX).max(1),
            topic_check: self.topic_check,
            stall_after: self.stall_after,
            lookup_deadline: self.lookup_deadline,
            close_deadline: self.close_deadline,
        })
    }

    fn check_fixed(&self) -> Result<(), ConfigError> {
        for &(property, needed, reason) in FIXED {
            let Some(value) = self.properties.get(property) else { continue };
            if !value.eq_ignore_ascii_case(needed) {
                let (property, value) = (property.to_owned(), value.to_owned());
                return Err(ConfigError::Fixed { property, value, needed, reason });
            }
        }
        let elsewhere = [("group.id", "it is the second argument of `KafkaConfig::new`")];
        for (property, instead) in elsewhere {
            if self.properties.get(property).is_some() {
                return Err(ConfigError::Elsewhere { property: property.to_owned(), instead });
            }
        }
        let assignors = self.properties.get("partition.assignment.strategy").unwrap_or_default();
        let (cooperative, eager): (Vec<_>, Vec<_>) = assignors
            .split(',')
            .filter(|name| !name.trim().is_empty())
            .partition(|name| name.trim() == "cooperative-sticky");
        if !cooperative.is_empty() && !eager.is_empty() {
            return Err(ConfigError::MixedAssignors { value: assignors.to_owned() });
        }
        Ok(())
    }

    /// The client's configuration, which librdkafka has accepted.
    fn client(&self, classic: bool) -> Result<ClientConfig, ConfigError> {
        let mut client = ClientConfig::new();
        let classic_defaults = if classic { CLASSIC_DEFAULTS } else { &[] };
        for (name, value) in DEFAULTS.iter().chain(classic_defaults) {
            client.set(*name, *value);
        }
        client.set("statistics.interval.ms", "1000");
        for (name, value) in self.properties.iter() {
            client.set(name, value);
        }
        for (name, value, _) in FIXED {
            client.set(*name, *value);
        }
        client.set("group.id", &self.group);
        // By itself it has the level of the `log` crate, and is silent where
        // nobody uses that. What is shown is the subscriber's choice.
        let debugs = self.properties.get("debug").is_some();
        client.set_log_level(if debugs { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
        client.create_native_config().map_err(refused)?;
        Ok(client)
    }
}

impl Settings {
    /// How long running batches of a revoked partition may go on.
    pub(crate) fn drain(&self, session: Session) -> Duration {
        let derived = min(session.timeout / 3, Duration::from_secs(10));
        min(self.drain_deadline.unwrap_or(derived), self.poll_interval / 2)
    }
}

impl Session {
    /// What Kafka's brokers have if nobody says otherwise.
    pub(crate) const BROKERS_DEFAULT: Self =
        Self { timeout: Duration::from_secs(45), heartbeat: Duration::from_secs(5) };

    fn checked(self) -> Result<Self, ConfigError> {
        let Self { timeout: session, heartbeat } = self;
        if session < heartbeat * 3 {
            return Err(ConfigError::SessionTooShort { session, heartbeat });
        }
        Ok(self)
    }
}

fn millis(client: &ClientConfig, property: &str) -> Result<Duration, ConfigError> {
    let text = client.get(property).unwrap_or_default();
    let millis = text.parse().map(Duration::from_millis);
    millis.map_err(|_| value(property, text, "it is a number of milliseconds"))
}

fn value(property: &str, value: &str, reason: &str) -> ConfigError {
    ConfigError::Value {
        property: property.to_owned(),
        value: shown(property, value).to_owned(),
        reason: reason.to_owned(),
    }
}

fn refused(error: KafkaError) -> ConfigError {
    match error {
        KafkaError::ClientConfig(_, reason, property, set) => value(&property, &set, &reason),
        other => ConfigError::Refused { reason: other.to_string() },
    }
}
