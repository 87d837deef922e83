//! Metrics as OpenMetrics text, which Prometheus and its like scrape.
//!
//! Names are `heddle_<layer>_<what>_total` for counters, `heddle_<layer>_<what>_seconds` for times; labels are
//! `service`, `executor`, `class` and `policy` and nothing else: a label with a thread or a connection would make a
//! series of each. Series that agree in all labels are added up.
//!
//! Buckets end at the powers of two from 1,024 ns. [`Histogram`]'s edges are among those, so what a bucket says is
//! exact: times are counted in whole nanoseconds, rounded down, and 1,023 is the last that is below 1,024. Sums are
//! estimates from the histogram (within a sixteenth).
//!
//! ```
//! use heddle_core::Histogram;
//! use heddle_export::openmetrics::{Labels, Metrics};
//!
//! let mut waits = Histogram::default();
//! waits.record(1_500);
//! let mut metrics = Metrics::default();
//! let server = Labels::service("server");
//! metrics.counter("heddle_steer_decisions_total", &server, 3);
//! metrics.histogram("heddle_kernel_run_queue_delay_seconds", &server, &waits);
//! let text = metrics.into_text();
//! assert!(text.contains("heddle_steer_decisions_total{service=\"server\"} 3\n"));
//! assert!(text.contains("_bucket{le=\"0.000002048\",service=\"server\"} 1\n"), "{text}");
//! ```

use std::collections::BTreeMap;
use std::fmt;

use heddle_core::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

mod labels;
mod pages;

pub use labels::Labels;

/// The content type of [`Metrics::into_text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Edges of buckets: powers of two from 2^10 ns on.
const FIRST_POWER: u32 = 10;
const EDGES: u32 = 28;
/// Series of all families together: what processes write is not trusted to be little.
const SERIES: usize = 20_000;
/// The longest name of a metric.
const LONGEST_NAME: usize = 128;

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Count(u64),
    /// Nanoseconds.
    Time(u64),
    Number(f64),
    Times(Box<Histogram>),
}

impl Value {
    /// Adds a value of the same kind; returns whether it is.
    fn add(&mut self, other: &Value) -> bool {
        match (self, other) {
            (Value::Count(own), Value::Count(other)) | (Value::Time(own), Value::Time(other)) => {
                *own = own.saturating_add(*other);
            }
            (Value::Number(own), Value::Number(other)) => *own += other,
            (Value::Times(own), Value::Times(other)) => own.merge(other),
            _ => return false,
        }
        true
    }

    fn metric_type(&self) -> MetricType {
        match self {
            Value::Count(_) | Value::Time(_) => MetricType::Counter,
            Value::Number(_) => MetricType::Gauge,
            Value::Times(_) => MetricType::Histogram,
        }
    }
}

/// What is known at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// By name without `_total`. All values of a family are of one kind.
    families: BTreeMap<String, BTreeMap<Labels, Value>>,
    sources: BTreeMap<String, bool>,
    refused: u64,
}

impl Metrics {
    /// States whether a source could be read; what it had would be here.
    pub fn source(&mut self, name: &str, is_up: bool) {
        self.sources.insert(name.into(), is_up);
    }

    /// Adds to a counter. A name of `_seconds_total` states a time, and `value` is in nanoseconds.
    pub fn counter(&mut self, name: &str, labels: &Labels, value: u64) {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let is_time = name.ends_with("_seconds");
        self.add(name, labels, if is_time { Value::Time(value) } else { Value::Count(value) });
    }

    /// Adds to a number that also falls.
    pub fn gauge(&mut self, name: &str, labels: &Labels, value: f64) {
        self.add(name, labels, Value::Number(value));
    }

    /// Adds durations in nanoseconds. The name ends in `_seconds`.
    pub fn histogram(&mut self, name: &str, labels: &Labels, times: &Histogram) {
        self.add(name, labels, Value::Times(Box::new(times.clone())));
    }

    /// Adds everything that `other` has.
    pub fn merge(&mut self, other: &Metrics) {
        for (name, series) in &other.families {
            series.iter().for_each(|(labels, value)| self.add(name, labels, value.clone()));
        }
        self.sources.extend(other.sources.iter().map(|(name, up)| (name.clone(), *up)));
        self.refused += other.refused;
    }

    /// Returns how many values were refused: a name that is none, a kind that differs, too many series.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn add(&mut self, name: &str, labels: &Labels, value: Value) {
        let all: usize = self.families.values().map(BTreeMap::len).sum();
        let kind = self.families.get(name).and_then(|series| series.values().next());
        let fits =
            kind.is_none_or(|kind| kind.metric_type().as_str() == value.metric_type().as_str());
        if !is_name(name, &value) || !fits || all >= SERIES {
            self.refused += 1;
            return;
        }
        let series = self.families.entry(name.into()).or_default();
        match series.get_mut(labels) {
            Some(known) => self.refused += u64::from(!known.add(&value)),
            None => {
                series.insert(labels.clone(), value);
            }
        }
    }

    /// Returns the text, with its end mark.
    #[must_use]
    pub fn into_text(self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut text, &self.into_registry());
        text
    }

    /// Returns the text in the older form, which node_exporter's textfile collector reads.
    #[must_use]
    pub fn into_prometheus_text(self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_text::encode(&mut text, &self.into_registry());
        text
    }

    fn into_registry(self) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        registry
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, series) in &self.families {
            encode_family(&mut encoder, name, series)?;
        }
        let help = "Whether a source of metrics could be read";
        let name = "heddle_exporter_source_up";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (source, up) in &self.sources {
            family.encode_family(&[("source", &source[..])])?.encode_gauge(&u32::from(*up))?;
        }
        let help = "Values that were left out: without a valid name, of two kinds, or too many";
        let name = "heddle_exporter_refused";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        family.encode_gauge(&self.refused)
    }
}

fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    series: &BTreeMap<Labels, Value>,
) -> Result<(), fmt::Error> {
    let Some(kind) = series.values().next() else { return Ok(()) };
    let unit = name.strip_suffix("_seconds").map(|name| (name, Unit::Seconds));
    let (stem, unit) = unit.map_or((name, None), |(name, unit)| (name, Some(unit)));
    let mut family =
        encoder.encode_descriptor(stem, &help(stem), unit.as_ref(), kind.metric_type())?;
    for (labels, value) in series {
        let mut one = family.encode_family(labels)?;
        match value {
            Value::Count(count) => one.encode_counter::<Labels, _, u64>(count, None)?,
            Value::Time(ns) => one.encode_counter::<Labels, _, f64>(&(*ns as f64 / 1e9), None)?,
            Value::Number(number) => one.encode_gauge(number)?,
            Value::Times(times) => {
                let sum = times.estimated_sum() / 1e9;
                one.encode_histogram::<Labels>(sum, times.count(), &buckets(times), None)?;
            }
        }
    }
    Ok(())
}

/// `heddle_steer_decisions`: `decisions of layer steer`.
fn help(stem: &str) -> String {
    let words = stem.strip_prefix("heddle_").unwrap_or(stem).replace('_', " ");
    match words.split_once(' ') {
        Some((layer, what)) => format!("{what} of layer {layer}"),
        None => words,
    }
}

/// Returns each bucket's upper edge in seconds, and its own count.
fn buckets(times: &Histogram) -> Vec<(f64, u64)> {
    let edges = (0..EDGES).map(|at| 1_u64 << (FIRST_POWER + at));
    let mut from = 0;
    let mut up_to = |bucket: usize| {
        let counts = &times.counts[from..bucket];
        from = bucket;
        counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count))
    };
    let within = |edge: u64| (edge as f64 / 1e9, up_to(Histogram::bucket(edge)));
    let mut buckets: Vec<_> = edges.map(within).collect();
    buckets.push((f64::INFINITY, up_to(Histogram::BUCKETS)));
    buckets
}

/// Whether a family may have this name: one of ours, and no sample of it can have another family's name.
fn is_name(name: &str, value: &Value) -> bool {
    const SUFFIXES: [&str; 6] = ["_total", "_created", "_count", "_sum", "_bucket", "_info"];
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_time = matches!(value, Value::Times(_) | Value::Time(_));
    name.starts_with("heddle_")
        && !name.starts_with("heddle_exporter_")
        && name.len() <= LONGEST_NAME
        && name.chars().all(is_letter)
        && !SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        && (!is_time || name.ends_with("_seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_and_add_up() {
        let mut times = Histogram::default();
        let values = [0, 1_023, 1_024, 2_047, 2_048, 5_000, 1 << 37, u64::MAX];
        values.iter().for_each(|&value| times.record(value));
        let buckets = buckets(&times);
        assert_eq!(buckets.len(), 29);
        let mut below = 0;
        for (n, (edge, count)) in buckets[..28].iter().enumerate() {
            below += count;
            let ns = 1_u64 << (10 + n);
            assert!((edge * 1e9 - ns as f64).abs() < 1e-3);
            assert_eq!(below, values.iter().filter(|value| **value < ns).count() as u64, "{ns}");
        }
        assert_eq!((buckets[27].0.round(), buckets[28]), (137.0, (f64::INFINITY, 2)));
        assert_eq!(buckets.iter().map(|bucket| bucket.1).sum::<u64>(), times.count());
    }

    #[test]
    fn names_of_others_are_refused_and_counted() {
        let mut metrics = Metrics::default();
        let labels = Labels::service("a");
        for name in ["up", "heddle_A", "heddle_a\nb", "heddle_a_sum", "heddle_exporter_source_up"] {
            metrics.counter(name, &labels, 1);
        }
        metrics.histogram("heddle_runtime_wait", &labels, &Histogram::default());
        metrics.counter("heddle_a_b_total", &labels, 1);
        metrics.gauge("heddle_a_b", &labels, 1.0);
        assert_eq!(metrics.refused(), 7);
        let text = metrics.into_text();
        assert!(text.contains("heddle_a_b_total{service=\"a\"} 1\n"), "{text}");
        assert!(text.contains("heddle_exporter_refused 7\n"), "{text}");
    }

    #[test]
    fn series_of_the_same_labels_are_added() {
        let (mut one, mut two) = (Metrics::default(), Metrics::default());
        let labels = Labels::service("a");
        one.counter("heddle_runtime_cpu_seconds_total", &labels, 1_500_000_000);
        two.counter("heddle_runtime_cpu_seconds_total", &labels, 1_000_000_000);
        two.source("pages", true);
        one.merge(&two);
        let text = one.into_text();
        assert!(text.contains("heddle_runtime_cpu_seconds_total{service=\"a\"} 2.5\n"), "{text}");
        assert!(text.contains("heddle_exporter_source_up{source=\"pages\"} 1\n"), "{text}");
    }
}
