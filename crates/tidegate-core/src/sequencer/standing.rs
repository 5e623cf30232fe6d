use crate::Mark;

/// Where an entity stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The revision that was applied last.
    pub revision: i64,
    /// How many of its deltas are parked.
    pub held: i32,
    /// The message of that revision, if there has been one.
    pub last: Option<Mark>,
}

/// Revisions of an entity that a batch would apply.
///
/// They are applied if nothing of the entity is parked, and it stands at
/// `from`, at `to`, or between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The entity.
    pub entity: &'a [u8],
    /// The lowest revision at which it may stand.
    pub from: i64,
    /// The highest one. Below `from`, the entity is locked and does not advance.
    pub to: i64,
    /// The revision at which it stands then.
    pub last: i64,
    /// The message of that revision.
    pub mark: Mark,
}

/// What is known of a parked delta without reading its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its entity.
    pub entity: Vec<u8>,
    /// Its revision.
    pub revision: i64,
    /// Its message.
    pub mark: Mark,
    /// Whether it failed when it was tried alone.
    pub withheld: bool,
}

// ===== impl Standing =====

impl Standing {
    /// The revision that comes next.
    #[must_use]
    pub fn next(&self) -> i64 {
        self.revision.saturating_add(1)
    }

    /// Which of the deltas that are parked of the entity it can go on with now, in
    /// order and at most `limit`.
    #[must_use]
    pub fn ready<'a>(&self, parked: &'a [Key], limit: usize) -> Vec<&'a Key> {
        let mut waiting: Vec<_> = parked.iter().collect();
        waiting.sort_by_key(|key| key.revision);
        let mut next = self.next();
        let goes_on = |key: &&Key| {
            let goes_on = key.revision == next && !key.withheld;
            next = next.saturating_add(1);
            goes_on
        };
        waiting.into_iter().take_while(goes_on).take(limit).collect()
    }

    /// Where it stands when `ready` deltas that were parked are applied, the last
    /// of which is `last`.
    #[must_use]
    pub fn advanced(&self, ready: usize, last: &Key) -> Self {
        let held = self.held - i32::try_from(ready).unwrap_or(i32::MAX);
        Self { revision: last.revision, held, last: Some(last.mark) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Standing};
    use crate::{Fingerprint, Mark, MessageId};

    fn key(revision: i64, withheld: bool) -> Key {
        let bytes = revision.to_be_bytes();
        let mark = Mark { id: MessageId::of(&bytes), fingerprint: Fingerprint::of(&bytes) };
        Key { entity: b"a".to_vec(), revision, mark, withheld }
    }

    #[test]
    fn an_entity_goes_on_with_what_follows_it_up_to_a_gap_or_what_is_withheld() {
        for (at, parked, limit, ready) in [
            (3, vec![], 9, vec![]),
            (3, vec![(5, false)], 9, vec![]),
            (3, vec![(5, false), (4, false)], 9, vec![4, 5]),
            (3, vec![(4, false), (5, false)], 1, vec![4]),
            (3, vec![(4, false), (6, false)], 9, vec![4]),
            (3, vec![(4, false), (5, true), (6, false)], 9, vec![4]),
            (3, vec![(4, true), (5, false)], 9, vec![]),
            (i64::MAX, vec![(4, false)], 9, vec![]),
        ] {
            let keys: Vec<_> = parked.iter().map(|(at, withheld)| key(*at, *withheld)).collect();
            let standing = Standing { revision: at, held: 2, last: None };
            let found = standing.ready(&keys, limit);
            let revisions: Vec<_> = found.iter().map(|key| key.revision).collect();
            assert_eq!(revisions, ready, "{at} {parked:?}");
        }
    }

    #[test]
    fn it_stands_at_the_last_then_and_holds_fewer() {
        let last = key(5, false);
        let standing = Standing { revision: 3, held: 7, last: None };
        let expected = Standing { revision: 5, held: 5, last: Some(last.mark) };
        assert_eq!(standing.advanced(2, &last), expected);
    }
}
