//! What the layers above a batch cost a delivery, in memory, on one thread,
//! with metrics recorded and events filtered at `info`.
//!
//! ```text
//! cargo bench -p tidegate-queue --features metrics
//! ```
//!
//! Each line is the time of 100 000 deliveries: 10 ms are 100 ns a delivery. The
//! stacks grow by one layer from one to the next, so a layer's share is the
//! difference.

mod stack;

use divan::Bencher;
use stack::Layers;

const BATCHES: [usize; 3] = [1, 10, 100];
const WINDOW: usize = 1_000;

fn main() {
    stack::telemetry();
    divan::main();
}

#[divan::bench(args = BATCHES, sample_count = 20, sample_size = 1)]
fn a_direct(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Direct, batch, WINDOW));
}

#[divan::bench(args = BATCHES, sample_count = 20, sample_size = 1)]
fn b_queue(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Queue, batch, WINDOW));
}

#[divan::bench(args = BATCHES, sample_count = 20, sample_size = 1)]
fn c_decode(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Decode, batch, WINDOW));
}

#[divan::bench(args = BATCHES, sample_count = 20, sample_size = 1)]
fn d_fence(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Fence, batch, WINDOW));
}

#[divan::bench(args = BATCHES, sample_count = 20, sample_size = 1)]
fn e_frontier(bencher: Bencher<'_, '_>, batch: usize) {
    bencher.bench_local(|| stack::run(Layers::Frontier, batch, WINDOW));
}

/// The whole of it, by how many deliveries are in flight.
#[divan::bench(args = [10, 1_000, 100_000], sample_count = 20, sample_size = 1)]
fn in_flight(bencher: Bencher<'_, '_>, window: usize) {
    bencher.bench_local(|| stack::run(Layers::Frontier, 100, window));
}
