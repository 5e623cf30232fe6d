use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use tidegate::kafka::Status;
use tidegate_testkit::Probes;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Stdout, duplex, stdin, stdout},
    sync::Mutex,
};

use super::{Line, counters::Counters};

/// The worker's side of the lines between it and the lab.
#[derive(Clone)]
pub(super) struct Pipe {
    out: Arc<Mutex<Stdout>>,
    status: Status,
    counters: Counters,
}

// ===== impl Pipe =====

impl Pipe {
    pub(super) fn new(status: Status, counters: Counters) -> Self {
        Self { out: Arc::new(Mutex::new(stdout())), status, counters }
    }

    pub(super) fn counters(&self) -> BTreeMap<String, f64> {
        self.counters.read()
    }

    pub(super) async fn say(&self, line: &Line) {
        let mut out = self.out.lock().await;
        // A lab that is gone reads nothing, and the input ends too.
        drop(out.write_all(format!("{line}\n").as_bytes()).await);
        drop(out.flush().await);
    }

    /// Does what the lab says until it says nothing any more; then the process
    /// ends, as it stands.
    pub(super) async fn serve(self, probes: Probes) {
        let (mut to_probes, commands) = duplex(1 << 16);
        let (events, from_probes) = duplex(1 << 16);
        let serving = tokio::spawn(async move {
            drop(probes.serve(BufReader::new(commands), events).await);
        });
        let telling = tokio::spawn({
            let pipe = self.clone();
            async move {
                let mut lines = BufReader::new(from_probes).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Ok(event) = line.parse() {
                        pipe.say(&Line::Probe(event)).await;
                    }
                }
            }
        });
        let mut lines = BufReader::new(stdin()).lines();
        loop {
            let line = match lines.next_line().await {
                Ok(Some(line)) => line,
                Ok(None) => break,
                // The runtime ends, and the process in its own way.
                Err(_) => return,
            };
            match line.as_str() {
                "counters" => self.say(&Line::Counters(self.counters())).await,
                "status" => self.say(&Line::Status(self.standing())).await,
                _ => drop(to_probes.write_all(format!("{line}\n").as_bytes()).await),
            }
        }
        serving.abort();
        telling.abort();
        std::process::exit(1);
    }

    fn standing(&self) -> Value {
        let partitions = self.status.partitions();
        let each = partitions.iter().map(|it| {
            json!({
                "topic": *it.partition.topic,
                "partition": it.partition.partition,
                "state": it.state.as_str(),
                "cause": it.cause.as_ref().map(tidegate::core::Error::chain),
                "generation": it.epoch.generation,
                "frontier": it.frontier,
                "committed": it.committed,
                "next": it.next,
                "end": it.end,
                "lag": it.lag,
                "in_flight": it.in_flight,
                "bytes": it.bytes,
            })
        });
        each.collect()
    }
}
