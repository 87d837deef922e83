//! Everything that is known at one moment.

use heddle_export::openmetrics::Metrics;
use heddle_sys::processes;

use crate::sources::agents;
use crate::sources::kernel::Kernel;
use crate::sources::lanes::Lanes;
use crate::sources::pages::{LAYER_AGENT, Pages};
use crate::sources::steering::{self, Steerings};

/// The sources, read at each scrape.
pub struct Collector {
    pages: Pages,
    steerings: Steerings,
    lanes: Lanes,
    /// `None` if it is not wanted; else the program, or why it could not be loaded.
    kernel: Option<Result<Kernel, String>>,
}

impl Collector {
    pub fn new(with_kernel: bool) -> Collector {
        Collector {
            pages: Pages::default(),
            steerings: Steerings::default(),
            lanes: Lanes::default(),
            kernel: with_kernel.then(|| Kernel::start(false)),
        }
    }

    /// Returns why the kernel's scheduling is missing, if it was wanted.
    pub fn missing(&self) -> Option<&str> {
        self.kernel.as_ref().and_then(|kernel| kernel.as_ref().err()).map(String::as_str)
    }

    /// Reads all sources.
    pub fn collect(&mut self) -> Metrics {
        self.pages.refresh();
        let mut metrics = self.pages.metrics();
        let attachments = self.steerings.read();
        metrics.merge(&steering::metrics(&attachments));
        metrics.merge(&self.lanes.metrics());
        let enclaves = agents::read();
        metrics.merge(&agents::metrics(&enclaves, &self.pages.open));
        if let Some(Ok(kernel)) = &mut self.kernel {
            // An agent's process is not what it schedules.
            let pages = self.pages.open.iter().filter(|page| page.layer != LAYER_AGENT);
            let pages = pages.filter_map(|page| Some((page.service.clone(), page.pid()?)));
            let attachments = attachments.iter().flatten();
            let attachments =
                attachments.flat_map(|(one, _)| family(steering::service(one), one.pid));
            let enclaves = enclaves.iter().flatten().map(|enclave| &enclave.record);
            let enclaves =
                enclaves.filter_map(|record| Some(family(record.name.clone(), record.pid?)));
            kernel.watch(&pages.chain(attachments).chain(enclaves.flatten()).collect::<Vec<_>>());
            metrics.merge(&kernel.metrics());
        }
        metrics.source("kernel", matches!(self.kernel, Some(Ok(_))));
        metrics
    }
}

/// Returns a process and its descendants, all of one service.
fn family(service: String, pid: u32) -> impl Iterator<Item = (String, u32)> {
    processes::family(pid).into_iter().map(move |process| (service.clone(), process.pid))
}
