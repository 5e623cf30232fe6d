use std::sync::Arc;

use tidegate_core::{ByHeader, ByKey, ByOffset, ByValue};
use tidegate_sql::Database;
use tower_layer::Layer;

use crate::{InboxService, metrics::Metrics};

/// The durable set of messages whose outcome is decided.
///
/// It is that of the database's namespace. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Inbox {
    database: Database,
    metrics: Metrics,
}

/// Applies [`InboxService`] to a service that works in a transaction.
///
/// See the [crate docs](crate) for an example.
#[derive(Clone, Debug)]
pub struct InboxLayer<I = ByValue> {
    inbox: Inbox,
    identify: I,
}

// ===== impl Inbox =====

impl Inbox {
    /// The inbox of a database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, metrics: Metrics::new() }
    }

    /// The database that it is in.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

// ===== impl InboxLayer =====

impl InboxLayer {
    /// Creates a layer that remembers messages in `inbox`, by the ids that the
    /// values say: [`Identified`](tidegate_core::Identified).
    #[must_use]
    pub fn new(inbox: Inbox) -> Self {
        Self { inbox, identify: ByValue }
    }
}

impl InboxLayer<ByOffset> {
    /// Creates a layer for which each record is a message of its own.
    ///
    /// It sees a record that is delivered again, and no message that a producer
    /// wrote twice.
    #[must_use]
    pub fn by_offset(inbox: Inbox) -> Self {
        Self { inbox, identify: ByOffset }
    }
}

impl InboxLayer<ByKey> {
    /// Creates a layer for which the record's key is the message's id. A record
    /// without a key is poison.
    #[must_use]
    pub fn by_key(inbox: Inbox) -> Self {
        Self { inbox, identify: ByKey }
    }
}

impl InboxLayer<ByHeader> {
    /// Creates a layer for which the value of a header is the message's id. A
    /// record without that header is poison.
    #[must_use]
    pub fn by_header(inbox: Inbox, name: impl Into<Arc<str>>) -> Self {
        Self { inbox, identify: ByHeader::new(name) }
    }
}

impl<S, I: Clone> Layer<S> for InboxLayer<I> {
    type Service = InboxService<S, I>;

    fn layer(&self, inner: S) -> Self::Service {
        InboxService::new(inner, self.inbox.clone(), self.identify.clone())
    }
}
