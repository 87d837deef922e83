//! Collects interleaved runs into rows.

use crate::{Histogram, Row, Run, Slowdown};

/// The percentiles reported for every latency, with their metric names.
const PERCENTILES: [(&str, f64); 4] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// Collects the values of several runs and makes one [`Row`] of those with the same system, case, metric,
/// unit and load. Rows keep the order of their first values.
///
/// ```
/// use heddle_metrics::{Collector, Run};
///
/// let mut collect = Collector::new();
/// for (heddle, tokio) in [(24.0, 96.0), (25.0, 97.0), (23.0, 95.0)] {
///     collect.add("heddle", "yield", "cpu_ns_per_op", "ns", Run::ok(heddle));
///     collect.add("tokio", "yield", "cpu_ns_per_op", "ns", Run::ok(tokio));
/// }
/// let rows = collect.into_rows();
/// assert_eq!((rows.len(), rows[1].value), (2, 96.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Collector {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    runs: Vec<Run>,
    samples: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Key {
    system: String,
    case: String,
    metric: String,
    unit: String,
    load: Option<f64>,
}

impl Collector {
    /// Returns an empty collector.
    pub fn new() -> Collector {
        Collector::default()
    }

    /// Adds one run's value of a metric without a load.
    pub fn add(&mut self, system: &str, case: &str, metric: &str, unit: &str, run: Run) {
        self.at(None).add(system, case, metric, unit, run);
    }

    /// Returns the handle to add runs at an offered load of `per_s` (1/s).
    pub fn at_load(&mut self, per_s: f64) -> LoadPoint<'_> {
        self.at(Some(per_s).filter(|l| l.is_finite()))
    }

    /// Returns the handle to add runs without a load.
    pub fn without_load(&mut self) -> LoadPoint<'_> {
        self.at(None)
    }

    fn at(&mut self, load: Option<f64>) -> LoadPoint<'_> {
        LoadPoint { collector: self, load }
    }

    /// Returns one row for each metric.
    pub fn into_rows(self) -> Vec<Row> {
        self.entries.into_iter().map(Entry::into_row).collect()
    }

    fn entry(&mut self, key: Key) -> &mut Entry {
        let at = self.entries.iter().position(|e| e.key == key).unwrap_or_else(|| {
            self.entries.push(Entry { key, runs: Vec::new(), samples: 0 });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }
}

impl Entry {
    fn into_row(self) -> Row {
        let Key { system, case, metric, unit, load } = &self.key;
        let mut row = Row::from_runs(system, case, metric, unit, &self.runs);
        row.load = *load;
        row.samples = Some(self.samples).filter(|&n| n > 0);
        row
    }
}

/// An offered load of a [`Collector`], or none, at which runs are added.
#[derive(Debug)]
pub struct LoadPoint<'a> {
    collector: &'a mut Collector,
    load: Option<f64>,
}

impl LoadPoint<'_> {
    /// Adds one run's value of a metric.
    pub fn add(&mut self, system: &str, case: &str, metric: &str, unit: &str, run: Run) {
        self.push(system, case, metric, unit, run, 0);
    }

    /// Adds one run's latencies: `p50`, `p90`, `p99`, `p99.9`, `mean` and `max` in ns. `invalid` is the reason
    /// why the run must not be quoted, if any. A run without samples is always invalid.
    pub fn latency(&mut self, system: &str, case: &str, h: &Histogram, invalid: Option<&str>) {
        let values = PERCENTILES.map(|(name, p)| (name, h.percentile(p).0 as f64));
        let rest = [("mean", h.mean().0 as f64), ("max", h.max().0 as f64)];
        for (metric, value) in values.into_iter().chain(rest) {
            self.push(system, case, metric, "ns", sampled(value, h.count(), invalid), h.count());
        }
    }

    /// Adds one run's slowdowns: `slowdown_p50` and the other percentiles, and `slowdown_mean`, in `x` (times).
    pub fn slowdown(&mut self, system: &str, case: &str, s: &Slowdown, invalid: Option<&str>) {
        let values = PERCENTILES.map(|(name, percent)| (name, s.percentile(percent)));
        for (name, value) in values.into_iter().chain([("mean", s.mean())]) {
            let run = sampled(value, s.count(), invalid);
            self.push(system, case, &format!("slowdown_{name}"), "x", run, s.count());
        }
    }

    fn push(&mut self, system: &str, case: &str, metric: &str, unit: &str, run: Run, samples: u64) {
        let key = Key {
            system: system.into(),
            case: case.into(),
            metric: metric.into(),
            unit: unit.into(),
            load: self.load,
        };
        let entry = self.collector.entry(key);
        entry.runs.push(run);
        entry.samples += samples;
    }
}

fn sampled(value: f64, count: u64, invalid: Option<&str>) -> Run {
    match (count, invalid) {
        (_, Some(reason)) => Run::invalid(value, reason),
        (0, None) => Run::invalid(value, "no samples"),
        (_, None) => Run::ok(value),
    }
}
