//! The enclaves, by their agents' reports. An agent shows the same in its page, which any process of its user finds
//! wherever the enclaves' folder is.

use std::fs;

use heddle_agent::agent::{Report, class_name, histogram};
use heddle_agent::guardian::{Enclaves, Record};
use heddle_export::openmetrics::{Labels, Metrics};
use heddle_sys::processes;

use super::pages::{LAYER_AGENT, Page};

/// An enclave, as its guardian and its agent describe it.
pub struct Enclave {
    pub record: Record,
    /// `None` if the agent has not reported yet, or does not report.
    pub report: Option<Report>,
}

/// Returns the enclaves, or why they cannot be read.
pub fn read() -> Result<Vec<Enclave>, String> {
    let all = Enclaves::here().try_list().map_err(|error| error.to_string())?;
    let enclave = |listed: heddle_agent::guardian::EnclaveEntry| {
        let text = fs::read(listed.folder.status()).ok();
        let report = text.and_then(|text| serde_json::from_slice(&text).ok());
        Enclave { record: listed.record, report }
    };
    Ok(all.into_iter().filter(|listed| !listed.dead).map(enclave).collect())
}

impl Enclave {
    /// Returns whether the page is that of this enclave's agent, or of one that replaces it or is replaced: another
    /// process may say anything.
    pub fn has(&self, page: &Page) -> bool {
        let Record { name, agent, guardian, .. } = &self.record;
        let is_child = |pid| processes::parent(pid) == Some(*guardian);
        page.layer == LAYER_AGENT
            && page.service == *name
            && page.pid().is_some_and(|pid| Some(pid) == *agent || is_child(pid))
    }
}

/// Returns the counters of those enclaves whose agents show none in their pages.
pub fn metrics(read: &Result<Vec<Enclave>, String>, pages: &[Page]) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.source("agents", read.is_ok());
    let is_unseen = |enclave: &&Enclave| !pages.iter().any(|page| enclave.has(page));
    for Enclave { record, report } in read.iter().flatten().filter(is_unseen) {
        let Some(report) = report else { continue };
        let policy = report.policy.split(':').next().unwrap_or_default().into();
        let labels = Labels { policy, ..Labels::service(&record.name) };
        for (name, count) in [
            ("heddle_agent_committed_total", report.committed),
            ("heddle_agent_failed_total", report.failed),
            ("heddle_agent_taken_total", report.taken),
            ("heddle_agent_messages_total", report.messages),
            ("heddle_agent_lost_total", report.lost),
            ("heddle_agent_preemptions_total", report.preemptions),
            ("heddle_agent_steals_total", report.steals),
            ("heddle_agent_pauses_total", report.pauses),
            ("heddle_agent_cpu_seconds_total", report.agents_cpu_ns.unwrap_or(0)),
        ] {
            metrics.counter(name, &labels, count);
        }
        let waiting: usize = report.waiting.iter().sum();
        metrics.gauge("heddle_agent_waiting", &labels, waiting as f64);
        metrics.gauge("heddle_agent_threads", &labels, report.threads as f64);
        for class in &report.classes {
            let labels = Labels { class: class_name(class.class), ..labels.clone() };
            let times = histogram(&class.buckets);
            metrics.histogram("heddle_agent_wakeup_delay_seconds", &labels, &times);
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Histogram;

    #[test]
    fn a_report_carries_the_whole_histogram() {
        let mut times = Histogram::default();
        [3, 900, 1_000_000, u64::MAX].iter().for_each(|&time| times.record(time));
        assert_eq!(histogram(&times.buckets().collect::<Vec<_>>()), times);
    }
}
