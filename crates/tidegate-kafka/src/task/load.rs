use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::Thread,
};

/// What a lease has read and not answered: the driver adds, the task takes off.
pub(crate) struct Load {
    records: AtomicUsize,
    bytes: AtomicUsize,
    // The driver waits until no more than this is left.
    wanted: AtomicBool,
    left_records: AtomicUsize,
    left_bytes: AtomicUsize,
    driver: Arc<Thread>,
}

impl Load {
    pub(crate) fn new(driver: Arc<Thread>) -> Self {
        Self {
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
            left_records: AtomicUsize::new(0),
            left_bytes: AtomicUsize::new(0),
            driver,
        }
    }

    pub(crate) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, records: usize, bytes: usize) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        let records_left = self.records.fetch_sub(1, Ordering::Relaxed) - 1;
        let bytes_left = self.bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        self.wake(records_left, bytes_left);
    }

    /// Asks to be woken when no more than this is left. The driver also looks
    /// each few milliseconds, so that a wake-up that crosses this one costs no
    /// more than that.
    pub(crate) fn want(&self, records: usize, bytes: usize) {
        self.left_records.store(records, Ordering::Relaxed);
        self.left_bytes.store(bytes, Ordering::Relaxed);
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Wakes the driver, if it waits for this.
    fn wake(&self, records: usize, bytes: usize) {
        let enough = self.wanted.load(Ordering::Relaxed)
            && records <= self.left_records.load(Ordering::Relaxed)
            && bytes <= self.left_bytes.load(Ordering::Relaxed);
        if enough && self.wanted.swap(false, Ordering::Relaxed) {
            self.driver.unpark();
        }
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load")
            .field("records", &self.records())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
