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
    /// The groups of processes.
    watched: BTreeMap<u32, u8>,
}

impl Kernel {
    /// Loads the program, or says why not.
    pub fn start(threads: bool) -> Result<Kernel, String> {
        let options = SwitchOptions { threads, ..SwitchOptions::default() };
        let switches = Switches::start(options).map_err(|error| error.to_string())?;
        Ok(Kernel { switches, groups: BTreeMap::new(), watched: BTreeMap::new() })
    }

    /// Counts these processes as parts of these services from now on, and no others: ids are used again. Beyond the
    /// number of groups, a service counts with everybody else.
    pub fn watch(&mut self, processes: &[(String, u32)]) {
        let mut watched = BTreeMap::new();
        for (service, pid) in processes {
            if let Some(group) = self.group(service) {
                // A process that is part of two counts for the first.
                watched.entry(*pid).or_insert(group);
            }
        }
        for (&pid, &group) in
            watched.iter().filter(|(pid, group)| self.watched.get(pid) != Some(group))
        {
            self.switches.set_group(pid, group);
        }
        for &pid in self.watched.keys().filter(|pid| !watched.contains_key(pid)) {
            self.switches.set_group(pid, 0);
        }
        self.watched = watched;
    }

    /// Returns the group of a service, a new one if it has none and one is left.
    fn group(&mut self, service: &str) -> Option<u8> {
        if let Some(&group) = self.groups.get(service) {
            return Some(group);
        }
        let next =
            u8::try_from(self.groups.len() + 1).ok().filter(|&next| usize::from(next) < GROUPS)?;
        self.groups.insert(service.into(), next);
        Some(next)
    }

    /// Returns the run-queue delays of the group that a process is in; `None` if it is not watched.
    pub fn delays(&self, pid: u32) -> Option<Histogram> {
        let group = *self.watched.get(&pid)?;
        Some(histogram(&self.switches.times(group).run_queue))
    }

    /// The program, for what it knows of threads.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Returns the histograms of all services.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        let machine = Labels::default();
        metrics.counter("heddle_kernel_switches_total", &machine, self.switches.count());
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
