//! Contradictions within a scenario, which no single value shows.

use super::{Connections, Load, Scenario, Steer};
use crate::costs::PreemptionSource;
use crate::workload::Arrivals;
use heddle_core::Ns;

/// The offending key and an explanation.
type Contradiction = (&'static str, String);

impl Scenario {
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        self.machine_contradiction()
            .or_else(|| self.extent_contradiction())
            .or_else(|| self.load_contradiction())
            .or_else(|| self.connections_contradiction())
            .or_else(|| self.parts_contradiction())
    }

    fn machine_contradiction(&self) -> Option<Contradiction> {
        let (field, words) = self.machine.contradiction()?;
        let key = match field {
            "cpus" => "machine.cpus",
            "smt" => "machine.smt",
            "llc" => "machine.llc",
            _ => "machine.node",
        };
        Some((key, words))
    }

    fn extent_contradiction(&self) -> Option<Contradiction> {
        let Scenario { requests, warmup, .. } = *self;
        match () {
            () if requests < 100 => {
                Some(("requests", format!("{requests} requests; expected at least 100")))
            }
            () if !(0.0..=10.0).contains(&warmup) => Some((
                "warmup",
                format!("{warmup} will not do; expected a share of the requests, 0 to 10"),
            )),
            () => None,
        }
    }

    fn connections_contradiction(&self) -> Option<Contradiction> {
        let Connections { count, dealt } = self.connections;
        let key = "workload.connections";
        match () {
            () if count == 0 && dealt => {
                let words = "parts are dealt to connections, and there are none; expected `connections` above zero";
                Some(("workload.dealt", words.into()))
            }
            () if count == 0 => None,
            () if !self.arrivals.is_open() => Some((
                key,
                "the senders come from the arrivals themselves here; expected poisson, periodic or mmpp"
                    .into(),
            )),
            () if dealt && (count as usize) < self.mix.parts().len() => Some((
                key,
                format!(
                    "{count} for {} parts of the mix; expected one for each at least",
                    self.mix.parts().len()
                ),
            )),
            () => None,
        }
    }

    /// Returns the key by which the load was given.
    pub(crate) fn load_key(&self) -> &'static str {
        match self.load {
            Load::Share(_) => "workload.load",
            Load::PerSecond(_) => "workload.rate",
        }
    }

    fn load_contradiction(&self) -> Option<Contradiction> {
        if !self.arrivals.is_open() {
            return None;
        }
        let (key, capacity) = (self.load_key(), self.capacity());
        let share = self.rate() / capacity;
        match () {
            () if share.is_nan() || share <= 0.0 => {
                Some((key, "no requests arrive; expected a load above zero".into()))
            }
            () if share >= 1.0 => Some((
                key,
                format!(
                    "load above capacity: {:.0} requests/s arrive; expected less than {capacity:.0} \
                     requests/s, which is what {} CPUs can do with {} each in the mean (load = 1)",
                    self.rate(),
                    self.machine.cpus,
                    Ns(self.mix.mean() as u64),
                ),
            )),
            () => None,
        }
    }

    fn parts_contradiction(&self) -> Option<Contradiction> {
        let trace = matches!(self.arrivals, Arrivals::Trace(_));
        let no_dispatcher =
            self.preemption.by == PreemptionSource::Dispatcher && self.dispatcher.is_none();
        match self.steering.to {
            _ if no_dispatcher => Some((
                "preemption.by",
                "preemption by the dispatcher, and there is none; expected a table [dispatcher], or \
                 by = \"timer-core\""
                    .into(),
            )),
            Steer::ByPart if trace => Some((
                "workload.steering",
                "a trace does not say beforehand how its parts divide the work; expected another \
                 steering, such as round-robin"
                    .into(),
            )),
            _ => None,
        }
    }
}
