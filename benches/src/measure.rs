//! Runs in turn, and what they say together.

use serde::Serialize;

/// What was measured in several runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) runs: Vec<f64>,
}

/// What a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// There is none: it is good to know.
    Reported,
}

/// Whether it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Short,
    Reported,
}

// ===== impl Series =====

impl Series {
    pub(crate) fn new(runs: Vec<f64>) -> Self {
        Self { runs }
    }

    /// Run by run, so that what disturbs a pair of runs disturbs no other.
    pub(crate) fn ratio_to(&self, other: &Self) -> Self {
        let runs = self.runs.iter().zip(&other.runs).map(|(ours, theirs)| ours / theirs);
        Self { runs: runs.collect() }
    }

    pub(crate) fn median(&self) -> f64 {
        quantile(&self.runs, 0.5)
    }

    /// The lowest and the highest.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let low = self.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    }
}

/// The value below which a share of all lies, between two where it falls there.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

// ===== impl Bar =====

impl Bar {
    pub(crate) fn verdict(self, value: f64) -> Verdict {
        match self {
            Self::AtLeast(bar) if value >= bar => Verdict::Met,
            Self::AtMost(bar) if value <= bar => Verdict::Met,
            Self::AtLeast(_) | Self::AtMost(_) => Verdict::Short,
            Self::Reported => Verdict::Reported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Series, Verdict, quantile};

    #[test]
    fn a_ratio_is_that_of_runs_beside_each_other() {
        let ratio = Series::new(vec![2.0, 6.0, 3.0]).ratio_to(&Series::new(vec![1.0, 2.0, 3.0]));
        assert_eq!(ratio.runs, [2.0, 3.0, 1.0]);
        assert_eq!((ratio.median(), ratio.spread()), (2.0, (1.0, 3.0)));
    }

    #[test]
    fn a_quantile_may_lie_between_two_values() {
        assert_eq!(quantile(&[4.0, 1.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), 3.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_bar_is_met_where_it_is_touched() {
        assert_eq!(Bar::AtLeast(8.0).verdict(8.0), Verdict::Met);
        assert_eq!(Bar::AtMost(1.2).verdict(1.3), Verdict::Short);
        assert_eq!(Bar::Reported.verdict(0.0), Verdict::Reported);
    }
}
