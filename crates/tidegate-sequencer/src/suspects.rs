//! Parked deltas that may be at fault for a transaction that failed.
//!
//! The transaction that shows it is rolled back, so what it showed is kept here
//! until the next one writes it. If it is lost before that, it is found again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Entities that are handled with care.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    entities: Mutex<Entities>,
}

// By namespace and name.
type Entities = HashMap<(i32, Vec<u8>), Option<Guilty>>;

/// A parked delta that failed alone, and is to be withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guilty {
    pub(crate) revision: i64,
    pub(crate) cause: String,
}

impl Suspects {
    /// From now on, a parked delta of the entity passes only alone.
    pub(crate) fn suspect(&self, ns: i32, entity: &[u8]) {
        self.entities().entry((ns, entity.to_vec())).or_default();
    }

    /// The next transaction that meets the entity withholds a delta of it.
    pub(crate) fn convict(&self, ns: i32, entity: &[u8], guilty: Guilty) {
        self.entities().insert((ns, entity.to_vec()), Some(guilty));
    }

    /// Forgets an entity.
    pub(crate) fn clear(&self, ns: i32, entity: &[u8]) {
        let mut entities = self.entities();
        // Of most, nothing is known.
        if !entities.is_empty() {
            entities.remove(&(ns, entity.to_vec()));
        }
    }

    /// Which of these entities are handled with care, and whose deltas are to be
    /// withheld.
    pub(crate) fn among<'a>(
        &self,
        ns: i32,
        entities: impl Iterator<Item = &'a [u8]>,
    ) -> HashMap<&'a [u8], Option<Guilty>> {
        let known = self.entities();
        if known.is_empty() {
            return HashMap::new();
        }
        let suspect = |entity: &'a [u8]| {
            known.get(&(ns, entity.to_vec())).map(|guilty| (entity, guilty.clone()))
        };
        entities.filter_map(suspect).collect()
    }

    fn entities(&self) -> MutexGuard<'_, Entities> {
        self.entities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
