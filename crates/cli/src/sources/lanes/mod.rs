//! The lanes of programs that have a network of their own (`HEDDLE_NET`), as these describe them.

mod client;
pub mod record;

use std::collections::BTreeMap;
use std::time::Duration;

use heddle_export::openmetrics::{Labels, Metrics};

pub use client::{Answer, PATIENCE, ask};
use record::{Counters, Record};

use super::service_name;

/// How long a process may take to answer where others are read as well.
const BRIEFLY: Duration = Duration::from_millis(300);

/// A network of a process, and what it has counted.
pub struct Counted {
    pub pid: u32,
    pub service: String,
    pub interface: String,
    pub policy: String,
    pub counters: Vec<Counters>,
}

impl Counted {
    /// Returns the sum of the counts of these names, of one lane or of all.
    pub fn sum(&self, of: &str, names: &[&str], lane: Option<usize>) -> u64 {
        let groups = self.counters.iter().filter(|one| one.of == of);
        let groups = groups.filter(|one| lane.is_none() || one.lane == lane);
        let counts = groups.flat_map(|one| names.iter().filter_map(|name| one.counts.get(*name)));
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Returns what the lanes of all processes have counted. Those that do not answer soon are missing.
pub fn read() -> Vec<Counted> {
    let (answers, _) = ask("counters", BRIEFLY);
    let counted = |answer: Answer| {
        let counters = answer.records.into_iter().filter_map(|record| match record {
            Record::Counters(counters) => Some(counters),
            _ => None,
        });
        Counted {
            pid: answer.pid,
            service: service_name(&answer.name, ""),
            interface: answer.net.interface,
            policy: answer.net.policy.split(':').next().unwrap_or_default().to_owned(),
            counters: counters.collect(),
        }
    };
    answers.into_iter().map(counted).collect()
}

/// What lanes have counted, those of processes that have ended included.
#[derive(Default)]
pub struct Lanes {
    /// By process and interface.
    last: BTreeMap<(u32, String), Metrics>,
    ended: Metrics,
}

impl Lanes {
    /// Returns the counters as of now.
    pub fn metrics(&mut self) -> Metrics {
        let now = read().into_iter();
        let now: BTreeMap<_, _> =
            now.map(|one| ((one.pid, one.interface.clone()), metrics(&one))).collect();
        for (_, gone) in self.last.iter().filter(|(key, _)| !now.contains_key(key)) {
            // Counters must not fall because a process has ended.
            self.ended.merge(gone);
        }
        let mut all = self.ended.clone();
        now.values().for_each(|one| all.merge(one));
        self.last = now;
        all
    }
}

/// Returns counters by lane, except those of TCP: there are many.
fn metrics(of: &Counted) -> Metrics {
    let mut metrics = Metrics::default();
    let whole = Labels { policy: of.policy.clone(), ..Labels::service(&of.service) };
    for Counters { of, lane, counts } in &of.counters {
        let executor = lane.filter(|_| of != "tcp").map(|lane| lane.to_string());
        let labels = Labels { executor: executor.unwrap_or_default(), ..whole.clone() };
        for (name, count) in counts {
            metrics.counter(&format!("heddle_net_{of}_{name}_total"), &labels, *count);
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(of: &str, lane: Option<usize>, counts: &[(&str, u64)]) -> Counters {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counters { of: of.to_owned(), lane, counts }
    }

    fn server() -> Counted {
        Counted {
            pid: 1,
            service: "server".into(),
            interface: "eth0".into(),
            policy: "hash".into(),
            counters: vec![
                counters("packets", Some(0), &[("frames", 3), ("malformed", 1)]),
                counters("packets", Some(1), &[("frames", 4), ("malformed", 0)]),
                counters("tcp", Some(0), &[("retransmits", 1)]),
                counters("tcp", Some(1), &[("retransmits", 2)]),
                counters("xdp", None, &[("selected", 7)]),
            ],
        }
    }

    #[test]
    fn counts_are_metrics_of_lanes_and_of_the_whole() {
        let text = metrics(&server()).into_text();
        for line in [
            "heddle_net_packets_frames_total{service=\"server\",executor=\"1\",policy=\"hash\"} 4",
            "heddle_net_tcp_retransmits_total{service=\"server\",policy=\"hash\"} 3",
            "heddle_net_xdp_selected_total{service=\"server\",policy=\"hash\"} 7",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
    }

    #[test]
    fn counts_are_added_up() {
        let server = server();
        assert_eq!(server.sum("packets", &["frames", "malformed"], None), 8);
        assert_eq!(server.sum("packets", &["frames", "malformed"], Some(0)), 4);
        assert_eq!(server.sum("packets", &["none"], None), 0);
    }
}
