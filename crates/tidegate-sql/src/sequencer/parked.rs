//! What people do about deltas that wait.

use std::time::Duration;

use super::SkipError;
use crate::{
    Database, DbErr, Txn,
    tables::{
        entities::{self, Standing},
        letters,
        parked::{self, Waiting},
    },
};

/// The deltas that are parked in a namespace.
///
/// ```no_run
/// use tidegate_sql::sequencer::{Parked, SkipError};
///
/// async fn give_up(parked: &Parked) -> Result<(), SkipError> {
///     for delta in parked.list(None, 100).await? {
///         println!("{} waits for {}", delta.revision, delta.expected);
///         // Nothing will come between, so the entity goes on here.
///         parked.skip_to(&delta.entity, delta.revision).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Parked {
    database: Database,
}

/// What was given up for its age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aged {
    /// How many entities.
    pub entities: u64,
    /// How many deltas of them.
    pub deltas: u64,
}

// How many entities are looked up at a time.
pub(super) const PAGE: i64 = 100;

// ===== impl Parked =====

impl Parked {
    /// The parked deltas of a database's namespace.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// Lists what is parked, in the order of entity and revision, behind a delta
    /// and at most `limit`.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn list(
        &self,
        after: Option<(&[u8], i64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>, DbErr> {
        let owner = self.database.begin().await?;
        // No entity is before the one without a name.
        parked::list(&owner.txn(), after.unwrap_or((&[], i64::MIN)), limit.into()).await
    }

    /// Gives up the revisions of an entity that have not come: `revision` is the
    /// next one. Returns how many parked deltas lay before it; they are dead
    /// letters now.
    ///
    /// What waits from there on is applied by the next delta of the entity, or by
    /// a sweep.
    ///
    /// # Errors
    ///
    /// When the entity is not known or has gone on, or the database fails.
    pub async fn skip_to(&self, entity: &[u8], revision: i64) -> Result<u64, SkipError> {
        let owner = self.database.begin().await?;
        let txn = owner.txn();
        let standing = entities::lock(&txn, entity).await?.ok_or(SkipError::Unknown)?;
        if revision <= standing.revision {
            return Err(SkipError::Backwards { revision: standing.revision });
        }
        if revision == standing.next() {
            return Ok(0);
        }
        let cause = format!("its entity was set to go on at revision {revision}");
        let to = Standing { revision: revision - 1, last: None, ..standing };
        let buried = bury(&txn, entity, revision, to, &cause).await?;
        owner.commit().await?;
        Ok(buried)
    }

    /// Has a delta tried again that is withheld. Returns whether it is parked.
    ///
    /// It is tried by the next delta of its entity, or by a sweep.
    ///
    /// # Errors
    ///
    /// When the database fails.
    pub async fn retry(&self, entity: &[u8], revision: i64) -> Result<bool, DbErr> {
        let owner = self.database.begin().await?;
        let found = parked::withhold(&owner.txn(), (entity, revision), None).await?;
        owner.commit().await?;
        Ok(found)
    }

    /// Gives up entities of which something has waited for longer than `age`:
    /// all that is parked of them goes to the dead letters.
    ///
    /// The entities stay where they are: what comes of them later waits again. One
    /// that could go on is left to a sweep.
    ///
    /// # Errors
    ///
    /// When the database fails. What was done until then is done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was done until then is done.
    pub async fn give_up(&self, age: Duration) -> Result<Aged, DbErr> {
        let mut aged = Aged::default();
        let mut after = Vec::new();
        loop {
            let owner = self.database.begin().await?;
            let page = parked::aged(&owner.txn(), age, &after, PAGE).await?;
            drop(owner);
            let Some(last) = page.last() else { return Ok(aged) };
            after.clone_from(last);
            for entity in &page {
                let deltas = self.give_up_one(entity, age).await?;
                aged.entities += u64::from(deltas > 0);
                aged.deltas += deltas;
            }
        }
    }

    async fn give_up_one(&self, entity: &[u8], age: Duration) -> Result<u64, DbErr> {
        let owner = self.database.begin().await?;
        let txn = owner.txn();
        let Some(standing) = entities::lock(&txn, entity).await? else { return Ok(0) };
        // Looked at again under the lock: it may have gone on.
        let next = standing.next();
        let keys = parked::keys(&txn, &[entity]).await?;
        let goes_on = !standing.ready(&keys, 1).is_empty();
        if goes_on || !parked::is_aged(&txn, entity, age).await? {
            return Ok(0);
        }
        let cause = format!("its entity has waited for revision {next} for too long");
        let buried = bury(&txn, entity, i64::MAX, standing, &cause).await?;
        owner.commit().await?;
        tracing::warn!(
            entity = %entity.escape_ascii(),
            expected = next,
            deltas = buried,
            "gave up an entity that waited for too long",
        );
        Ok(buried)
    }
}

/// Moves what is parked of an entity below a revision to the dead letters, and
/// writes where the entity stands.
async fn bury(
    txn: &Txn,
    entity: &[u8],
    below: i64,
    mut standing: Standing,
    cause: &str,
) -> Result<u64, DbErr> {
    let buried = letters::bury_parked(txn, (entity, below), ("poison", cause)).await?;
    standing.held -= i32::try_from(buried).unwrap_or(i32::MAX);
    entities::settle(txn, &[(entity, &standing)]).await?;
    Ok(buried)
}
