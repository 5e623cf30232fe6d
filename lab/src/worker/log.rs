use std::{
    fmt,
    io::{self, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer, filter::Targets, layer::Context, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// One event of a worker's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// When, in milliseconds since the Unix epoch.
    pub at: i64,
    /// How grave: `INFO`, `WARN` and so on.
    pub level: String,
    /// Where it comes from.
    pub target: String,
    /// What happened.
    pub message: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

/// Writes events to the standard error, a line each.
struct Lines;

struct Fields {
    message: String,
    fields: Map<String, Value>,
}

pub(super) fn install() {
    let levels = Targets::new()
        .with_default(Level::INFO)
        .with_target("tidegate", Level::DEBUG)
        .with_target("tidegate_kafka", Level::DEBUG)
        // It says nothing at this level unless it is asked to.
        .with_target("librdkafka", Level::DEBUG)
        .with_target("sqlx", Level::WARN);
    tracing_subscriber::registry().with(Lines.with_filter(levels)).init();
}

/// The time, in milliseconds since the Unix epoch.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields { message: String::new(), fields: Map::new() };
        event.record(&mut fields);
        let metadata = event.metadata();
        let logged = Logged {
            at: now(),
            level: metadata.level().to_string(),
            target: metadata.target().to_owned(),
            message: fields.message,
            fields: fields.fields,
        };
        let Ok(mut line) = serde_json::to_vec(&logged) else { return };
        line.push(b'\n');
        // A lab that is gone reads nothing.
        let _ = io::stderr().lock().write_all(&line);
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, text);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

impl Logged {
    /// A field, as text.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.as_str()
    }

    /// A field, as a number.
    #[must_use]
    pub fn number(&self, field: &str) -> Option<i64> {
        self.fields.get(field)?.as_i64()
    }
}
