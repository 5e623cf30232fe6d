//! A loop over a `StreamConsumer`, as rdkafka's documentation has it.

use anyhow::{Context as _, Result};
use rdkafka::{
    ClientConfig, Message as _,
    consumer::{CommitMode, Consumer as _, StreamConsumer},
};

use crate::{job::Job, meter::Meter, transfer::Transfer};

pub(super) async fn run(job: &Job, meter: &Meter) -> Result<()> {
    let consumer: StreamConsumer = config(job).create()?;
    consumer.subscribe(&[&job.topic])?;
    let work = async {
        loop {
            let message = consumer.recv().await?.detach();
            let payload = message.payload().context("a record has a payload")?;
            let transfer: Transfer = serde_json::from_slice(payload)?;
            meter.add(transfer.revision);
            meter.note(1);
        }
    };
    tokio::select! {
        failed = work => return failed,
        () = meter.done() => {}
    }
    // Everything handed out is stored, and done.
    commit(&consumer);
    Ok(())
}

/// What the documentation's consumers are configured with.
pub(super) fn config(job: &Job) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &job.bootstrap)
        .set("group.id", &job.group)
        .set("auto.offset.reset", "earliest");
    for (name, value) in &job.properties {
        config.set(name, value);
    }
    config
}

/// Commits what is stored. Nothing may be left of it, which is an error for the
/// client; that all is committed is looked at after each run.
pub(super) fn commit<C: rdkafka::consumer::ConsumerContext>(consumer: &StreamConsumer<C>) {
    drop(consumer.commit_consumer_state(CommitMode::Sync));
}
