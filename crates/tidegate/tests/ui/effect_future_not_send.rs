//! The same, for a type that implements `Effect`.

mod support;

use support::*;

struct Shared;

impl Effect<Transfer> for Shared {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
        let shared = std::rc::Rc::new(transfer.revision);
        txn.execute_unprepared(&transfer.account).await?;
        drop(shared);
        Ok(())
    }
}

fn main() {}
