//! An error that does not say what is to be done about it.

mod support;

use support::*;

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), std::io::Error> {
    let _ = txn.execute_unprepared(&transfer.account).await;
    Ok(())
}

fn main() {
    let _ = source().serve(|assignment: Assignment| {
        ServiceBuilder::new()
            .layer(FrontierLayer::new(assignment.frontier()))
            .layer(FenceLayer::new(assignment.lease()))
            .layer(DecodeLayer::json::<Transfer>())
            .layer(QueueLayer::new(QueueConfig::default()))
            .layer(InboxLayer::new(inbox()))
            .layer(SequencerLayer::new(sequencer()))
            .service(effect_fn(apply))
    });
}
