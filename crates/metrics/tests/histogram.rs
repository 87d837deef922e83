//! Histograms compared with the sorted list of their samples.

use heddle_core::Ns;
use heddle_metrics::{Histogram, Slowdown};
use proptest::prelude::*;

fn histogram(samples: &[u64]) -> Histogram {
    let mut h = Histogram::new();
    h.extend(samples.iter().copied().map(Ns));
    h
}

/// Latencies of every magnitude, some over the limit.
fn sample() -> impl Strategy<Value = u64> {
    (0u32..38, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))
}

/// Up to 292 years.
fn duration() -> impl Strategy<Value = u64> {
    (1u32..64, any::<u64>()).prop_map(|(shift, n)| n >> shift)
}

fn samples() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(sample(), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// I3.
    #[test]
    fn merge_is_union(a in samples(), b in samples()) {
        let mut merged = histogram(&a);
        merged.merge(&histogram(&b));
        prop_assert_eq!(merged, histogram(&[a, b].concat()));
    }

    /// The buckets, expanded in order, match the sorted samples.
    #[test]
    fn buckets_hold_the_samples_in_order(mut samples in samples()) {
        samples.iter_mut().for_each(|s| *s = (*s).min(Histogram::LIMIT.0));
        samples.sort_unstable();
        let h = histogram(&samples);
        let held: Vec<u64> =
            h.buckets().flat_map(|(end, count)| std::iter::repeat_n(end.0, count as usize)).collect();
        prop_assert_eq!(held.len(), samples.len());
        prop_assert_eq!(held.last(), Some(&h.max().0));
        for (end, exact) in held.into_iter().zip(samples) {
            prop_assert!(end >= exact && end <= exact + exact / 1000 + 1, "{end} for {exact}");
        }
    }

    #[test]
    fn percentiles_are_within_a_thousandth(mut samples in samples(), percent in 0.0f64..=100.0) {
        let h = histogram(&samples);
        samples.iter_mut().for_each(|s| *s = (*s).min(Histogram::LIMIT.0));
        samples.sort_unstable();
        let rank = (percent / 100.0 * samples.len() as f64).ceil().max(1.0) as usize;
        // Both sides round the rank in floating point: a neighbour is correct as well.
        let near = [rank.saturating_sub(1).max(1), rank, (rank + 1).min(samples.len())];
        let got = h.percentile(percent).0;
        let close = |exact: u64| got >= exact && got <= exact + exact / 1000 + 1;
        prop_assert!(near.iter().any(|&r| close(samples[r - 1])), "{got} for rank {rank} of {samples:?}");
    }

    /// I4.
    #[test]
    fn json_round_trip(samples in samples()) {
        let h = histogram(&samples);
        let text = serde_json::to_string(&h).unwrap();
        prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
    }

    /// Recorded to a thousandth, as `f64::round` rounds.
    #[test]
    fn slowdowns_are_rounded(response in duration(), service in duration()) {
        let mut s = Slowdown::new();
        s.record(Ns(response), Ns(service));
        let exact = response as f64 / service.max(1) as f64 * 1000.0;
        prop_assert_eq!(s.max(), exact.round().min(1e9) / 1000.0);
        prop_assert_eq!(s.saturated(), u64::from(exact.round() > 1e9));
    }

    #[test]
    fn decoding_never_panics(buckets in prop::collection::vec(any::<u64>(), 0..6), max: u64, saturated: u64) {
        let text = serde_json::json!({"max": max, "sum": 0, "saturated": saturated, "buckets": buckets});
        let _ = serde_json::from_value::<Histogram>(text);
    }
}

#[test]
fn saturated_samples_are_counted() {
    let mut h = Histogram::new();
    h.record(Ns::from_secs(99));
    h.record_n(Ns::from_secs(1000), 3);
    assert_eq!((h.count(), h.saturated(), h.max()), (4, 3, Histogram::LIMIT));
    assert_eq!(h.p99(), Histogram::LIMIT);
}

#[test]
fn empty_is_zero() {
    let h = Histogram::new();
    assert!(h.is_empty());
    assert_eq!((h.p50(), h.p999(), h.max(), h.mean()), (Ns::ZERO, Ns::ZERO, Ns::ZERO, Ns::ZERO));
}

#[test]
fn moments_are_exact() {
    let h = histogram(&[1, 2, 1_234_567]);
    assert_eq!((h.max(), h.mean()), (Ns(1_234_567), Ns(411_523)));
}

#[test]
fn compact_on_the_wire() {
    let mut h = Histogram::new();
    (0..1_000_000u64).for_each(|n| h.record(Ns(1_000 + n % 9_000)));
    assert!(serde_json::to_string(&h).unwrap().len() < 64 * 1024);
}

/// Written with the crate hdrhistogram, before the buckets were our own.
#[test]
fn the_text_of_a_histogram_stays_the_same() {
    let text = r#"{"max":100000000000,"sum":100001004096,"saturated":1,"buckets":[2047,1,1,1,997888,1,99991207424,1]}"#;
    let h = histogram(&[2047, 2049, 1_000_000, 200_000_000_000]);
    assert_eq!(serde_json::to_string(&h).unwrap(), text);
    assert_eq!(serde_json::from_str::<Histogram>(text).unwrap(), h);
}

#[test]
fn altered_text_is_rejected() {
    for text in [
        r#"{"max":5,"sum":5,"saturated":0,"buckets":[5]}"#,
        r#"{"max":5,"sum":5,"saturated":0,"buckets":[18446744073709551615,1]}"#,
        r#"{"max":5,"sum":5,"saturated":9,"buckets":[5,1]}"#,
        r#"{"max":3,"sum":5,"saturated":0,"buckets":[5,1]}"#,
        r#"{"max":3,"sum":5}"#,
    ] {
        assert!(serde_json::from_str::<Histogram>(text).is_err(), "{text}");
    }
}

#[test]
fn slowdown_is_a_ratio() {
    let mut s = Slowdown::new();
    s.record(Ns::from_us(10), Ns::from_us(10));
    s.record(Ns::from_us(100), Ns::from_us(10));
    s.record(Ns::from_secs(100), Ns::ZERO);
    assert_eq!((s.count(), s.saturated()), (3, 1));
    assert!((s.percentile(50.0) - 10.0).abs() < 0.011);
    s.record(Ns::MAX, Ns::ZERO);
    assert_eq!((s.count(), s.saturated()), (4, 2));
    let mut twice = s.clone();
    twice.merge(&s);
    assert_eq!((twice.count(), twice.mean()), (8, s.mean()));
}
