//! A service between two readings.

use std::time::Duration;

use heddle_core::Histogram;
use heddle_metrics::human;
use serde::Serialize;

use super::reading::{Counts, Culprit, Kind, Part, Reading, Service};
use crate::out::printable;

/// What happened in an interval; `None` for what is not known, or if nothing was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// CPUs that were used.
    pub load: Option<f64>,
    /// Inputs per second.
    pub rate: Option<f64>,
    /// Inputs that wait.
    pub waiting: Option<u64>,
    pub wait_p50_ns: Option<u64>,
    pub wait_p99_ns: Option<u64>,
    pub service_p50_ns: Option<u64>,
    pub service_p99_ns: Option<u64>,
    /// Of threads in run queues.
    pub run_queue_p99_ns: Option<u64>,
    pub run_queue_mean_ns: Option<u64>,
    pub preemptions_per_second: Option<f64>,
    /// In this interval.
    pub lost: Option<u64>,
}

/// The names of the columns after the service's own.
pub const COLUMNS: [&str; 10] = [
    "CPU",
    "rate/s",
    "waiting",
    "wait p50",
    "p99",
    "service p50",
    "p99",
    "run queue",
    "preempt/s",
    "lost",
];

impl Figures {
    /// Returns what was counted between two moments that are `seconds` apart.
    fn between(before: &Counts, now: &Counts, seconds: f64) -> Figures {
        let since = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        let rate = |now, before| since(now, before).map(|count| count as f64 / seconds);
        let times = |now: &Option<Histogram>, before: &Option<Histogram>| {
            let now = now.as_ref()?;
            Some(before.as_ref().map_or_else(|| now.clone(), |before| now.since(before)))
        };
        let at = |times: &Option<Histogram>, share| times.as_ref().and_then(|t| t.quantile(share));
        let wait = times(&now.wait, &before.wait);
        let service = times(&now.service, &before.service);
        let run_queue = times(&now.run_queue, &before.run_queue);
        Figures {
            load: rate(now.cpu_ns, before.cpu_ns).map(|ns| ns / 1e9),
            rate: rate(now.inputs, before.inputs),
            waiting: now.waiting,
            wait_p50_ns: at(&wait, 0.5),
            wait_p99_ns: at(&wait, 0.99),
            service_p50_ns: at(&service, 0.5),
            service_p99_ns: at(&service, 0.99),
            run_queue_p99_ns: at(&run_queue, 0.99),
            run_queue_mean_ns: mean(before.delays, now.delays),
            preemptions_per_second: rate(now.preempted, before.preempted),
            lost: since(now.lost, before.lost),
        }
    }

    /// Returns the texts of [`COLUMNS`]. A mean has the mark `~`.
    pub fn cells(&self) -> [String; 10] {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let time = |ns: Option<u64>| or_dash(ns.map(|ns| human(ns as f64, "ns")));
        let rate = |rate: Option<f64>| or_dash(rate.map(|rate| format!("{rate:.0}")));
        let count = |count: Option<u64>| or_dash(count.map(|count| count.to_string()));
        let mean = self.run_queue_mean_ns.map(|ns| format!("~{}", human(ns as f64, "ns")));
        let p99 = self.run_queue_p99_ns.map(|ns| human(ns as f64, "ns"));
        [
            or_dash(self.load.map(|load| format!("{:.0} %", load * 100.0))),
            rate(self.rate),
            count(self.waiting),
            time(self.wait_p50_ns),
            time(self.wait_p99_ns),
            time(self.service_p50_ns),
            time(self.service_p99_ns),
            or_dash(p99.or(mean)),
            rate(self.preemptions_per_second),
            count(self.lost),
        ]
    }

    /// Returns the number by which a column sorts; what is not known is least.
    pub fn key(&self, column: usize) -> f64 {
        let time = |ns: Option<u64>| ns.map(|ns| ns as f64);
        let key = match column {
            0 => self.load,
            1 => self.rate,
            2 => time(self.waiting),
            3 => time(self.wait_p50_ns),
            4 => time(self.wait_p99_ns),
            5 => time(self.service_p50_ns),
            6 => time(self.service_p99_ns),
            7 => time(self.run_queue_p99_ns.or(self.run_queue_mean_ns)),
            8 => self.preemptions_per_second,
            _ => time(self.lost),
        };
        key.unwrap_or(-1.0)
    }
}

/// The mean delay of a turn.
fn mean(before: Option<(u64, u64)>, now: Option<(u64, u64)>) -> Option<u64> {
    let (now, before) = (now?, before.unwrap_or_default());
    let turns = now.1.saturating_sub(before.1);
    now.0.saturating_sub(before.0).checked_div(turns)
}

/// A part of a service in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartRow {
    pub name: String,
    #[serde(flatten)]
    pub figures: Figures,
}

/// A service in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub id: String,
    pub name: String,
    pub kind: Kind,
    pub policy: String,
    pub processes: Vec<u32>,
    #[serde(flatten)]
    pub figures: Figures,
    pub parts: Vec<PartRow>,
}

/// Who ran while threads of watched services waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ran {
    pub thread: u32,
    pub name: String,
    pub delayed_ns: u64,
}

/// All services in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub schema: u32,
    pub seconds: f64,
    pub services: Vec<Row>,
    /// The ten that delayed others most; `null` if that is not known.
    pub ran_meanwhile: Option<Vec<Ran>>,
    pub missing: Vec<String>,
}

impl Interval {
    /// Returns what happened between two readings.
    pub fn between(before: &Reading, now: &Reading) -> Interval {
        let seconds = (now.at - before.at).max(Duration::from_micros(1)).as_secs_f64();
        let row = |service: &Service| {
            // One that has come meanwhile began with nothing that could be compared: it is shown from the next
            // interval on.
            let same = before.services.iter().find(|old| old.id == service.id)?;
            Some(Row::between(same, service, seconds))
        };
        let services = now.services.iter().filter_map(row).collect();
        let missing = now.missing.clone();
        Interval { schema: 1, seconds, services, ran_meanwhile: ran(before, now), missing }
    }
}

impl Row {
    fn between(before: &Service, now: &Service, seconds: f64) -> Row {
        let part = |part: &Part| {
            let old = before.parts.iter().find(|old| old.name == part.name);
            let old = old.map(|old| old.counts.clone()).unwrap_or_default();
            let figures = Figures::between(&old, &part.counts, seconds);
            PartRow { name: printable(&part.name), figures }
        };
        Row {
            id: now.id.clone(),
            name: printable(&now.name),
            kind: now.kind,
            policy: printable(&now.policy),
            processes: now.pids.clone(),
            figures: Figures::between(&before.counts, &now.counts, seconds),
            parts: now.parts.iter().map(part).collect(),
        }
    }
}

fn ran(before: &Reading, now: &Reading) -> Option<Vec<Ran>> {
    const SHOWN: usize = 10;
    let (before, now) = (before.culprits.as_ref()?, now.culprits.as_ref()?);
    let since = |one: &Culprit| {
        let old = before.iter().find(|old| old.tid == one.tid).map_or(0, |old| old.delayed_ns);
        let delayed_ns = one.delayed_ns.saturating_sub(old);
        Ran { thread: one.tid, name: printable(&one.name), delayed_ns }
    };
    let mut all: Vec<Ran> = now.iter().map(since).filter(|one| one.delayed_ns > 0).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.delayed_ns));
    all.truncate(SHOWN);
    Some(all)
}
