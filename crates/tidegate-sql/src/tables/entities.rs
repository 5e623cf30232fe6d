//! Where entities stand.

use sea_orm::{ConnectionTrait as _, DbErr, Statement};
pub use tidegate_core::sequencer::{Run, Standing};

use super::Columns;
use crate::Txn;

/// Locks the entities of runs, which are sorted by entity, and advances those
/// that stand where their run begins. Returns for each, in order, where it
/// stands if it did not.
///
/// An entity that is not there yet stands at `base`. One statement, if all
/// advance; else two.
///
/// # Errors
///
/// When the database fails.
pub async fn stand(txn: &Txn, base: i64, runs: &[Run<'_>]) -> Result<Vec<Option<Standing>>, DbErr> {
    let ns = txn.namespace().number();
    let rows = txn.query_all_raw(txn.statements().stand(ns, base, runs)).await?;
    let mut standings = vec![None; runs.len()];
    let mut behind = Vec::with_capacity(rows.len());
    for row in &rows {
        let place = usize::try_from(Columns::of(row).next::<i64>()?).ok();
        let index = place.and_then(|place| place.checked_sub(1)).filter(|it| *it < runs.len());
        let index = index.ok_or_else(|| DbErr::Type("`slot` is out of range".to_owned()))?;
        standings[index] = Some(Standing { revision: base, held: 0, last: None });
        behind.push(runs[index].entity);
    }
    if behind.is_empty() {
        return Ok(standings);
    }
    // A statement of its own: the last one did not see rows that were committed
    // while it waited for them.
    for row in &txn.query_all_raw(txn.statements().standing(ns, base, &behind)).await? {
        let mut columns = Columns::of(row);
        let entity: Vec<u8> = columns.next()?;
        if let Ok(index) = runs.binary_search_by(|run| run.entity.cmp(&entity)) {
            standings[index] = Some(columns.standing()?);
        }
    }
    Ok(standings)
}

/// Writes where entities stand that are locked.
///
/// # Errors
///
/// When the database fails, or has not written them all.
pub async fn settle(txn: &Txn, standings: &[(&[u8], &Standing)]) -> Result<(), DbErr> {
    let statement = txn.statements().settle(txn.namespace().number(), standings);
    let written = txn.execute_raw(statement).await?.rows_affected();
    match usize::try_from(written) == Ok(standings.len()) {
        true => Ok(()),
        false => Err(DbErr::RecordNotUpdated),
    }
}

/// Locks one entity, and reads where it stands.
///
/// # Errors
///
/// When the database fails.
pub async fn lock(txn: &Txn, entity: &[u8]) -> Result<Option<Standing>, DbErr> {
    let lock = txn.dialect().for_update();
    let sql = format!(
        "SELECT rev, held, last_id, last_fp FROM tidegate_entity WHERE ns = $1 AND ent = $2{lock}"
    );
    let values = [txn.namespace().number().into(), entity.to_vec().into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    let row = txn.query_one_raw(statement).await?;
    row.as_ref().map(|row| Columns::of(row).standing()).transpose()
}

// ===== impl Columns =====

impl Columns<'_> {
    fn standing(&mut self) -> Result<Standing, DbErr> {
        Ok(Standing { revision: self.next()?, held: self.next()?, last: self.optional_mark()? })
    }
}
