//! What a sequencer does with its tables, and what people do about deltas that
//! wait.
//!
//! `tidegate-sequencer` is built on this, and shows what an application needs of
//! it. What is decided in between is in [`tidegate_core::sequencer`].

mod error;
mod parked;
mod sweep;

use std::collections::HashMap;

use tidegate_core::{
    Record,
    sequencer::{Census, Delta, Deltas, Guilty, Met, Plan, Suspects},
};

pub use self::{
    error::SkipError,
    parked::{Aged, Parked},
    sweep::{Step, Sweep},
};
use crate::{
    DbErr, Txn,
    tables::{
        entities,
        parked::{self as rows, Parking},
    },
};

/// Locks the entities of deltas, advances those that can be by the way, and
/// reads what is known of the others.
///
/// One statement, if all advance. Parked deltas that were convicted are withheld
/// by one more each.
///
/// # Errors
///
/// When the database fails.
pub async fn meet<'a>(
    txn: &Txn,
    deltas: &Deltas<'a>,
    suspects: &Suspects,
) -> Result<Met<'a>, DbErr> {
    let standings = entities::stand(txn, deltas.rules().base(), &deltas.runs()).await?;
    let waiting = deltas.waiting(&standings);
    if waiting.is_empty() {
        return Ok(Met { standings, ..Met::default() });
    }
    let suspects = suspects.among(txn.namespace().number(), waiting.iter().copied());
    for (entity, guilty) in &suspects {
        if let Some(Guilty { revision, cause }) = guilty {
            rows::withhold(txn, (entity, *revision), Some(cause)).await?;
        }
    }
    let stored = rows::keys(txn, &waiting).await?;
    Ok(Met { standings, stored, careful: suspects.into_keys().collect() })
}

/// Takes out what a plan takes, and returns the parked deltas that pass, in the
/// order in which they do.
///
/// One statement, if there is anything.
///
/// # Errors
///
/// When the database fails.
pub async fn take(txn: &Txn, plan: &Plan<'_>) -> Result<Vec<rows::Parked>, DbErr> {
    if plan.taken.is_empty() {
        return Ok(Vec::new());
    }
    let mut taken = rows::take(txn, &plan.taken).await?;
    let order: HashMap<_, _> = plan.released().zip(0..).collect();
    taken.retain(|row| order.contains_key(&(&*row.entity, row.revision)));
    taken.sort_by_key(|row| order[&(&*row.entity, row.revision)]);
    Ok(taken)
}

/// Parks what a plan parks. `record` is that of the delta at an index.
///
/// One statement.
///
/// # Errors
///
/// When the database fails.
pub async fn park<'r>(
    txn: &Txn,
    deltas: &Deltas<'_>,
    plan: &Plan<'_>,
    record: impl Fn(usize) -> &'r Record,
) -> Result<(), DbErr> {
    let parking = |index: &usize| {
        let Delta { entity, revision, mark } = *deltas.get(*index);
        Parking::new(entity, revision, mark, record(*index))
    };
    let parking: Vec<_> = plan.parked.iter().map(parking).collect();
    rows::park(txn, &parking).await
}

/// Writes where entities stand that did not advance by themselves.
///
/// One statement, if there are any.
///
/// # Errors
///
/// When the database fails.
pub async fn settle(txn: &Txn, plan: &Plan<'_>) -> Result<(), DbErr> {
    if plan.settled.is_empty() {
        return Ok(());
    }
    let settled: Vec<_> = plan.settled.iter().map(|(entity, it)| (*entity, it)).collect();
    entities::settle(txn, &settled).await
}

/// How many deltas are parked in the namespace with `more`. They are counted if
/// that is not known well enough, up to a few above `bound`.
///
/// # Errors
///
/// When the database fails.
pub async fn count(txn: &Txn, census: &Census, more: usize, bound: usize) -> Result<usize, DbErr> {
    let ns = txn.namespace().number();
    if let Some(count) = census.with(ns, more, bound) {
        return Ok(count);
    }
    let limit = i64::try_from(bound).unwrap_or(i64::MAX).saturating_add(1);
    let count = usize::try_from(rows::count(txn, limit).await?).unwrap_or(bound);
    Ok(census.counted(ns, count, more, bound))
}
