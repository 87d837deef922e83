//! The pages of processes with a Heddle runtime, an event queue or an agent.

use heddle_export::openmetrics::Metrics;
use heddle_telemetry::Reader;

use super::service_name;

/// The layer that the page of an agent names.
pub const LAYER_AGENT: &str = "agent";

/// A page that is read.
pub struct Page {
    pub reader: Reader,
    /// The layer that it names.
    pub layer: String,
    /// The enclave if it is an agent's, else the process.
    pub service: String,
    identity: (u64, u64),
}

impl Page {
    /// Its process, by this namespace's number.
    pub fn pid(&self) -> Option<u32> {
        self.reader.process().map(|process| process.pid)
    }

    /// Returns one of the labels of everything in it; empty if it has none of that name.
    pub fn label(&self, key: &str) -> String {
        self.reader.label(key).unwrap_or_default()
    }

    /// What tells it from all other pages.
    pub fn number(&self) -> u64 {
        self.identity.1
    }
}

/// The pages of this user's processes, and what those that have ended had counted.
#[derive(Default)]
pub struct Pages {
    pub open: Vec<Page>,
    ended: Metrics,
}

impl Pages {
    /// Finds pages that are new, and takes leave of those that are gone.
    pub fn refresh(&mut self) {
        let mut found: Vec<Page> = heddle_telemetry::scan().into_iter().filter_map(page).collect();
        for page in std::mem::take(&mut self.open) {
            match found.iter().position(|new| new.identity == page.identity) {
                // Rings are read on from where they were.
                Some(at) => found[at] = page,
                // Counters must not fall because a process has ended.
                None => self.ended.counts(&page.service, &page.reader),
            }
        }
        self.open = found;
    }

    /// Returns all counters and histograms.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = self.ended.clone();
        self.open.iter().for_each(|page| metrics.page(&page.service, &page.reader));
        metrics.source("pages", true);
        metrics
    }
}

fn page(reader: Reader) -> Option<Page> {
    let (identity, layer) = (reader.identity().ok()?, reader.label("layer").unwrap_or_default());
    let short = match layer == LAYER_AGENT {
        true => reader.label("service").unwrap_or_default(),
        false => reader.process().map(heddle_sys::processes::Process::name).unwrap_or_default(),
    };
    Some(Page { layer, service: service_name(&short, ""), identity, reader })
}
