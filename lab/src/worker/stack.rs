use std::{sync::Arc, time::Duration};

use tidegate::Upkeep;
use tidegate::{
    core::{Batch, Outcomes, Recorded},
    prelude::*,
    sql::InTransaction,
};
use tidegate_testkit::{Located as _, Place, Point, ProbeLayer, Probes};
use tower::{
    ServiceBuilder,
    util::{BoxCloneService, BoxService, option_layer},
};
use tower_layer::Layer as _;

use super::{
    Arguments, LayerName, Sabotage,
    effect::{Balances, Entry, Ledger, decode},
    sabotage::{
        AdmittingLayer, CancelledCompleted, CompletedEarly, DetachedLayer, HighestFinished,
        MarkerFirstLayer, UnmarkedLayer,
    },
};

type InOne = InTransaction<Batch<Delivery<Entry>>>;

/// Makes a stack for each assignment.
pub(super) struct Stacks {
    arguments: Arguments,
    database: Database,
    inbox: Inbox,
    sequencer: Sequencer<Entry>,
    probes: Probes,
}

/// What is made of a record in a transaction.
type Inner = BoxCloneService<InOne, Outcomes, Error>;

/// What is made of a batch.
type Batched = BoxCloneService<Batch<Delivery<Entry>>, Outcomes, Error>;

// ===== impl Stacks =====

impl Stacks {
    pub(super) fn new(arguments: Arguments, database: Database, probes: Probes) -> Self {
        let inbox = Inbox::new(database.clone());
        Self { arguments, database, inbox, sequencer: Sequencer::parking(decode), probes }
    }

    pub(super) fn stack(&self, assignment: &Assignment) -> BoxService<Delivery, Recorded, Error> {
        let lease = assignment.lease();
        let frontier = assignment.frontier();
        let effect = effect(Ledger {
            worker: Arc::from(self.arguments.name.as_str()),
            epoch: i64::from(lease.epoch().generation),
            work: Duration::from_millis(self.arguments.work),
            balances: self.arguments.overwrites.then(Balances::default),
        });
        if self.arguments.has(LayerName::Sequencer) {
            let (inbox, sequencer) = (self.inbox.clone(), self.sequencer.clone());
            Upkeep::new(inbox, sequencer, effect.clone()).watch(&lease);
        }
        let applied = ServiceBuilder::new()
            .layer(self.probe_in_transaction(Point::AfterEffect))
            .service(effect);
        let letters = self.arguments.has(LayerName::DeadLetters).then(|| {
            DeadLetterLayer::new(DeadLetterTable::new(self.database.clone()), &lease, &frontier)
        });
        let queue =
            QueueConfig::default().lanes(self.arguments.lanes).batch_records(self.arguments.batch);
        let queued = ServiceBuilder::new()
            .layer(self.probe(Point::Admitted))
            .layer(FenceLayer::new(lease.clone()))
            .layer(option_layer(letters.clone()))
            .layer(DecodeLayer::new(decode))
            .layer(QueueLayer::new(queue))
            .layer(option_layer(letters))
            .layer(RetryLayer::new(Backoff::default()))
            .layer(self.probe(Point::BeforeBegin))
            .layer(self.probe(Point::AfterCommit))
            .service(self.in_transactions(&lease, BoxCloneService::new(applied)));
        let probe = self.probe(Point::Completed);
        match self.arguments.sabotage {
            Some(Sabotage::HighestFinished) => {
                let wrong = AdmittingLayer::new(frontier, HighestFinished::default());
                BoxService::new(probe.layer(wrong.layer(queued)))
            }
            Some(Sabotage::CompletedEarly) => {
                let wrong = AdmittingLayer::new(frontier, CompletedEarly);
                BoxService::new(probe.layer(wrong.layer(queued)))
            }
            Some(Sabotage::CancelledCompleted) => {
                let wrong = AdmittingLayer::new(frontier, CancelledCompleted);
                BoxService::new(probe.layer(wrong.layer(queued)))
            }
            _ if self.arguments.detached => BoxService::new(
                DetachedLayer.layer(probe.layer(FrontierLayer::new(frontier).layer(queued))),
            ),
            _ => BoxService::new(probe.layer(FrontierLayer::new(frontier).layer(queued))),
        }
    }

    /// The layers from the transaction down.
    fn in_transactions(&self, lease: &tidegate::core::Lease, applied: Inner) -> Batched {
        let guard = self.arguments.guard.then(|| {
            let group = self.arguments.group.as_str();
            EpochGuardLayer::new(self.database.clone(), group, lease.clone())
        });
        let sequenced = if self.arguments.has(LayerName::Sequencer) {
            BoxCloneService::new(SequencerLayer::new(self.sequencer.clone()).layer(applied))
        } else {
            applied
        };
        let inner: Inner = BoxCloneService::new(
            ServiceBuilder::new()
                .layer(option_layer(guard))
                .layer(self.probe_in_transaction(Point::AfterMarker))
                .service(sequenced),
        );
        match self.arguments.sabotage {
            Some(Sabotage::NothingMarked) => {
                BoxCloneService::new(UnmarkedLayer::new(self.database.clone()).layer(inner))
            }
            Some(Sabotage::MarkerFirst) => {
                let inner = MarkerFirstLayer::new(self.database.clone()).layer(inner);
                BoxCloneService::new(InboxLayer::new(self.inbox.clone()).layer(inner))
            }
            _ => BoxCloneService::new(InboxLayer::new(self.inbox.clone()).layer(inner)),
        }
    }

    fn probe(&self, point: Point) -> ProbeLayer {
        ProbeLayer::new(&self.probes, point)
    }

    fn probe_in_transaction(
        &self,
        point: Point,
    ) -> ProbeLayer<impl Fn(&InOne) -> Vec<Place> + Clone + Send + 'static> {
        self.probe(point).located_by(|it: &InOne| it.request.places())
    }
}
