//! What layers and sources counted, by their own metrics.

use std::collections::HashMap;

use metrics_util::{
    MetricKind,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};

/// Reads the counters of this process.
#[derive(Clone)]
pub(crate) struct Counts {
    snapshotter: Snapshotter,
}

/// Records all metrics of this process in memory.
///
/// A service of yours installs an exporter here, for Prometheus for example.
pub(crate) fn install() -> Counts {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // There is another recorder only if somebody has changed this program.
    let _ = recorder.install();
    Counts { snapshotter }
}

impl Counts {
    /// All counters, summed up over labels that are not asked for: by name, or
    /// by name and one label's value, as `name=value`.
    pub(crate) fn read(&self) -> HashMap<String, u64> {
        let mut sums = HashMap::new();
        for (key, (_, _, value)) in self.snapshotter.snapshot().into_hashmap() {
            let DebugValue::Counter(count) = value else { continue };
            if key.kind() != MetricKind::Counter {
                continue;
            }
            let (name, labels) = key.key().clone().into_parts();
            *sums.entry(name.as_str().to_owned()).or_default() += count;
            for label in labels {
                let name = format!("{}={}", name.as_str(), label.value());
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }
}
