//! What is looked after from time to time.

use tidegate_core::{Batch, Delivery, Error, Lease, Outcomes};
use tidegate_sql::{
    Database, EffectError, InTransaction,
    sequencer::{Aged, Parked, Step, Sweep},
};
use tower_service::Service;

use crate::Sequencer;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// How many parked deltas it applied.
    pub applied: u64,
    /// How many failed alone, and are withheld now.
    pub withheld: u64,
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
        let mut sweep = Sweep::new(database, lease, self.bounds().released);
        let mut swept = Swept::default();
        loop {
            match sweep.step(&mut service, |record| self.decode(record)).await? {
                Some(Step::Applied(count)) => {
                    self.metrics().released(count);
                    swept.applied += count as u64;
                }
                Some(Step::Withheld { entity, revision, cause }) => {
                    self.withheld(&entity, revision, &cause);
                    swept.withheld += 1;
                }
                None => return Ok(swept),
            }
        }
    }

    /// Gives up entities that have waited for longer than the bound:
    /// [`Parked::give_up`].
    ///
    /// # Errors
    ///
    /// When the database fails. What was done until then is done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was done until then is done.
    pub async fn give_up_aged(&self, database: &Database) -> Result<Aged, Error> {
        let aged = Parked::new(database.clone()).give_up(self.bounds().age).await;
        Ok(aged.map_err(EffectError::from)?)
    }
}
