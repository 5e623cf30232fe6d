//! What was recorded, by name, label and value.

use std::collections::BTreeMap;

use metrics::Unit;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// What metrics a layer that is made by `layer` records.
pub(crate) fn record<L>(layer: impl FnOnce() -> L) -> (L, Recorded) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    (metrics::with_local_recorder(&recorder, layer), Recorded { snapshotter })
}

pub(crate) struct Recorded {
    snapshotter: Snapshotter,
}

impl Recorded {
    /// The values since the last look, by `name{label=value}`, without those
    /// that are zero; and each one's unit.
    ///
    /// A histogram is the sum of its samples.
    pub(crate) fn values(&self) -> BTreeMap<String, (f64, Unit)> {
        let taken = self.snapshotter.snapshot().into_vec().into_iter();
        let values = taken.map(|(key, unit, description, value)| {
            let (_, key) = key.into_parts();
            let labels: Vec<_> = key
                .labels()
                .map(|label| format!("{{{}={}}}", label.key(), label.value()))
                .collect();
            let name = format!("{}{}", key.name(), labels.concat());
            assert!(description.is_some(), "{name} is described");
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(level) => *level,
                DebugValue::Histogram(samples) => samples.into_iter().map(|it| *it).sum(),
            };
            (name, (value, unit.expect("it is described with a unit")))
        });
        values.filter(|(_, (value, _))| *value != 0.0).collect()
    }
}

/// One line of [`Recorded::values`].
pub(crate) fn value(name: &str, value: f64, unit: Unit) -> (String, (f64, Unit)) {
    (name.to_owned(), (value, unit))
}
