use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};
use serde::Deserialize;
use serde_json::Map;
use tidegate_testkit::{Command as Order, Event, Place};
use tokio::{sync::watch, time::timeout};

use crate::worker::{Line, Logged, now};

/// What a worker's layers have counted, by name and labels.
pub(crate) type Counters = BTreeMap<String, f64>;

/// How a partition of a worker stands.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Standing {
    pub(crate) partition: i32,
    pub(crate) state: String,
    pub(crate) cause: Option<String>,
    pub(crate) in_flight: usize,
    pub(crate) bytes: usize,
}

/// All that a worker has said.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) log: Vec<Logged>,
    pub(super) done: Vec<Order>,
    pub(super) refused: Vec<String>,
    pub(super) reached: HashMap<u64, Vec<Place>>,
    pub(super) counters: Counters,
    pub(super) counted: u64,
    pub(super) status: Vec<Standing>,
    pub(super) told: u64,
    // Of its two pipes.
    closed: u8,
    /// When it had said its last, in milliseconds since the Unix epoch.
    pub(crate) silent_since: Option<i64>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

// ===== impl Shared =====

impl Default for Shared {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Waits until something is so.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        patience: Duration,
        mut holds: impl FnMut(&State) -> Option<T>,
    ) -> Result<T> {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = holds(&self.lock()) {
                    return found;
                }
                // The sender lives as long as `self`.
                let _ = changes.changed().await;
            }
        };
        match timeout(patience, waiting).await {
            Ok(found) => Ok(found),
            Err(_) => bail!("it did not happen within {} s: {what}", patience.as_secs()),
        }
    }
}

// ===== impl State =====

impl State {
    /// One of its pipes is closed.
    pub(super) fn close(&mut self) {
        self.closed += 1;
        if self.closed == 2 {
            self.silent_since = Some(now());
        }
    }

    /// Whether it says nothing more: it has ended.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Takes a line of its standard output.
    pub(super) fn hear(&mut self, line: &str) {
        match line.parse() {
            Ok(Line::Probe(Event::Done(order))) => self.done.push(order),
            Ok(Line::Probe(Event::Reached { id, places })) => {
                self.reached.insert(id, places);
            }
            Ok(Line::Probe(Event::Refused(line))) => self.refused.push(line),
            Ok(Line::Counters(counters)) => {
                self.counters = counters;
                self.counted += 1;
            }
            Ok(Line::Status(status)) => {
                self.status = serde_json::from_value(status).unwrap_or_default();
                self.told += 1;
            }
            Ok(_) | Err(_) => self.note(line),
        }
    }

    /// Takes a line of its log.
    pub(super) fn note(&mut self, line: &str) {
        self.log.push(serde_json::from_str(line).unwrap_or_else(|_| Logged {
            // What is no event is a panic's message, or a library's.
            at: now(),
            level: "ERROR".to_owned(),
            target: "stderr".to_owned(),
            message: line.to_owned(),
            fields: Map::new(),
        }));
    }
}
