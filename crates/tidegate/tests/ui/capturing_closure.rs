//! `effect_fn` takes functions; what an effect holds is in a type that implements `Effect`.

mod support;

use support::*;

fn main() {
    let fee = String::from("fee");
    let apply = async move |txn: &Txn, _: &Transfer| -> Result<(), DbErr> {
        txn.execute_unprepared(&fee).await.map(drop)
    };
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
