//! What one call does in its transaction.

use std::sync::Arc;

use tidegate_core::{
    Batch, Class, Condition, Delivery, Error, Lease, Mark, Outcome, Outcomes, Sequenced,
    sequencer::{Delta, Deltas, Guilty, Passed, Plan, Reason, Refused},
};
use tidegate_sql::{EffectError, InTransaction, Txn, sequencer};

use crate::{ReleaseFailed, Sequencer};

/// A batch, in its transaction.
pub(crate) struct Work<'a, T> {
    sequencer: &'a Sequencer<T>,
    txn: Txn,
    batch: Batch<Delivery<T>>,
    marks: Vec<Mark>,
}

type Request<T> = InTransaction<Batch<Delivery<T>>>;

impl<'a, T: Sequenced> Work<'a, T> {
    pub(crate) fn new(sequencer: &'a Sequencer<T>, request: Request<T>) -> Self {
        let records = request.request.iter().map(|delivery| &delivery.record);
        let marks = records.enumerate().map(|(index, record)| request.mark(index, record));
        let marks = marks.collect();
        let InTransaction { txn, request: batch, .. } = request;
        Self { sequencer, txn, batch, marks }
    }

    pub(crate) fn deltas(&self) -> Result<Deltas<'_>, Error> {
        let each = (0..self.marks.len()).map(|index| self.delta(index));
        let deltas = Deltas::new(*self.sequencer.rules(), each.collect());
        deltas.map_err(|refused| self.refused(refused))
    }

    /// Locks the entities, advances those that can be by the way, and decides
    /// about the rest.
    pub(crate) async fn plan<'d>(&self, deltas: &Deltas<'d>) -> Result<Plan<'d>, Error> {
        let met = sequencer::meet(&self.txn, deltas, self.sequencer.suspects()).await;
        deltas.decide(met.map_err(EffectError::from)?).map_err(|refused| self.refused(refused))
    }

    fn delta(&self, index: usize) -> Delta<'_> {
        let value = &self.batch[index].value;
        Delta { entity: value.entity(), revision: value.revision(), mark: self.marks[index] }
    }

    fn refused(&self, Refused { index, reason }: Refused) -> Error {
        let error = self.error(index, reason);
        let culprit = self.batch[index].culprit();
        self.sequencer.metrics().refused();
        tracing::warn!(
            partition = %culprit.partition,
            offset = culprit.offset,
            error = error.chain(),
            "a delta is not taken",
        );
        error.with_culprit(culprit)
    }

    fn error(&self, index: usize, reason: Reason) -> Error {
        if matches!(reason, Reason::Full { .. }) {
            self.lease().set_condition(Condition::WaitingForGap);
        }
        reason.error(&self.delta(index))
    }

    /// Writes what is planned, and returns what the inner service is called
    /// with.
    pub(crate) async fn write(
        &self,
        deltas: &Deltas<'_>,
        plan: &Plan<'_>,
    ) -> Result<Option<Request<T>>, Error> {
        let mut released = self.take(plan).await?.into_iter();
        self.park(deltas, plan).await?;
        sequencer::settle(&self.txn, plan).await.map_err(EffectError::from)?;
        let passed = plan.passed.iter().map(|passed| match passed {
            Passed::Own(index) => (Arc::clone(&self.batch[*index]), self.marks[*index]),
            Passed::Released(..) => released.next().expect("what passes was taken"),
        });
        let (deliveries, marks): (_, Vec<_>) = passed.unzip();
        let batch = Batch::new(deliveries);
        Ok(batch.map(|batch| InTransaction::new(self.txn.clone(), batch).with_marks(marks.into())))
    }

    /// Takes parked deltas out, and decodes those that are to pass.
    async fn take(&self, plan: &Plan<'_>) -> Result<Vec<(Arc<Delivery<T>>, Mark)>, Error> {
        let taken = sequencer::take(&self.txn, plan).await.map_err(EffectError::from)?;
        let released = taken.into_iter().map(|parked| {
            let value = self.sequencer.decode(&parked.record).map_err(|cause| {
                self.convict((&parked.entity, parked.revision), &cause);
                Error::from(ReleaseFailed { cause })
            })?;
            let delivery = Delivery::new(self.lease().clone(), parked.record);
            Ok((Arc::new(delivery.with_value(value)), parked.mark))
        });
        released.collect()
    }

    async fn park(&self, deltas: &Deltas<'_>, plan: &Plan<'_>) -> Result<(), Error> {
        let Some(first) = plan.parked.first() else { return Ok(()) };
        let has_room = self.sequencer.has_room(&self.txn, plan.parked.len()).await;
        if !has_room.map_err(EffectError::from)? {
            let Delta { entity, revision, .. } = *deltas.get(*first);
            let expected = plan.expected(entity).unwrap_or(revision);
            return Err(self.error(*first, Reason::Full { expected }));
        }
        tracing::debug!(count = plan.parked.len(), "parking early deltas");
        let record = |index: usize| &self.batch[index].record;
        Ok(sequencer::park(&self.txn, deltas, plan, record).await.map_err(EffectError::from)?)
    }

    /// Clears the deliveries of the batch of what a parked delta may have done
    /// that was released with them.
    ///
    /// What was released is tried apart from now on, and the batch may try again
    /// without it. Blamed as it stands, an innocent delivery would be taken for
    /// poison.
    pub(crate) fn judge(&self, error: Error, plan: &Plan<'_>) -> Error {
        let is_own = |delivery: &Arc<Delivery<T>>| {
            error.culprit().is_some_and(|culprit| culprit.is(&delivery.record))
        };
        if error.class() != Class::Poison || plan.released == 0 || self.batch.iter().any(is_own) {
            return error;
        }
        match plan.alone() {
            Some(place) => self.convict(place, &error),
            None => self.sequencer.suspects().suspect_all(self.ns(), plan.released()),
        }
        ReleaseFailed { cause: error }.into()
    }

    /// Has a parked delta withheld that failed alone.
    fn convict(&self, (entity, revision): (&[u8], i64), cause: &Error) {
        self.sequencer.withheld(entity, revision, cause);
        let guilty = Guilty { revision, cause: cause.chain() };
        self.sequencer.suspects().convict(self.ns(), entity, guilty);
    }

    pub(crate) fn finish(&self, plan: &Plan<'_>, applied: &[Outcome]) -> Outcomes {
        self.sequencer.suspects().clear(self.ns(), &plan.exhausted);
        self.sequencer.metrics().planned(plan);
        plan.outcomes(applied)
    }

    fn lease(&self) -> &Lease {
        &self.batch.first().lease
    }

    fn ns(&self) -> i32 {
        self.txn.namespace().number()
    }
}
