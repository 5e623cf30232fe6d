//! Going on with what could go on.

use std::future::poll_fn;

use tidegate_core::{Batch, Class, Delivery, Error, Lease, Outcomes};
use tidegate_sql::{
    Database, InTransaction, LeaseEnded,
    tables::{
        entities::{self, Standing},
        parked::{self, Key, Place},
    },
};
use tower_service::Service;

use crate::{Sequencer, parked::PAGE, work::failed};

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// How many parked deltas it applied.
    pub applied: u64,
    /// How many failed alone, and are withheld now.
    pub withheld: u64,
}

/// What one transaction of a sweep did.
enum Step {
    /// So many were applied, and more may wait.
    Applied(u64),
    /// Nothing can be applied.
    Done,
    /// One of them can never be applied: this revision, if it was alone.
    Failed { alone: Option<i64>, cause: Error },
}

impl<T> Sequencer<T> {
    /// Applies the parked deltas of the namespace whose turn has come.
    ///
    /// Mostly there are none: whoever fills a gap releases what waited for it.
    /// Left over is what a process did not come to that ended in between, and what
    /// [`Parked::skip_to`](crate::Parked::skip_to) and
    /// [`Parked::retry`](crate::Parked::retry) set free. So this is for the
    /// begin of an assignment, and for every now and then.
    ///
    /// `service` is what stands under the sequencer in the stack: the effect, in
    /// an [`EpochGuardLayer`](tidegate_sql::EpochGuardLayer) if the stack has one.
    /// One transaction applies deltas of one entity, and not more than the bound.
    ///
    /// # Errors
    ///
    /// `Fenced` when the lease ends; else when the service or the database fails,
    /// in a way that no single delta is to blame for. What was done until then is
    /// done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was done until then is done.
    pub async fn sweep<S>(
        &self,
        database: &Database,
        lease: &Lease,
        mut service: S,
    ) -> Result<Swept, Error>
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes>,
        S::Error: Into<Error>,
    {
        let mut swept = Swept::default();
        let mut after = Vec::new();
        loop {
            let owner = database.begin().await.map_err(failed)?;
            let page = parked::ready(&owner.txn(), &after, PAGE).await.map_err(failed)?;
            drop(owner);
            let Some(last) = page.last() else { return Ok(swept) };
            after.clone_from(last);
            for entity in &page {
                self.sweep_one(database, lease, &mut service, entity, &mut swept).await?;
            }
        }
    }

    async fn sweep_one<S>(
        &self,
        database: &Database,
        lease: &Lease,
        service: &mut S,
        entity: &[u8],
        swept: &mut Swept,
    ) -> Result<(), Error>
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes>,
        S::Error: Into<Error>,
    {
        let mut limit = self.bounds().released;
        loop {
            match self.step(database, lease, service, entity, limit).await? {
                Step::Applied(count) => swept.applied += count,
                Step::Done => return Ok(()),
                Step::Failed { alone: None, .. } => limit = 1,
                Step::Failed { alone: Some(revision), cause } => {
                    self.withhold(database, (entity, revision), &cause).await?;
                    swept.withheld += 1;
                    return Ok(());
                }
            }
        }
    }

    async fn step<S>(
        &self,
        database: &Database,
        lease: &Lease,
        service: &mut S,
        entity: &[u8],
        limit: usize,
    ) -> Result<Step, Error>
    where
        S: Service<InTransaction<Batch<Delivery<T>>>, Response = Outcomes>,
        S::Error: Into<Error>,
    {
        // Before `BEGIN`: no readiness is waited for with a transaction open.
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
        if !lease.is_active() {
            return Err(LeaseEnded.into());
        }
        let owner = database.begin().await.map_err(failed)?;
        let txn = owner.txn();
        let Some(standing) = entities::lock(&txn, entity).await.map_err(failed)? else {
            return Ok(Step::Done);
        };
        let keys = parked::keys(&txn, &[entity]).await.map_err(failed)?;
        let ready = ready(&keys, &standing, limit);
        let Some(last) = ready.last() else { return Ok(Step::Done) };
        let held = standing.held - i32::try_from(ready.len()).unwrap_or(i32::MAX);
        let to = Standing { revision: last.revision, held, last: Some(last.mark) };
        let places: Vec<_> = ready.iter().map(|key| (entity, key.revision)).collect();
        let mut taken = parked::take(&txn, &places).await.map_err(failed)?;
        taken.sort_by_key(|it| it.revision);
        entities::settle(&txn, &[(entity, &to)]).await.map_err(failed)?;
        let marks = taken.iter().map(|it| it.mark).collect();
        let delivery = |it: parked::Parked| {
            let value = self.decode(&it.record)?;
            Ok(Delivery::new(lease.clone(), it.record).with_value(value).into())
        };
        let deliveries: Vec<_> = match taken.into_iter().map(delivery).collect() {
            Ok(deliveries) => deliveries,
            Err(cause) => return failed_step(cause, &places),
        };
        let batch = Batch::new(deliveries).expect("there is a last one");
        let request = InTransaction::new(txn, batch).with_marks(marks);
        if let Err(cause) = service.call(request).await {
            return failed_step(cause.into(), &places);
        }
        if !lease.is_held() {
            return Err(LeaseEnded.into());
        }
        owner.commit().await.map_err(failed)?;
        self.metrics().released(places.len());
        Ok(Step::Applied(places.len() as u64))
    }

    async fn withhold(
        &self,
        database: &Database,
        place: Place<'_>,
        cause: &Error,
    ) -> Result<(), Error> {
        let owner = database.begin().await.map_err(failed)?;
        let cause = cause.chain();
        parked::withhold(&owner.txn(), place, Some(&cause)).await.map_err(failed)?;
        owner.commit().await.map_err(failed)?;
        self.metrics().withheld();
        tracing::warn!(
            entity = %place.0.escape_ascii(),
            revision = place.1,
            error = cause,
            "a parked delta failed alone, and is withheld",
        );
        Ok(())
    }
}

/// Only poison is blamed on a delta; everything else ends the sweep.
fn failed_step(cause: Error, places: &[Place<'_>]) -> Result<Step, Error> {
    match (cause.class(), places) {
        (Class::Poison, [(_, revision)]) => Ok(Step::Failed { alone: Some(*revision), cause }),
        (Class::Poison, _) => Ok(Step::Failed { alone: None, cause }),
        _ => Err(cause),
    }
}

/// The parked deltas that an entity can go on with now.
fn ready<'a>(keys: &'a [Key], standing: &Standing, limit: usize) -> Vec<&'a Key> {
    let mut waiting: Vec<_> = keys.iter().collect();
    waiting.sort_by_key(|key| key.revision);
    let mut next = standing.revision.saturating_add(1);
    let goes_on = |key: &&Key| {
        let goes_on = key.revision == next && !key.withheld;
        next = next.saturating_add(1);
        goes_on
    };
    waiting.into_iter().take_while(goes_on).take(limit).collect()
}
