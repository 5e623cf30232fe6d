//! How often the layers above a batch allocate.
//!
//! ```text
//! cargo bench -p tidegate-queue --features metrics --bench allocations
//! ```
//!
//! Each line counts the allocations of 100 000 deliveries. Its time is not to be
//! compared: counting costs time too.

mod stack;

use divan::{AllocProfiler, Bencher};
use stack::Layers;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const BATCHES: [usize; 3] = [1, 10, 100];
const WINDOW: usize = 1_000;

fn main() {
    stack::telemetry();
    divan::main();
}

#[divan::bench(args = BATCHES, sample_count = 3, sample_size = 1)]
fn direct(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Direct, batch, WINDOW));
}

#[divan::bench(args = BATCHES, sample_count = 3, sample_size = 1)]
fn full(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Frontier, batch, WINDOW));
}
