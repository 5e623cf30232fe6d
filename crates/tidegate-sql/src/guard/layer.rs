use std::sync::Arc;

use tidegate_core::Lease;
use tower_layer::Layer;

use super::{EpochGuardService, keeper::Keeper};
use crate::Database;

/// Applies [`EpochGuardService`] to a service that works in a transaction.
///
/// It stands right under the inbox. A row for each group, topic and partition
/// says who owns the partition. The guard claims it before the first
/// transaction, and each transaction checks that the row is unchanged, under a
/// lock that makes a successor wait until the transaction has ended.
///
/// A process that was frozen and has lost its partition meanwhile is refused by
/// the database, whatever it believes. Inbox and sequencer already apply each
/// record once and in order; the guard is for what they cannot see, such as
/// overwrites without a revision.
#[derive(Clone, Debug)]
pub struct EpochGuardLayer {
    keeper: Arc<Keeper>,
}

impl EpochGuardLayer {
    /// Guards the partition of a lease, which the consumer group `group` has
    /// been assigned.
    #[must_use]
    pub fn new(database: Database, group: impl Into<Arc<str>>, lease: Lease) -> Self {
        Self { keeper: Arc::new(Keeper::new(database, group.into(), lease)) }
    }
}

impl<S> Layer<S> for EpochGuardLayer {
    type Service = EpochGuardService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        EpochGuardService::new(inner, Arc::clone(&self.keeper))
    }
}
