//! An effect whose future stays on one thread.

mod support;

use support::*;

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
    let shared = std::rc::Rc::new(transfer.revision);
    txn.execute_unprepared(&transfer.account).await?;
    drop(shared);
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
