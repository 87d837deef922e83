//! The kernel's own scheduling: the program at every switch, for root.

use std::collections::BTreeMap;

use heddle_core::Histogram;
use heddle_export::openmetrics::{Labels, Metrics};
use heddle_observe::{GROUPS, SwitchOptions, Switches};

/// Run-queue delays and bursts of services, of which each is a group of processes.
pub struct Kernel {
    switches: Switches,
    /// By service. Group 0 is everybody else.
    groups: BTreeMap<String, u8>,
}

impl Kernel {
    /// Loads the program, or says why not.
    pub fn start(threads: bool) -> Result<Kernel, String> {
        let options = SwitchOptions { threads, ..SwitchOptions::default() };
        let switches = Switches::start(options).map_err(|error| error.to_string())?;
        Ok(Kernel { switches, groups: BTreeMap::new() })
    }

    /// Counts a process as part of a service. Beyond the number of groups, a service counts with everybody else.
    pub fn watch(&mut self, service: &str, pid: u32) {
        let next = self.groups.len() + 1;
        let group = match self.groups.get(service) {
            Some(&group) => group,
            None if next < GROUPS => {
                let group = u8::try_from(next).unwrap_or(0);
                self.groups.insert(service.into(), group);
                group
            }
            None => return,
        };
        self.switches.set_group(pid, group);
    }

    /// Returns the run-queue delays and the bursts of a service; `None` if it is not watched.
    pub fn times(&self, service: &str) -> Option<(Histogram, Histogram)> {
        let group = *self.groups.get(service)?;
        let times = self.switches.times(group);
        Some((histogram(&times.run_queue), histogram(&times.burst)))
    }

    /// The program, for what it knows of threads.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Returns the histograms of all services.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        let nobody = Labels::default();
        metrics.counter("heddle_kernel_switches_total", &nobody, self.switches.count());
        let others = (String::new(), 0);
        let groups = self.groups.iter().map(|(name, group)| (name.clone(), *group));
        for (service, group) in groups.chain([others]) {
            let (labels, times) = (Labels::service(&service), self.switches.times(group));
            let delay = histogram(&times.run_queue);
            metrics.histogram("heddle_kernel_run_queue_delay_seconds", &labels, &delay);
            metrics.histogram("heddle_kernel_burst_seconds", &labels, &histogram(&times.burst));
        }
        metrics
    }
}

/// Returns buckets of the kernel's program, which are those of the histogram.
fn histogram(buckets: &[u64]) -> Histogram {
    let mut times = Histogram::default();
    times.counts.iter_mut().zip(buckets).for_each(|(count, bucket)| *count = *bucket);
    times
}
