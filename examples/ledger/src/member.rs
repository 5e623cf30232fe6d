//! A member of the group: a source, and the stack that it serves.

use anyhow::Context as _;
use tidegate::{
    Upkeep,
    kafka::{KafkaConfig, KafkaSource, ServeError, Status},
    prelude::*,
};
use tokio::{sync::watch, task::JoinHandle};
use tower::ServiceBuilder;

use crate::{
    arguments::{Arguments, Protocol},
    ledger::{Ledger, Posting},
};

/// A member that runs.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) status: Status,
    stop: watch::Sender<bool>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Member {
    /// Starts a member. Each needs a name of its own: entries are written in it.
    pub(crate) fn start(
        name: String,
        config: KafkaConfig,
        arguments: &Arguments,
        database: &Database,
    ) -> anyhow::Result<Self> {
        let group = arguments.group.clone();
        let inbox = Inbox::new(database.clone());
        let letters = DeadLetterTable::new(database.clone());
        let sequencer = Sequencer::parking(Posting::decode);
        let source = KafkaSource::new(config)?.subscribe([&arguments.topic]);
        let status = source.status();
        let (stop, mut stopped) = watch::channel(false);
        let (worker, database) = (name.clone(), database.clone());
        let serve = source
            .serve(move |assignment: Assignment| {
                let (lease, frontier) = (assignment.lease(), assignment.frontier());
                let guard = EpochGuardLayer::new(database.clone(), group.as_str(), lease.clone());
                let effect = effect(Ledger::new(&worker, &lease));
                let below = ServiceBuilder::new().layer(guard.clone()).service(effect.clone());
                Upkeep::new(inbox.clone(), sequencer.clone(), below).watch(&lease);
                ServiceBuilder::new()
                    .layer(FrontierLayer::new(frontier.clone()))
                    .layer(FenceLayer::new(lease.clone()))
                    .layer(DeadLetterLayer::new(letters.clone(), &lease, &frontier))
                    .layer(DecodeLayer::new(Posting::decode))
                    .layer(QueueLayer::new(QueueConfig::default()))
                    .layer(DeadLetterLayer::new(letters.clone(), &lease, &frontier))
                    .layer(RetryLayer::new(Backoff::default()))
                    .layer(InboxLayer::new(inbox.clone()))
                    .layer(guard)
                    .layer(SequencerLayer::new(sequencer.clone()))
                    .service(effect)
            })
            .with_graceful_shutdown(async move {
                // A sender that is gone asks for the end too.
                let _ = stopped.wait_for(|stop| *stop).await;
            });
        let serving = tokio::spawn(serve.into_future());
        Ok(Self { name, status, stop, serving })
    }

    /// Asks it to drain and to leave.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.serving.is_finished()
    }

    /// Waits until it has left.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        let name = self.name;
        let ended = self.serving.await.with_context(|| format!("{name} panicked"))?;
        ended.with_context(|| format!("{name} ended"))
    }
}

/// The configuration of a member.
pub(crate) fn config(arguments: &Arguments, bootstrap: &str) -> KafkaConfig {
    let config = KafkaConfig::new(bootstrap, &arguments.group);
    let config = match arguments.protocol {
        Protocol::Consumer => config.property("group.protocol", "consumer"),
        Protocol::Range => config.property("partition.assignment.strategy", "range"),
        Protocol::CooperativeSticky => {
            config.property("partition.assignment.strategy", "cooperative-sticky")
        }
    };
    let properties = arguments.properties.iter();
    properties.fold(config, |config, (name, value)| config.property(name, value))
}
