//! The text by a parser of its own: the form, buckets, escapes, and whatever other programs call themselves.

use heddle_core::Histogram;
use heddle_export::openmetrics::{Labels, Metrics};
use heddle_telemetry::{Layout, Page};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Series = BTreeMap<String, String>;

/// A family: its type, and its samples by name and labels.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, Series, f64)>,
}

/// Parses text, and checks what the specification of OpenMetrics demands of every text.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("the end mark");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut seen) = (String::new(), BTreeSet::new());
    for line in body.split_terminator('\n') {
        if let Some(of) = line.strip_prefix("# ") {
            let (what, rest) = of.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            if what == "HELP" {
                assert!(!families.contains_key(name), "{name} twice");
                current = name.into();
            }
            assert_eq!(current, name, "{line}");
            let family = families.entry(current.clone()).or_default();
            match what {
                "TYPE" => family.kind = value.into(),
                "UNIT" => assert!(name.ends_with(&format!("_{value}")), "{line}"),
                "HELP" => {}
                other => panic!("{other}: {line}"),
            }
            continue;
        }
        assert!(seen.insert(line.rsplit_once(' ').unwrap().0.to_owned()), "twice: {line}");
        let sample = sample(line);
        let family = families.get_mut(&current).unwrap();
        let suffix = sample.0.strip_prefix(&current[..]).expect("samples follow their family");
        let suffixes: &[&str] = match &family.kind[..] {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("type {other}"),
        };
        assert!(suffixes.contains(&suffix), "{line}");
        family.samples.push(sample);
    }
    families
}

/// `name{key="value",...} number`
fn sample(line: &str) -> (String, Series, f64) {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = Series::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, value) = rest.split_once("=\"").unwrap();
            assert!(key.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            let (value, after) = quoted(value);
            assert!(labels.insert(key.into(), value).is_none(), "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let number = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    (name.into(), labels, number.parse().unwrap_or_else(|_| panic!("{line}")))
}

/// Reads to the closing quote.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                other => panic!("\\{other}"),
            }),
            c => value.push(c),
        }
    }
    panic!("no closing quote: {text}")
}

/// Checks the buckets of each histogram: they rise, the last is the count.
fn check_histograms(families: &BTreeMap<String, Family>) {
    for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
        let mut counts: BTreeMap<Series, Vec<(f64, f64)>> = BTreeMap::new();
        for (_, labels, value) in family.samples.iter().filter(|s| s.0.ends_with("_bucket")) {
            let mut labels = labels.clone();
            let edge = labels.remove("le").unwrap().replace("+Inf", "inf");
            counts.entry(labels).or_default().push((edge.parse().unwrap(), *value));
        }
        for (labels, buckets) in counts {
            assert_eq!(buckets.len(), 29);
            assert!(buckets.is_sorted(), "{name} {buckets:?}");
            assert!(buckets.is_sorted_by_key(|bucket| bucket.1 as u64), "{name} {buckets:?}");
            let count = family.samples.iter().find(|s| s.0.ends_with("_count") && s.1 == labels);
            assert_eq!(count.unwrap().2, buckets[28].1);
        }
    }
}

#[test]
fn counters_and_histograms_of_a_page_are_families() {
    let layout = Layout {
        labels: "policy=two-queue",
        counters: &[
            ("heddle_runtime_switches_total", "worker=0"),
            ("heddle_runtime_switches_total", "worker=1"),
            ("heddle_runtime_tasks", ""),
            ("evil name", "tid=3"),
        ],
        histograms: &[("heddle_runtime_wait_seconds", "class=lc")],
        ..Layout::default()
    };
    let page = Page::create(&layout).unwrap();
    (0..4).for_each(|n| page.counter(n).add(n as u64 + 1));
    page.histogram(0).record(5_000);
    let mine = |text: &str| text.contains("policy=two-queue");
    let found = heddle_telemetry::find(std::process::id()).unwrap();
    let reader = found.iter().find(|reader| mine(&reader.labels())).unwrap();
    let mut metrics = Metrics::default();
    metrics.page("quote \" and \\ back", reader);
    assert_eq!(metrics.refused(), 1);
    let families = parse(&metrics.into_text());
    check_histograms(&families);
    let switches = &families["heddle_runtime_switches"];
    assert_eq!((&switches.kind[..], switches.samples.len()), ("counter", 2));
    let (_, labels, value) = &switches.samples[1];
    let labels: Vec<_> = labels.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let service = "quote \" and \\ back";
    assert_eq!(labels, [("executor", "1"), ("policy", "two-queue"), ("service", service)]);
    assert_eq!((*value, &families["heddle_runtime_tasks"].kind[..]), (2.0, "gauge"));
    assert_eq!(families["heddle_runtime_wait_seconds"].kind, "histogram");
}

#[test]
fn what_an_ended_process_counted_stays_and_its_gauges_do_not() {
    let layout = Layout {
        labels: "class=ended",
        counters: &[("heddle_runtime_switches_total", ""), ("heddle_runtime_tasks", "")],
        ..Layout::default()
    };
    let page = Page::create(&layout).unwrap();
    (0..2).for_each(|n| page.counter(n).add(7));
    let found = heddle_telemetry::find(std::process::id()).unwrap();
    let reader = found.iter().find(|reader| reader.labels() == "class=ended").unwrap();
    let (mut ended, mut now) = (Metrics::default(), Metrics::default());
    ended.counts("a", reader);
    now.page("a", reader);
    now.merge(&ended);
    let families = parse(&now.into_text());
    assert_eq!(families["heddle_runtime_switches"].samples[0].2, 14.0);
    assert_eq!(families["heddle_runtime_tasks"].samples[0].2, 7.0);
}

proptest! {
    /// Whatever names and numbers there are, the text has the right form.
    #[test]
    fn any_names_are_valid_text(
        all in proptest::collection::vec((".{0,9}", "heddle_[a-c_]{1,3}(_seconds|_total|_sum|_seconds_total)?",
            "(worker|class|tid|,|=|\"|\\\\|\n|.){0,9}", any::<u64>(), 0..3_u8), 0..40)
    ) {
        let mut metrics = Metrics::default();
        let count = all.len() as u64;
        let mut taken = 0;
        for (service, name, labels, value, kind) in all {
            let labels = Labels::service(&service).with(&labels);
            let refused = metrics.refused();
            match kind {
                0 => metrics.counter(&name, &labels, value),
                1 => metrics.gauge(&name, &labels, value as f64),
                _ => {
                    let mut times = Histogram::default();
                    times.record(value);
                    metrics.histogram(&name, &labels, &times);
                }
            }
            taken += u64::from(refused == metrics.refused());
        }
        prop_assert_eq!(taken + metrics.refused(), count);
        let families = parse(&metrics.into_text());
        check_histograms(&families);
    }
}
