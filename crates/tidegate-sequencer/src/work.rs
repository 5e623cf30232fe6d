//! What one call does in its transaction.

use std::{collections::HashMap, sync::Arc};

use tidegate_core::{
    Batch, Class, Condition, Culprit, Delivery, Error, Lease, Outcome, Outcomes, Sequenced,
};
use tidegate_sql::{
    DbErr, EffectError, InTransaction, Txn,
    tables::{
        Mark, entities,
        parked::{self, Parking},
    },
};

use crate::{
    DeltaError, ReleaseFailed, Sequencer, WaitingForGap,
    plan::{Delta, Deltas, Passed, Plan, Reason, Refused, Verdict},
    suspects::Guilty,
};

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
        let each = self.batch.iter().zip(&self.marks).map(|(delivery, mark)| {
            let (entity, revision) = (delivery.value.entity(), delivery.value.revision());
            if !self.sequencer.is_revision(revision) {
                let error = DeltaError::NoRevision { entity: entity.to_vec(), revision };
                return Err(self.refused(error.into(), delivery.culprit()));
            }
            Ok(Delta { entity, revision, mark: *mark })
        });
        Ok(Deltas::new(self.sequencer.rules(), each.collect::<Result<_, Error>>()?))
    }

    /// Locks the entities, advances those that can be by the way, and decides
    /// about the rest.
    pub(crate) async fn plan<'d>(&self, deltas: &Deltas<'d>) -> Result<Plan<'d>, Error> {
        let base = self.sequencer.rules().base;
        let standings = entities::stand(&self.txn, base, &deltas.runs()).await.map_err(failed)?;
        let waiting = deltas.waiting(&standings);
        let suspects = self.sequencer.suspects().among(self.ns(), waiting.iter().copied());
        let mut stored = Vec::new();
        if !waiting.is_empty() {
            self.withhold(&suspects).await.map_err(failed)?;
            stored = parked::keys(&self.txn, &waiting).await.map_err(failed)?;
        }
        let plan = deltas.decide(&standings, stored, |entity| suspects.contains_key(entity));
        plan.map_err(|refused| self.cannot_take(deltas, refused))
    }

    async fn withhold(&self, suspects: &HashMap<&[u8], Option<Guilty>>) -> Result<(), DbErr> {
        for (entity, guilty) in suspects {
            if let Some(Guilty { revision, cause }) = guilty {
                parked::withhold(&self.txn, (entity, *revision), Some(cause)).await?;
            }
        }
        Ok(())
    }

    fn cannot_take(&self, deltas: &Deltas<'_>, Refused { index, reason }: Refused) -> Error {
        let Delta { entity, revision, mark } = *deltas.get(index);
        let entity = entity.to_vec();
        let error = match reason {
            Reason::Conflict { other } => Error::from(DeltaError::Conflict {
                entity,
                revision,
                known: other.id,
                found: mark.id,
            }),
            Reason::Gap { expected } => Error::from(DeltaError::Gap { entity, revision, expected }),
            Reason::Full { expected } => self.waits_for_gap(entity, expected),
        };
        self.refused(error, self.batch[index].culprit())
    }

    fn refused(&self, error: Error, culprit: Culprit) -> Error {
        self.sequencer.metrics().refused();
        tracing::warn!(
            partition = %culprit.partition,
            offset = culprit.offset,
            error = error.chain(),
            "a delta is not taken",
        );
        error.with_culprit(culprit)
    }

    fn waits_for_gap(&self, entity: Vec<u8>, expected: i64) -> Error {
        self.lease().set_condition(Condition::WaitingForGap);
        WaitingForGap { entity, expected }.into()
    }

    /// Writes what is planned, and returns what the inner service is called
    /// with.
    pub(crate) async fn write(
        &self,
        deltas: &Deltas<'_>,
        plan: &Plan<'_>,
    ) -> Result<Option<Request<T>>, Error> {
        let mut released = self.take(plan).await?;
        self.park(deltas, plan).await?;
        if !plan.settled.is_empty() {
            let settled: Vec<_> = plan.settled.iter().map(|(name, it)| (*name, it)).collect();
            entities::settle(&self.txn, &settled).await.map_err(failed)?;
        }
        let mut marks = Vec::with_capacity(plan.passed.len());
        let mut deliveries = Vec::with_capacity(plan.passed.len());
        for passed in &plan.passed {
            let (delivery, mark) = match passed {
                Passed::Own(index) => (self.batch[*index].clone(), self.marks[*index]),
                Passed::Released(entity, revision) => {
                    let (delivery, mark) = released
                        .remove(&(entity.to_vec(), *revision))
                        .expect("what passes was taken");
                    (delivery.into(), mark)
                }
            };
            marks.push(mark);
            deliveries.push(delivery);
        }
        let batch = Batch::new(deliveries);
        Ok(batch.map(|batch| InTransaction::new(self.txn.clone(), batch).with_marks(marks.into())))
    }

    /// Takes parked deltas out, and decodes those that are to pass.
    async fn take(
        &self,
        plan: &Plan<'_>,
    ) -> Result<HashMap<(Vec<u8>, i64), (Delivery<T>, Mark)>, Error> {
        let mut released = HashMap::new();
        if plan.taken.is_empty() {
            return Ok(released);
        }
        for taken in parked::take(&self.txn, &plan.taken).await.map_err(failed)? {
            let parked::Parked { entity, revision, mark, record } = taken;
            if !plan.passed.contains(&Passed::Released(&entity, revision)) {
                continue;
            }
            let value = self.sequencer.decode(&record).map_err(|cause| {
                self.convict(&entity, revision, &cause);
                Error::from(ReleaseFailed { cause })
            })?;
            let delivery = Delivery::new(self.lease().clone(), record).with_value(value);
            released.insert((entity, revision), (delivery, mark));
        }
        Ok(released)
    }

    async fn park(&self, deltas: &Deltas<'_>, plan: &Plan<'_>) -> Result<(), Error> {
        if plan.parked.is_empty() {
            return Ok(());
        }
        let room = self.sequencer.has_room(&self.txn, plan.parked.len()).await;
        if !room.map_err(failed)? {
            let first = deltas.get(plan.parked[0]);
            let standing = plan.settled.iter().find(|(entity, _)| *entity == first.entity);
            let expected = standing.map_or(first.revision, |(_, it)| it.revision + 1);
            return Err(self.waits_for_gap(first.entity.to_vec(), expected));
        }
        let parking = |index: &usize| {
            let Delta { entity, revision, mark } = *deltas.get(*index);
            Parking::new(entity, revision, mark, &self.batch[*index].record)
        };
        let rows: Vec<_> = plan.parked.iter().map(parking).collect();
        tracing::debug!(count = rows.len(), "parking early deltas");
        parked::park(&self.txn, &rows).await.map_err(failed)
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
        for passed in &plan.passed {
            let Passed::Released(entity, revision) = passed else { continue };
            match plan.passed.len() {
                1 => self.convict(entity, *revision, &error),
                _ => self.sequencer.suspects().suspect(self.ns(), entity),
            }
        }
        ReleaseFailed { cause: error }.into()
    }

    /// Has a parked delta withheld that failed alone.
    fn convict(&self, entity: &[u8], revision: i64, cause: &Error) {
        tracing::warn!(
            entity = %entity.escape_ascii(),
            revision,
            error = cause.chain(),
            "a parked delta failed alone, and is withheld",
        );
        self.sequencer.metrics().withheld();
        let guilty = Guilty { revision, cause: cause.chain() };
        self.sequencer.suspects().convict(self.ns(), entity, guilty);
    }

    pub(crate) fn finish(&self, plan: &Plan<'_>, applied: &[Outcome]) -> Outcomes {
        for entity in &plan.exhausted {
            self.sequencer.suspects().clear(self.ns(), entity);
        }
        self.sequencer.metrics().planned(plan);
        let outcome = |verdict: &Verdict| match verdict {
            Verdict::Passed(index) => applied[*index],
            Verdict::Kept(outcome) => *outcome,
        };
        plan.verdicts.iter().map(outcome).collect::<Outcomes>().with_more(plan.has_more)
    }

    fn lease(&self) -> &Lease {
        &self.batch.first().lease
    }

    fn ns(&self) -> i32 {
        self.txn.namespace().number()
    }
}

pub(crate) fn failed(error: DbErr) -> Error {
    EffectError::from(error).into()
}
