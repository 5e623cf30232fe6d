//! What the layers above a batch cost a delivery, in memory, on one thread,
//! with metrics recorded and events filtered at `info`.
//!
//! ```text
//! cargo bench -p tidegate-bench --bench overhead
//! ```

use tidegate_bench::micro::{self, Layers, Load};

use divan::Bencher;

fn main() {
    micro::telemetry();
    divan::main();
}

/// By the most in a batch, and by the layers: `Direct`, `Queue`, `Decode`,
/// `Fence` and `Frontier`, each with one layer more, so that its share is the
/// difference. Of 100 000 deliveries, so 10 ms are 100 ns a delivery.
#[divan::bench(args = Layers::ALL, consts = [1, 10, 100], sample_count = 20, sample_size = 1)]
fn layers<const BATCH: usize>(bencher: Bencher<'_, '_>, layers: Layers) {
    let load = Load { layers, deliveries: 100_000, batch: BATCH, window: 1_000, in_turn: false };
    bencher.bench_local(|| micro::run(load));
}

/// The whole of it, by how many are in flight. Of a million deliveries, so
/// 10 ms are 10 ns a delivery.
#[divan::bench(args = [10, 1_000, 100_000], sample_count = 5, sample_size = 1)]
fn in_flight(bencher: Bencher<'_, '_>, window: usize) {
    let layers = Layers::Frontier;
    let load = Load { layers, deliveries: 1_000_000, batch: 100, window, in_turn: true };
    bencher.bench_local(|| micro::run(load));
}
