//! A payload without a revision below a sequencer.

mod support;

use support::*;

#[derive(Deserialize)]
struct Payment {
    id: u64,
}

impl Identified for Payment {
    fn message_id(&self) -> MessageId {
        MessageId::from(u128::from(self.id))
    }
}

async fn apply(txn: &Txn, _: &Payment) -> Result<(), DbErr> {
    txn.execute_unprepared("SELECT 1").await.map(drop)
}

fn main() {
    let _ = source().serve(|assignment: Assignment| {
        ServiceBuilder::new()
            .layer(FrontierLayer::new(assignment.frontier()))
            .layer(FenceLayer::new(assignment.lease()))
            .layer(DecodeLayer::json::<Payment>())
            .layer(QueueLayer::new(QueueConfig::default()))
            .layer(InboxLayer::new(inbox()))
            .layer(SequencerLayer::new(Sequencer::parking(Json::<Payment>::default())))
            .service(effect_fn(apply))
    });
}
