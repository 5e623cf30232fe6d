//! Nothing forms batches.

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
            .layer(InboxLayer::new(inbox()))
            .layer(SequencerLayer::new(sequencer()))
            .service(effect_fn(apply))
    });
}
