use std::{fmt, sync::Arc};

use tidegate_core::{
    BoxError, Class, Decoder, Error, Record,
    sequencer::{Bounds, Census, GapPolicy, Rules, Suspects},
};
use tidegate_sql::{DbErr, Txn, sequencer};

use crate::metrics::Metrics;

/// In which order deltas are applied, and what becomes of those that come early.
///
/// By default the first revision of an entity is 1, each next one is one higher,
/// and what comes early is parked until its predecessor has come.
///
/// A clone is the same one: what is known of deltas that failed is shared.
pub struct Sequencer<T> {
    decode: Decode<T>,
    rules: Rules,
    shared: Arc<Shared>,
    metrics: Metrics,
}

// The decoder's own type is erased: a stack's type can be written down then.
type Decode<T> = Arc<dyn Fn(&Record) -> Result<T, BoxError> + Send + Sync>;

#[derive(Debug, Default)]
struct Shared {
    suspects: Suspects,
    census: Census,
}

// ===== impl Sequencer =====

impl<T> Sequencer<T> {
    /// Parks the records of early deltas, and decodes them when their turn comes.
    #[must_use]
    pub fn parking<D>(decoder: D) -> Self
    where
        D: Decoder<Value = T> + Send + Sync + 'static,
    {
        Self {
            decode: Arc::new(move |record| decoder.decode(record).map_err(Into::into)),
            rules: Rules::default(),
            shared: Arc::default(),
            metrics: Metrics::new(),
        }
    }

    /// Says what becomes of a delta that comes early.
    #[must_use]
    pub fn with_gaps(self, gaps: GapPolicy) -> Self {
        Self { rules: Rules { gaps, ..self.rules }, ..self }
    }

    /// Says which revision of an entity is the first. Those before it are stale.
    #[must_use]
    pub fn with_first_revision(self, first: i64) -> Self {
        Self { rules: Rules { first, ..self.rules }, ..self }
    }

    /// Says how much may wait, and for how long.
    ///
    /// # Panics
    ///
    /// When a transaction would release nothing.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        assert!(bounds.released > 0, "a transaction releases at least one parked delta");
        Self { rules: Rules { bounds, ..self.rules }, ..self }
    }

    /// Takes values for whole states, and not for deltas: any later revision is
    /// the next one, whichever it is, and nothing waits.
    ///
    /// Any revision may be an entity's first then.
    #[must_use]
    pub fn last_write_wins(self) -> Self {
        // One more than the lowest, so that an entity can stand before it.
        let rules = Rules { newest_wins: true, first: i64::MIN + 1, ..self.rules };
        Self { rules, ..self }
    }

    /// Its bounds.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.rules.bounds
    }

    /// Decodes a record that was parked, and was decoded once before that.
    pub(crate) fn decode(&self, record: &Record) -> Result<T, Error> {
        (self.decode)(record).map_err(|error| Error::new(Class::Poison, error))
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn suspects(&self) -> &Suspects {
        &self.shared.suspects
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether so many deltas more may be parked in the namespace.
    pub(crate) async fn has_room(&self, txn: &Txn, more: usize) -> Result<bool, DbErr> {
        let bound = self.bounds().per_namespace;
        let count = sequencer::count(txn, &self.shared.census, more, bound).await?;
        let has_room = count <= bound;
        self.metrics.parked_now(if has_room { count } else { count - more });
        Ok(has_room)
    }

    /// Says that a parked delta failed alone.
    pub(crate) fn withheld(&self, entity: &[u8], revision: i64, cause: &Error) {
        self.metrics.withheld();
        tracing::warn!(
            entity = %entity.escape_ascii(),
            revision,
            error = cause.chain(),
            "a parked delta failed alone, and is withheld",
        );
    }
}

impl<T> Clone for Sequencer<T> {
    fn clone(&self) -> Self {
        Self {
            decode: Arc::clone(&self.decode),
            shared: Arc::clone(&self.shared),
            metrics: self.metrics.clone(),
            ..*self
        }
    }
}

impl<T> fmt::Debug for Sequencer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer").field("rules", &self.rules).finish_non_exhaustive()
    }
}
