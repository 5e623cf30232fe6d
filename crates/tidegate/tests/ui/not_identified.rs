//! A payload without an id below an inbox.

mod support;

use support::*;

#[derive(Deserialize)]
struct Payment {
    id: u64,
}

async fn apply(txn: &Txn, payment: &Payment) -> Result<(), DbErr> {
    txn.execute_unprepared(&payment.id.to_string()).await.map(drop)
}

fn main() {
    let _ = source().serve(|assignment: Assignment| {
        ServiceBuilder::new()
            .layer(FrontierLayer::new(assignment.frontier()))
            .layer(FenceLayer::new(assignment.lease()))
            .layer(DecodeLayer::json::<Payment>())
            .layer(QueueLayer::by_key(QueueConfig::default()))
            .layer(InboxLayer::new(inbox()))
            .service(effect_fn(apply))
    });
}
