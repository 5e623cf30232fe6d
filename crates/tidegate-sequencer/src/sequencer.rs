use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_core::{BoxError, Class, Decoder, Error, Record};
use tidegate_sql::{DbErr, Txn, tables::parked};
use tokio::time::Instant;

use crate::{metrics::Metrics, plan::Rules, suspects::Suspects};

/// In which order deltas are applied, and what becomes of those that come early.
///
/// By default the first revision of an entity is 1, each next one is one higher,
/// and what comes early is parked until its predecessor has come.
///
/// A clone is the same one: what is known of deltas that failed is shared.
pub struct Sequencer<T> {
    decode: Decode<T>,
    bounds: Bounds,
    gaps: GapPolicy,
    first: i64,
    newest_wins: bool,
    shared: Arc<Shared>,
    metrics: Metrics,
}

// The decoder's own type is erased: a stack's type can be written down then.
type Decode<T> = Arc<dyn Fn(&Record) -> Result<T, BoxError> + Send + Sync>;

/// What becomes of a delta that comes before its predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapPolicy {
    /// It is stored until its predecessor comes.
    #[default]
    Park,
    /// It is poison.
    Reject,
}

/// How much may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many deltas of one entity are parked at most. 1000 by default.
    pub per_entity: usize,
    /// How many deltas of the namespace are parked at most. 100 000 by default.
    ///
    /// Counted once a second: processes that park at the same time may exceed it
    /// by what they park in one.
    pub per_namespace: usize,
    /// After how long an entity that waits is given up: what is parked of it goes
    /// to the dead letters. 7 days by default.
    pub age: Duration,
    /// How many parked deltas one transaction releases at most. 100 by default.
    pub released: usize,
}

#[derive(Debug, Default)]
struct Shared {
    suspects: Suspects,
    census: Mutex<Option<Census>>,
}

/// How many deltas were parked in a namespace, and when.
#[derive(Clone, Copy, Debug)]
struct Census {
    ns: i32,
    count: usize,
    at: Instant,
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
            bounds: Bounds::default(),
            gaps: GapPolicy::default(),
            first: 1,
            newest_wins: false,
            shared: Arc::default(),
            metrics: Metrics::new(),
        }
    }

    /// Says what becomes of a delta that comes early.
    #[must_use]
    pub fn with_gaps(self, gaps: GapPolicy) -> Self {
        Self { gaps, ..self }
    }

    /// Says which revision of an entity is the first. Those before it are stale.
    #[must_use]
    pub fn with_first_revision(self, first: i64) -> Self {
        Self { first, ..self }
    }

    /// Says how much may wait, and for how long.
    ///
    /// # Panics
    ///
    /// When a transaction would release nothing.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        assert!(bounds.released > 0, "a transaction releases at least one parked delta");
        Self { bounds, ..self }
    }

    /// Takes values for whole states, and not for deltas: any later revision is
    /// the next one, whichever it is, and nothing waits.
    ///
    /// Any revision may be an entity's first then.
    #[must_use]
    pub fn last_write_wins(self) -> Self {
        // One more than the lowest, so that an entity can stand before it.
        Self { newest_wins: true, first: i64::MIN + 1, ..self }
    }

    /// Its bounds.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
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

    pub(crate) fn rules(&self) -> Rules {
        Rules {
            base: self.first - 1,
            skips_gaps: self.newest_wins,
            rejects: self.gaps == GapPolicy::Reject,
            parked: self.bounds.per_entity,
            released: self.bounds.released,
        }
    }

    /// Whether a delta may have a revision at all.
    pub(crate) fn is_revision(&self, revision: i64) -> bool {
        self.newest_wins || revision >= self.first.min(1)
    }

    /// Whether so many deltas more may be parked in the namespace.
    pub(crate) async fn has_room(&self, txn: &Txn, more: usize) -> Result<bool, DbErr> {
        const FRESH: Duration = Duration::from_secs(1);

        let ns = txn.namespace().number();
        let bound = self.bounds.per_namespace;
        let known = *self.census();
        let known = known.filter(|it| it.ns == ns && it.at.elapsed() < FRESH);
        let mut census = match known {
            Some(known) if known.count + more <= bound => known,
            // Old, or at the bound, where it has to be right.
            _ => {
                let limit = i64::try_from(bound).unwrap_or(i64::MAX).saturating_add(1);
                let count = usize::try_from(parked::count(txn, limit).await?).unwrap_or(bound);
                Census { ns, count, at: Instant::now() }
            }
        };
        census.count += more;
        self.metrics.parked_now(census.count);
        let has_room = census.count <= bound;
        *self.census() = has_room.then_some(census);
        Ok(has_room)
    }

    fn census(&self) -> MutexGuard<'_, Option<Census>> {
        self.shared.census.lock().unwrap_or_else(PoisonError::into_inner)
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
        f.debug_struct("Sequencer")
            .field("bounds", &self.bounds)
            .field("gaps", &self.gaps)
            .field("first", &self.first)
            .field("newest_wins", &self.newest_wins)
            .finish_non_exhaustive()
    }
}

// ===== impl Bounds =====

impl Default for Bounds {
    fn default() -> Self {
        Self {
            per_entity: 1_000,
            per_namespace: 100_000,
            age: Duration::from_secs(7 * 24 * 60 * 60),
            released: 100,
        }
    }
}
