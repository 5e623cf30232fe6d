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
pub struct Suspects {
    entities: Mutex<Entities>,
}

// By namespace and name.
type Entities = HashMap<(i32, Vec<u8>), Option<Guilty>>;

/// A parked delta that failed alone, and is to be withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guilty {
    /// Its revision.
    pub revision: i64,
    /// Why it failed.
    pub cause: String,
}

impl Suspects {
    /// From now on, parked deltas of the entities of these pass only alone.
    pub fn suspect_all<'a>(&self, ns: i32, parked: impl Iterator<Item = (&'a [u8], i64)>) {
        let mut entities = self.entities();
        for (entity, _) in parked {
            entities.entry((ns, entity.to_vec())).or_default();
        }
    }

    /// The next transaction that meets the entity withholds a delta of it.
    pub fn convict(&self, ns: i32, entity: &[u8], guilty: Guilty) {
        self.entities().insert((ns, entity.to_vec()), Some(guilty));
    }

    /// Forgets entities.
    pub fn clear(&self, ns: i32, entities: &[&[u8]]) {
        if entities.is_empty() {
            return;
        }
        let mut known = self.entities();
        for entity in entities {
            known.remove(&(ns, entity.to_vec()));
        }
    }

    /// Which of these entities are handled with care, and whose deltas are to be
    /// withheld.
    pub fn among<'a>(
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Guilty, Suspects};

    const A: &[u8] = b"a";
    const B: &[u8] = b"b";

    fn guilty(revision: i64) -> Guilty {
        Guilty { revision, cause: "refused".to_owned() }
    }

    /// What is known of both.
    fn known(suspects: &Suspects, ns: i32) -> HashMap<&'static [u8], Option<Guilty>> {
        suspects.among(ns, [A, B].into_iter())
    }

    #[test]
    fn who_is_suspected_is_handled_with_care_in_its_namespace_until_it_is_cleared() {
        let suspects = Suspects::default();
        assert_eq!(known(&suspects, 1), HashMap::new());
        suspects.suspect_all(1, [(A, 4)].into_iter());
        assert_eq!(known(&suspects, 1), HashMap::from([(A, None)]));
        assert_eq!(known(&suspects, 2), HashMap::new());
        suspects.clear(2, &[A]);
        suspects.clear(1, &[B]);
        assert_eq!(known(&suspects, 1), HashMap::from([(A, None)]));
        suspects.clear(1, &[B, A]);
        assert_eq!(known(&suspects, 1), HashMap::new());
    }

    #[test]
    fn a_conviction_stands_whatever_is_suspected_later() {
        let suspects = Suspects::default();
        suspects.suspect_all(1, [(A, 4)].into_iter());
        suspects.convict(1, A, guilty(4));
        suspects.suspect_all(1, [(A, 5), (B, 2)].into_iter());
        assert_eq!(known(&suspects, 1), HashMap::from([(A, Some(guilty(4))), (B, None)]));
        suspects.convict(1, A, guilty(5));
        assert_eq!(known(&suspects, 1)[A], Some(guilty(5)));
    }
}
