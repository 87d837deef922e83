//! The page of an agent process: what its report counts, where other processes read it ([`heddle_telemetry`]).

use super::Report;
use crate::policy::CLASSES;
use heddle_core::{Class, Histogram};
use heddle_telemetry::{Layout, Page, is_wanted};

/// Name and value of each number. Times are in nanoseconds.
type Number = (&'static str, fn(&Report) -> u64);

const NUMBERS: [Number; 11] = [
    ("heddle_agent_committed_total", |report| report.committed),
    ("heddle_agent_failed_total", |report| report.failed),
    ("heddle_agent_taken_total", |report| report.taken),
    ("heddle_agent_messages_total", |report| report.messages),
    ("heddle_agent_lost_total", |report| report.lost),
    ("heddle_agent_preemptions_total", |report| report.preemptions),
    ("heddle_agent_steals_total", |report| report.steals),
    ("heddle_agent_pauses_total", |report| report.pauses),
    ("heddle_agent_cpu_seconds_total", |report| report.agents_cpu_ns.unwrap_or(0)),
    ("heddle_agent_waiting", |report| report.waiting.iter().map(|&n| n as u64).sum()),
    ("heddle_agent_threads", |report| report.threads),
];

/// Returns the name of a class of threads.
#[must_use]
pub fn class_name(class: usize) -> String {
    match class {
        class if class == usize::from(Class::LC.0) => "lc".into(),
        class if class == usize::from(Class::BE.0) => "be".into(),
        other => other.to_string(),
    }
}

/// Returns a histogram from the buckets of a report.
#[must_use]
pub fn histogram(buckets: &[(u64, u64)]) -> Histogram {
    let mut times = Histogram::default();
    for &(upper, count) in buckets {
        let bucket = &mut times.counts[Histogram::bucket(upper)];
        *bucket = bucket.saturating_add(count);
    }
    times
}

/// The page, if there is one. Without it there is still the report.
pub(crate) struct ReportPage(Option<Page>);

impl ReportPage {
    /// Makes the page of an agent of `enclave`, unless there is none, the user wants none or the system has no memory
    /// or descriptor for it.
    pub fn new(enclave: Option<&str>, policy: &str) -> ReportPage {
        let Some(enclave) = enclave.filter(|_| is_wanted()) else { return ReportPage(None) };
        let policy = policy.split(':').next().unwrap_or_default();
        let classes: Vec<String> =
            (0..CLASSES).map(|class| format!("class={}", class_name(class))).collect();
        let name = "heddle_agent_wakeup_delay_seconds";
        let histograms: Vec<_> = classes.iter().map(|class| (name, class.as_str())).collect();
        let layout = Layout {
            labels: &format!("layer=agent,policy={policy},service={enclave}"),
            counters: &NUMBERS.map(|(name, _)| (name, "")),
            histograms: &histograms,
            ..Layout::default()
        };
        ReportPage(Page::create(&layout).ok())
    }

    /// Shows what `report` says.
    pub fn show(&self, report: &Report) {
        let Some(page) = &self.0 else { return };
        for (at, (_, value)) in NUMBERS.iter().enumerate() {
            page.counter(at).set(value(report));
        }
        for class in report.classes.iter().filter(|class| class.class < CLASSES) {
            page.histogram(class.class).set(&histogram(&class.buckets));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClassReport, Delay};
    use super::*;
    use heddle_telemetry::{Reader, find};

    fn pages(enclave: &str) -> Vec<Reader> {
        let labels = format!("layer=agent,policy=two-queue,service={enclave}");
        // An error is that another test is making the only page.
        let all = find(std::process::id()).unwrap_or_default().into_iter();
        all.filter(|page| page.labels() == labels).collect()
    }

    #[test]
    fn the_page_shows_what_the_report_says() {
        let page = ReportPage::new(Some("shown"), "two-queue:quantum=1ms");
        let mut times = Histogram::default();
        [3, 900, u64::MAX].iter().for_each(|&time| times.record(time));
        let delay = Delay { count: 3, p50_ns: 0, p90_ns: 0, p99_ns: 0, p999_ns: 0, max_ns: 0 };
        let buckets = times.buckets().collect();
        let report = Report {
            committed: 7,
            lost: 2,
            waiting: vec![3, 4],
            classes: vec![ClassReport { class: 1, delay, buckets }],
            ..Report::default()
        };
        page.show(&report);
        let found = pages("shown");
        let [reader] = &found[..] else { panic!("one page: {found:?}") };
        let counters = reader.counters();
        let value = |end: &str| {
            let name = format!("heddle_agent_{end}");
            counters.iter().find(|one| one.name == name).map(|one| one.value)
        };
        let expected = [("committed_total", 7), ("lost_total", 2), ("waiting", 7), ("threads", 0)];
        expected.into_iter().for_each(|(end, n)| assert_eq!(value(end), Some(n), "{end}"));
        assert_eq!(counters.len(), NUMBERS.len());
        let histograms = reader.histograms();
        let shown: Vec<_> = histograms.iter().map(|one| (&one.labels[..], &one.value)).collect();
        assert_eq!(shown, [("class=be", &times)]);
    }

    #[test]
    fn an_agent_without_an_enclaves_name_has_no_page() {
        ReportPage::new(None, "two-queue").show(&Report::default());
        assert!(pages("").is_empty());
    }
}
