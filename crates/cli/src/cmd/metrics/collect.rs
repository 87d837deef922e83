//! Everything that is known at one moment.

use heddle_export::openmetrics::Metrics;

use crate::sources::agents;
use crate::sources::kernel::Kernel;
use crate::sources::pages::Pages;
use crate::sources::steering::{self, Steerings};

/// The sources, read at each scrape.
pub struct Collector {
    pages: Pages,
    steerings: Steerings,
    /// `None` if it is not wanted; else the program, or why it could not be loaded.
    kernel: Option<Result<Kernel, String>>,
}

impl Collector {
    pub fn new(with_kernel: bool) -> Collector {
        Collector {
            pages: Pages::default(),
            steerings: Steerings::default(),
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
        let enclaves = agents::read();
        metrics.merge(&agents::metrics(&enclaves));
        if let Some(Ok(kernel)) = &mut self.kernel {
            for page in &self.pages.open {
                page.pid().into_iter().for_each(|pid| kernel.watch(&page.service, pid));
            }
            for (attachment, _) in attachments.iter().flatten() {
                kernel.watch(&steering::service(attachment), attachment.pid);
            }
            for enclave in enclaves.iter().flatten() {
                let pid = enclave.record.pid.into_iter();
                pid.for_each(|pid| kernel.watch(&enclave.record.name, pid));
            }
            metrics.merge(&kernel.metrics());
        }
        metrics.source("kernel", matches!(self.kernel, Some(Ok(_))));
        metrics
    }
}
