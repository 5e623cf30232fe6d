//! Counts allocations, while somebody asks for it.

mod ffi;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use self::ffi::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Runs something, and counts how often it allocates. A block that grows counts
/// again.
pub(crate) fn count(run: impl FnOnce()) -> u64 {
    let before = COUNT.load(Relaxed);
    ON.store(true, Relaxed);
    run();
    ON.store(false, Relaxed);
    COUNT.load(Relaxed) - before
}

// Off, it costs the reading of a flag that nobody writes.
fn note() {
    if ON.load(Relaxed) {
        COUNT.fetch_add(1, Relaxed);
    }
}
