//! Starting a runtime.

use super::error::{ConfigError, refused};
use crate::core_state::{Core, Inputs, Settings};
use crate::preempt::Mechanism;
use crate::runtime::Runtime;
use crate::sched::{self, Shared};
use crate::share::Share;
use crate::telemetry::Telemetry;
use crate::{probe, threads, ticker, tls};
use heddle_core::{CpuInfo, Model, Ns, Params, Policy};
use heddle_netstack::net::Net;
use heddle_policies::Visitor;
use std::sync::Arc;

/// Starts a runtime once the type of its policy is known.
pub(super) struct Start {
    pub(super) name: Option<Box<str>>,
    pub(super) topology: Vec<CpuInfo>,
    pub(super) dispatcher: Option<CpuInfo>,
    pub(super) mechanism: Mechanism,
    pub(super) stack_class: u8,
    pub(super) slice: Option<Ns>,
    pub(super) max_preempted_polls: u32,
    pub(super) share: Option<Share>,
    /// Whether other processes can read its counters, and the sockets of its lanes.
    pub(super) telemetry: bool,
    pub(super) net: Option<Arc<Net>>,
}

impl Start {
    /// Returns the time after which a running task is checked, if ever: the policy's quantum. A quantum too short for
    /// the mechanism is an error if a parameter set it, and is lengthened if it is the policy's own default.
    fn quantum<P: Policy>(&self, policy: &P) -> Result<Option<Ns>, ConfigError> {
        let mechanism = self.mechanism;
        let Some(quantum) = policy.quantum().filter(|_| mechanism != Mechanism::None) else {
            return Ok(None);
        };
        let shortest = mechanism.shortest_quantum();
        if quantum >= shortest || default_quantum::<P>() == Some(quantum) {
            return Ok(Some(quantum.max(shortest)));
        }
        Err(ConfigError::QuantumTooShort { quantum, mechanism, shortest })
    }
}

/// Returns the quantum of policy `P` without parameters.
fn default_quantum<P: Policy>() -> Option<Ns> {
    let mut params = Params::parse(P::NAME).ok()?;
    P::new(&mut params).ok()?.quantum()
}

/// Returns the labels of a runtime's page.
fn labels(policy: &str, name: Option<&str>) -> String {
    let name = name.map(|name| format!(",runtime={}", name.replace([',', '='], "_")));
    format!("layer=runtime,policy={policy}{}", name.unwrap_or_default())
}

impl Visitor for Start {
    type Out = Result<Runtime, ConfigError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        let mechanism = self.mechanism;
        let quantum = self.quantum(&policy)?;
        if self.dispatcher.is_some() && P::MODEL != Model::Central {
            return Err(ConfigError::DispatcherNotCentral(P::NAME));
        }
        tls::choice();
        mechanism.install().map_err(refused("installing signal handlers"))?;
        if mechanism == Mechanism::Probe {
            probe::hook_loaded();
        }
        let workers = self.topology.len();
        let settings = Settings {
            name: self.name,
            topology: self.topology.into(),
            mechanism,
            quantum,
            slice: self.slice.filter(|_| policy.quantum().is_none()),
            stack_class: self.stack_class,
            max_preempted_polls: self.max_preempted_polls,
            has_dispatcher: self.dispatcher.is_some(),
            share: self.share,
        };
        let queues = if P::MODEL == Model::PerCpu { workers } else { 1 };
        let labels = labels(P::NAME, settings.name.as_deref());
        // The page comes last: the runtime needs its other descriptors more.
        let inputs = Inputs::new(workers, self.net, self.telemetry)
            .map_err(refused("creating the epoll instance"))?;
        let telemetry = Telemetry::new(&labels, workers, queues, self.telemetry)
            .map_err(refused("reserving memory for counters"))?;
        let core = Core::new(settings, inputs, telemetry);
        let shared = Shared::new(core, policy).map_err(refused("reserving the task table"))?;
        let engine = shared.into_engine();
        let runtime = Runtime { engine, policy: P::NAME };
        for cpu in 0..workers {
            threads::start_worker(engine, cpu).map_err(refused("starting a worker thread"))?;
        }
        if let Some(cpu) = self.dispatcher {
            let started = sched::start_dispatcher(engine, cpu.os_id);
            started.map_err(refused("starting the dispatcher thread"))?;
        }
        if !cfg!(virtual_time) {
            ticker::start(engine).map_err(refused("starting the ticker thread"))?;
        }
        Ok(runtime)
    }
}
