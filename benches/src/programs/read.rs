//! As much of a stack as there is without a database.

use anyhow::Result;
use tidegate::{
    core::{Batch, Outcomes},
    prelude::*,
};
use tokio::time::sleep;
use tower::{ServiceBuilder, service_fn};

use super::once::config;
use crate::{job::Job, meter::Meter, transfer::Transfer};

pub(super) async fn run(job: &Job, meter: &Meter) -> Result<()> {
    let queue = QueueConfig::default().lanes(job.lanes).batch_records(job.batch);
    let (noted, work) = (meter.clone(), job.work);
    KafkaSource::new(config(job))?
        .subscribe([&job.topic])
        .serve(move |assignment: Assignment| {
            let (each, whole) = (noted.clone(), noted.clone());
            ServiceBuilder::new()
                .map_response(move |recorded| {
                    each.note(1);
                    recorded
                })
                .layer(FrontierLayer::new(assignment.frontier()))
                .layer(FenceLayer::new(assignment.lease()))
                .layer(DecodeLayer::json::<Transfer>())
                .layer(QueueLayer::new(queue.clone()))
                .service(service_fn(move |batch: Batch<Delivery<Transfer>>| {
                    let meter = whole.clone();
                    async move {
                        meter.batch();
                        if !work.is_zero() {
                            sleep(work).await;
                        }
                        meter.add(batch.iter().map(|it| it.value.revision).sum());
                        Ok::<_, Error>(Outcomes::all(Outcome::Applied, batch.len()))
                    }
                }))
        })
        .with_graceful_shutdown({
            let meter = meter.clone();
            async move { meter.done().await }
        })
        .await?;
    Ok(())
}
