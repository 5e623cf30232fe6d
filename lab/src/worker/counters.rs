use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};

/// Remembers the counters and gauges of all layers.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    shared: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    counters: BTreeMap<String, Arc<AtomicU64>>,
    gauges: BTreeMap<String, Arc<AtomicU64>>,
}

// ===== impl Counters =====

impl Counters {
    /// Makes these the counters of the process.
    pub(super) fn install() -> Self {
        let counters = Self::default();
        set_global_recorder(counters.clone()).expect("a process installs its recorder once");
        counters
    }

    /// All of them, by name and labels.
    pub(super) fn read(&self) -> BTreeMap<String, f64> {
        let known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = known.counters.iter().map(|(name, value)| {
            #[expect(clippy::cast_precision_loss, reason = "no experiment counts that far")]
            let value = value.load(Ordering::Relaxed) as f64;
            (name.clone(), value)
        });
        let gauges = known
            .gauges
            .iter()
            .map(|(name, value)| (name.clone(), f64::from_bits(value.load(Ordering::Relaxed))));
        counters.chain(gauges).collect()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(Arc::clone(known.counters.entry(name(key)).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        Gauge::from_arc(Arc::clone(known.gauges.entry(name(key)).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// As `name{label=value,..}`.
fn name(key: &Key) -> String {
    let labels: Vec<_> =
        key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    if labels.is_empty() {
        return key.name().to_owned();
    }
    format!("{}{{{}}}", key.name(), labels.join(","))
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, with_local_recorder};

    use super::Counters;

    #[test]
    fn counters_and_gauges_are_read_by_name_and_labels() {
        let counters = Counters::default();
        with_local_recorder(&counters, || {
            counter!("records_total", "kind" => "new").increment(2);
            counter!("records_total", "kind" => "new").increment(1);
            gauge!("lag").set(1.5);
        });
        let read = counters.read().into_iter().collect::<Vec<_>>();
        let expected = [("lag".to_owned(), 1.5), ("records_total{kind=new}".to_owned(), 3.0)];
        assert_eq!(read, expected);
    }
}
