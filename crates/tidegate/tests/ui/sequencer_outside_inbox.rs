//! The sequencer works in the transaction.

mod support;

use support::*;

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
    txn.execute_unprepared(&transfer.account).await.map(drop)
}

fn main() {
    let _ = source().serve(|assignment: Assignment| {
        ServiceBuilder::new()
            .layer(FrontierLayer::new(assignment.frontier()))
            .layer(FenceLayer::new(assignment.lease()))
            .layer(DecodeLayer::json::<Transfer>())
            .layer(QueueLayer::new(QueueConfig::default()))
            .layer(SequencerLayer::new(sequencer()))
            .layer(InboxLayer::new(inbox()))
            .service(effect_fn(apply))
    });
}
