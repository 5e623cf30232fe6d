use std::collections::BTreeSet;

use super::{Error, Lease, Record, TopicPartition};

/// A durable store of dead letters.
///
/// A letter is the record itself, with the reason why it could not be applied.
/// It is keyed by topic, partition and offset, so that burying it twice is
/// burying it once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not store dead letters",
    note = "use the table store of `tidegate-sql` or the topic store of `tidegate-kafka`, or implement `DeadLetters` for `{Self}`"
)]
pub trait DeadLetters: Clone + Send + Sync + 'static {
    /// Stores a record durably, and why it could not be applied.
    ///
    /// `lease` is the right under which this is decided: a store that can
    /// refuse a stale owner looks at it once more when it writes.
    ///
    /// # Errors
    ///
    /// When it is not known to be stored. `Transient` where another try may
    /// help.
    fn bury(
        &self,
        lease: &Lease,
        record: &Record,
        cause: &Error,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The offsets of a partition, from `from` on, whose records are buried.
    ///
    /// A new lease asks this once: a buried record is answered `Buried`
    /// without another try. A store that cannot tell answers with none, and
    /// says in its documentation what follows.
    ///
    /// # Errors
    ///
    /// When the store does not answer.
    fn buried(
        &self,
        partition: &TopicPartition,
        from: i64,
    ) -> impl Future<Output = Result<BTreeSet<i64>, Error>> + Send;
}
