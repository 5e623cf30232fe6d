//! Counts what a program has done, and sees when.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use tokio::sync::Notify;

use crate::job::{Job, Tally};

/// Counts records, shared by all that do them.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Inner>);

struct Inner {
    expected: u64,
    records: AtomicU64,
    revisions: AtomicI64,
    batches: AtomicU64,
    first: AtomicI64,
    tenth: AtomicI64,
    nine_tenths: AtomicI64,
    last: AtomicI64,
    done: Notify,
    log: Option<Mutex<BufWriter<File>>>,
}

// ===== impl Meter =====

impl Meter {
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let create = |path: &Path| Ok::<_, std::io::Error>(BufWriter::new(File::create(path)?));
        let log = job.log.as_deref().map(create).transpose()?.map(Mutex::new);
        Ok(Self(Arc::new(Inner {
            expected: job.records,
            records: AtomicU64::new(0),
            revisions: AtomicI64::new(0),
            batches: AtomicU64::new(0),
            first: AtomicI64::new(0),
            tenth: AtomicI64::new(0),
            nine_tenths: AtomicI64::new(0),
            last: AtomicI64::new(0),
            done: Notify::new(),
            log,
        })))
    }

    /// So many more records are done.
    pub(crate) fn note(&self, count: u64) {
        let inner = &*self.0;
        let before = inner.records.fetch_add(count, Relaxed);
        let crossed = |bound: u64| (before..before + count).contains(&bound.saturating_sub(1));
        if before == 0 {
            inner.first.store(now(), Relaxed);
        }
        if crossed(inner.expected / 10) {
            inner.tenth.store(now(), Relaxed);
        }
        if crossed(inner.expected / 10 * 9) {
            inner.nine_tenths.store(now(), Relaxed);
        }
        if crossed(inner.expected) {
            inner.last.store(now(), Relaxed);
            inner.done.notify_one();
        }
    }

    /// A record is done, at its place.
    pub(crate) fn note_at(&self, partition: i32, offset: i64) {
        if let Some(log) = &self.0.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(log, "{} {partition} {offset}", now()).expect("the log can be written");
        }
        self.note(1);
    }

    /// Values were decoded, with so much for the sum of their revisions.
    pub(crate) fn add(&self, revisions: i64) {
        self.0.revisions.fetch_add(revisions, Relaxed);
    }

    /// A transaction was begun for effects.
    pub(crate) fn batch(&self) {
        self.0.batches.fetch_add(1, Relaxed);
    }

    /// Waits until all is done, or nobody wants more.
    pub(crate) async fn done(&self) {
        tokio::select! {
            () = self.0.done.notified() => {}
            () = input_ended() => {}
        }
    }

    /// What there is to be said.
    pub(crate) fn tally(&self) -> Result<Tally> {
        let inner = &*self.0;
        if let Some(log) = &inner.log {
            log.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
        }
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        Ok(Tally {
            records: inner.records.load(Relaxed),
            revisions: inner.revisions.load(Relaxed),
            first: inner.first.load(Relaxed),
            tenth: inner.tenth.load(Relaxed),
            nine_tenths: inner.nine_tenths.load(Relaxed),
            last: inner.last.load(Relaxed),
            batches: inner.batches.load(Relaxed),
            cpu_micros: cpu,
            resident_bytes: u64::try_from(usage.max_rss())? * 1024,
            allocations: 0,
        })
    }
}

/// Waits until the input has ended.
async fn input_ended() {
    let mut input = tokio::io::stdin();
    // An input that cannot be read has ended too.
    drop(tokio::io::copy(&mut input, &mut tokio::io::sink()).await);
}

/// Microseconds since the Unix epoch.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
