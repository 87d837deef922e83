//! What processes show in their pages.

use heddle_telemetry::Reader;

use super::{Labels, Metrics};

impl Metrics {
    /// Adds everything that a page shows of `service`, unless the page names another.
    pub fn page(&mut self, service: &str, page: &Reader) {
        self.counts(service, page);
        let labels = Labels::service(service).with(&page.labels());
        for number in page.counters().iter().filter(|counter| !is_counter(&counter.name)) {
            self.gauge(&number.name, &labels.with(&number.labels), number.value as f64);
        }
    }

    /// Adds what a page has counted, which stays after its process has ended.
    pub fn counts(&mut self, service: &str, page: &Reader) {
        let labels = Labels::service(service).with(&page.labels());
        for counter in page.counters().iter().filter(|counter| is_counter(&counter.name)) {
            self.counter(&counter.name, &labels.with(&counter.labels), counter.value);
        }
        for times in page.histograms() {
            self.histogram(&times.name, &labels.with(&times.labels), &times.value);
        }
    }
}

/// Whether the number only grows.
fn is_counter(name: &str) -> bool {
    name.ends_with("_total")
}
