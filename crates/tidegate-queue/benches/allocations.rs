//! How often the layers above a batch allocate.
//!
//! ```text
//! cargo bench -p tidegate-queue --features metrics --bench allocations
//! ```
//!
//! Each line counts the allocations of 100 000 deliveries. The times are not to
//! be compared: counting costs time too.

mod stack;

use divan::{AllocProfiler, Bencher};
use stack::{Layers, Load};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    stack::telemetry();
    divan::main();
}

#[divan::bench(args = Layers::ALL, consts = [1, 10, 100], sample_count = 3, sample_size = 1)]
fn layers<const BATCH: usize>(bencher: Bencher<'_, '_>, layers: Layers) {
    let load = Load { layers, deliveries: 100_000, batch: BATCH, window: 1_000, in_turn: false };
    bencher.bench_local(|| stack::run(load));
}
