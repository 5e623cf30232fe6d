//! A store of dead letters that a test plays.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tidegate_core::{Class, DeadLetters, Error, Lease, Record, TopicPartition};
use tokio::sync::Semaphore;

#[derive(Clone, Debug)]
pub(crate) struct Letters {
    store: Arc<Store>,
}

#[derive(Debug)]
struct Store {
    buried: Mutex<BTreeSet<i64>>,
    asked: Mutex<Vec<(TopicPartition, i64)>>,
    // One for each answer.
    answers: Semaphore,
    fails: AtomicBool,
}

impl Letters {
    /// With these offsets buried, and so many answers that it gives at once.
    pub(crate) fn with(buried: &[i64], answers: usize) -> Self {
        let store = Store {
            buried: Mutex::new(buried.iter().copied().collect()),
            asked: Mutex::default(),
            answers: Semaphore::new(answers),
            fails: AtomicBool::new(false),
        };
        Self { store: Arc::new(store) }
    }

    pub(crate) fn answer(&self) {
        self.store.answers.add_permits(1);
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.store.fails.store(fails, Ordering::Relaxed);
    }

    pub(crate) fn offsets(&self) -> Vec<i64> {
        self.store.buried.lock().expect("nobody panics with it").iter().copied().collect()
    }

    /// What was asked about.
    pub(crate) fn asked(&self) -> Vec<(TopicPartition, i64)> {
        self.store.asked.lock().expect("nobody panics with it").clone()
    }

    async fn settle(&self) -> Result<(), Error> {
        self.store.answers.acquire().await.expect("it is never closed").forget();
        if self.store.fails.load(Ordering::Relaxed) {
            return Err(Error::new(Class::Transient, "the store is away"));
        }
        Ok(())
    }
}

impl DeadLetters for Letters {
    async fn bury(&self, _: &Lease, record: &Record, _: &Error) -> Result<(), Error> {
        self.settle().await?;
        self.store.buried.lock().expect("nobody panics with it").insert(record.offset);
        Ok(())
    }

    async fn buried(&self, partition: &TopicPartition, from: i64) -> Result<BTreeSet<i64>, Error> {
        let asked = (partition.clone(), from);
        self.store.asked.lock().expect("nobody panics with it").push(asked);
        self.settle().await?;
        Ok(self.offsets().into_iter().filter(|offset| *offset >= from).collect())
    }
}
