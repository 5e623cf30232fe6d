//! Where entities stand.

use sea_orm::{ConnectionTrait as _, DbErr, Statement};
pub use tidegate_core::sequencer::{Run, Standing};

use super::Columns;
use crate::Txn;

/// Locks the entities of runs, which are sorted by entity, and advances those
/// that stand where their run begins. Returns for each, in order, where it
/// stands if it did not.
///
/// An entity that is not there yet stands at `base`.
///
/// # Errors
///
/// When the database fails.
pub async fn stand(txn: &Txn, base: i64, runs: &[Run<'_>]) -> Result<Vec<Option<Standing>>, DbErr> {
    let ns = txn.namespace().number();
    let rows = txn.query_all_raw(txn.statements().stand(ns, base, runs)).await?;
    let mut standings = vec![None; runs.len()];
    let mut locked = 0;
    for row in &rows {
        let mut columns = Columns::of(row);
        locked = columns.next::<i64>()?;
        let Some(slot) = columns.next::<Option<i64>>()? else { break };
        let standing = Standing {
            revision: columns.next()?,
            held: columns.next::<i64>()?.try_into().map_err(|_| out_of_range("held"))?,
            last: columns.optional_mark()?,
        };
        let slot = usize::try_from(slot - 1).map_err(|_| out_of_range("slot"))?;
        *standings.get_mut(slot).ok_or_else(|| out_of_range("slot"))? = Some(standing);
    }
    if usize::try_from(locked) != Ok(runs.len()) {
        return Err(DbErr::RecordNotInserted);
    }
    Ok(standings)
}

/// Writes where entities stand that are locked.
///
/// # Errors
///
/// When the database fails.
pub async fn settle(txn: &Txn, standings: &[(&[u8], &Standing)]) -> Result<(), DbErr> {
    let statement = txn.statements().settle(txn.namespace().number(), standings);
    txn.execute_raw(statement).await.map(drop)
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
    let standing = |row| {
        let mut columns = Columns::of(row);
        Ok(Standing {
            revision: columns.next()?,
            held: columns.next()?,
            last: columns.optional_mark()?,
        })
    };
    row.as_ref().map(standing).transpose()
}

fn out_of_range(column: &str) -> DbErr {
    DbErr::Type(format!("`{column}` is out of range"))
}
