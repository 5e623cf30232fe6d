//! Going on with what could go on.

use std::{future::poll_fn, vec};

use tidegate_core::{Batch, Class, Delivery, Error, Lease, Outcomes, Record};
use tower_service::Service;

use super::parked::PAGE;
use crate::{
    Database, DbErr, EffectError, InTransaction, LeaseEnded, Txn,
    tables::{
        entities,
        parked::{self, Place},
    },
};

/// Goes through the entities of a namespace that could go on with what is parked
/// of them.
///
/// One transaction applies deltas of one entity, and not more than a bound. One
/// that fails with poison is done again delta by delta, and the delta that fails
/// alone is withheld.
#[derive(Debug)]
pub struct Sweep<'a> {
    database: &'a Database,
    lease: &'a Lease,
    limit: usize,
    // Entities that were looked up, and the last one.
    page: vec::IntoIter<Vec<u8>>,
    after: Vec<u8>,
    // The entity that goes on, and how many of its deltas at a time.
    current: Option<(Vec<u8>, usize)>,
}

/// What a sweep did last.
#[derive(Debug)]
pub enum Step {
    /// It applied so many parked deltas.
    Applied(usize),
    /// It withheld one, which failed alone.
    Withheld {
        /// The entity.
        entity: Vec<u8>,
        /// The revision.
        revision: i64,
        /// How it failed.
        cause: Error,
    },
}

/// What one transaction did.
enum Turn {
    /// So many were applied, and more may wait.
    Applied(usize),
    /// Nothing can be applied.
    Done,
    /// One of them can never be applied: this revision, if it was alone.
    Failed { alone: Option<i64>, cause: Error },
}

// ===== impl Sweep =====

impl<'a> Sweep<'a> {
    /// Begins with the first entity. One transaction applies at most `limit`
    /// deltas.
    #[must_use]
    pub fn new(database: &'a Database, lease: &'a Lease, limit: usize) -> Self {
        let page = Vec::new().into_iter();
        Self { database, lease, limit, page, after: Vec::new(), current: None }
    }

    /// Goes on until something is done, or `None` can be.
    ///
    /// # Errors
    ///
    /// `Fenced` when the lease ends; else when the service or the database fails,
    /// in a way that no single delta is to blame for.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was committed is done, and is not done again.
    pub async fn step<S, T>(
        &mut self,
        service: &mut S,
        decode: impl Fn(&Record) -> Result<T, Error>,
    ) -> Result<Option<Step>, Error>
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes>,
        S::Error: Into<Error>,
    {
        loop {
            if self.current.is_none() {
                self.current =
                    self.next().await.map_err(EffectError::from)?.map(|it| (it, self.limit));
            }
            let Some((entity, limit)) = &mut self.current else { return Ok(None) };
            match turn(self.database, self.lease, service, &decode, entity, *limit).await? {
                Turn::Applied(count) => return Ok(Some(Step::Applied(count))),
                Turn::Done => self.current = None,
                Turn::Failed { alone: None, .. } => *limit = 1,
                Turn::Failed { alone: Some(revision), cause } => {
                    let withheld = withhold(self.database, (entity, revision), &cause).await;
                    withheld.map_err(EffectError::from)?;
                    let step = |(entity, _)| Step::Withheld { entity, revision, cause };
                    return Ok(self.current.take().map(step));
                }
            }
        }
    }

    /// The next entity.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, DbErr> {
        if self.page.len() == 0 {
            let owner = self.database.begin().await?;
            let page = parked::ready(&owner.txn(), &self.after, PAGE).await?;
            if let Some(last) = page.last() {
                self.after.clone_from(last);
            }
            self.page = page.into_iter();
        }
        Ok(self.page.next())
    }
}

/// Applies what an entity can go on with, in one transaction.
async fn turn<S, T>(
    database: &Database,
    lease: &Lease,
    service: &mut S,
    decode: &impl Fn(&Record) -> Result<T, Error>,
    entity: &[u8],
    limit: usize,
) -> Result<Turn, Error>
where
    S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes>,
    S::Error: Into<Error>,
{
    // Before `BEGIN`: no readiness is waited for with a transaction open.
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    if !lease.is_active() {
        return Err(LeaseEnded.into());
    }
    let owner = database.begin().await.map_err(EffectError::from)?;
    let taken = advance(&owner.txn(), entity, limit).await.map_err(EffectError::from)?;
    let (count, revisions) = (taken.len(), taken.iter().map(|it| it.revision));
    let alone = revisions.last().filter(|_| count == 1);
    let marks = taken.iter().map(|it| it.mark).collect();
    let delivery = |it: parked::Parked| {
        let value = decode(&it.record)?;
        Ok(Delivery::new(lease.clone(), it.record).with_value(value).into())
    };
    let deliveries: Vec<_> = match taken.into_iter().map(delivery).collect() {
        Ok(deliveries) => deliveries,
        Err(cause) => return blame(cause, alone),
    };
    let Some(batch) = Batch::new(deliveries) else { return Ok(Turn::Done) };
    let request = InTransaction::new(owner.txn(), batch).with_marks(marks);
    if let Err(cause) = service.call(request).await {
        return blame(cause.into(), alone);
    }
    if !lease.is_held() {
        return Err(LeaseEnded.into());
    }
    owner.commit().await.map_err(EffectError::from)?;
    Ok(Turn::Applied(count))
}

/// Takes out the parked deltas that an entity can go on with, in order, and sets
/// it to the last of them.
async fn advance(txn: &Txn, entity: &[u8], limit: usize) -> Result<Vec<parked::Parked>, DbErr> {
    let Some(standing) = entities::lock(txn, entity).await? else { return Ok(Vec::new()) };
    let keys = parked::keys(txn, &[entity]).await?;
    let ready = standing.ready(&keys, limit);
    let Some(last) = ready.last() else { return Ok(Vec::new()) };
    let places: Vec<_> = ready.iter().map(|key| (entity, key.revision)).collect();
    let mut taken = parked::take(txn, &places).await?;
    taken.sort_by_key(|it| it.revision);
    entities::settle(txn, &[(entity, &standing.advanced(ready.len(), last))]).await?;
    Ok(taken)
}

async fn withhold(database: &Database, place: Place<'_>, cause: &Error) -> Result<(), DbErr> {
    let owner = database.begin().await?;
    parked::withhold(&owner.txn(), place, Some(&cause.chain())).await?;
    owner.commit().await
}

/// Only poison is blamed on a delta; everything else ends the sweep.
fn blame(cause: Error, alone: Option<i64>) -> Result<Turn, Error> {
    match cause.class() {
        Class::Poison => Ok(Turn::Failed { alone, cause }),
        _ => Err(cause),
    }
}
