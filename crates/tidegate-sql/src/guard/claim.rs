use tidegate_core::Epoch;

/// Who a partition belongs to, as the row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// How often the group's generations began again, from 1 on.
    pub(crate) incarnation: i64,
    /// Whose it is.
    pub(crate) epoch: Epoch,
}

/// What a claim makes of the row: who is to be written, or who keeps it.
///
/// A higher generation wins. So does an equal one, whichever member has it: a
/// static member that was restarted has its old generation and a new id.
///
/// A lower generation wins only over a row that it is `newer_than`: one that was
/// read, and after which a commit of ours was sent and accepted. The group's
/// generations have begun again then, or ours would have been refused.
pub(super) fn decide(
    row: Option<Owner>,
    mine: &Epoch,
    newer_than: Option<&Owner>,
) -> Result<Owner, Owner> {
    let owner = |incarnation| Owner { incarnation, epoch: mine.clone() };
    match row {
        None => Ok(owner(1)),
        Some(row) if row.epoch.generation <= mine.generation => Ok(owner(row.incarnation)),
        Some(row) if newer_than == Some(&row) => Ok(owner(row.incarnation + 1)),
        Some(row) => Err(row),
    }
}

#[cfg(test)]
mod tests {
    use super::{Epoch, Owner, decide};

    fn owner(incarnation: i64, generation: i32, member: &str) -> Owner {
        Owner { incarnation, epoch: Epoch::new(generation, member) }
    }

    #[test]
    fn a_claim_wins_by_its_generation() {
        let mine = Epoch::new(5, "me");
        let won = |incarnation| Ok(owner(incarnation, 5, "me"));
        for (row, newer_than, expected) in [
            (None, None, won(1)),
            (Some(owner(2, 4, "other")), None, won(2)),
            (Some(owner(2, 5, "me")), None, won(2)),
            (Some(owner(2, 5, "other")), None, won(2)),
            (Some(owner(2, 6, "other")), None, Err(owner(2, 6, "other"))),
            (Some(owner(2, 6, "other")), Some(owner(2, 6, "other")), won(3)),
            // Somebody has claimed it since.
            (Some(owner(2, 7, "other")), Some(owner(2, 6, "other")), Err(owner(2, 7, "other"))),
            (Some(owner(3, 6, "other")), Some(owner(2, 6, "other")), Err(owner(3, 6, "other"))),
        ] {
            assert_eq!(decide(row.clone(), &mine, newer_than.as_ref()), expected, "{row:?}");
        }
    }
}
