//! Runtime configuration: the builder, the environment and the errors.

mod error;
mod start;

pub use error::ConfigError;

use crate::code;
use crate::cpu_list;
use crate::futex;
use crate::interpose;
use crate::pool;
use crate::preempt::Mechanism;
use crate::probe;
use crate::runtime::Runtime;
use crate::share::{Share, ShareConfig, ShareError};
use crate::tls::TlsMode;
use crate::uintr;
use error::refused;
use heddle_core::{CpuInfo, Ns, Policy};
use heddle_netstack::net::Net;
use heddle_netstack::options::Network;
use heddle_policies::{Visitor, with_policy};
use start::Start;
use std::path::PathBuf;
use std::sync::Arc;

/// A builder of runtimes.
///
/// What is not set here comes from the environment: `HEDDLE_POLICY`, `HEDDLE_MECHANISM` (`none`, `signal`, `probe`,
/// `uintr`, `uintr-timer`), `HEDDLE_WORKERS`, `HEDDLE_CPUS` (`0,2-5`), `HEDDLE_DISPATCHER` (a CPU),
/// `HEDDLE_STACK_SIZE` (bytes), `HEDDLE_SHARE` with `HEDDLE_SHARE_CLASS` and `HEDDLE_SHARE_NAME`
/// ([`RuntimeBuilder::share`]), `HEDDLE_NET` (`kernel`, `xdp:eth0`, `auto:eth0`; [`RuntimeBuilder::net`]), and
/// `HEDDLE_TELEMETRY` (`on`, `off`). The defaults are work stealing without preemption, one worker for every CPU that
/// the process may use, the kernel's sockets, and no dispatcher.
/// `HEDDLE_NO_PREEMPT_CODE` (`name*,...`) adds to [`RuntimeBuilder::no_preempt_code`]. `HEDDLE_TLS` (`block`, `donor`)
/// sets for the whole process how tasks get their thread-local storage ([`Runtime::tls`]).
///
/// ```no_run
/// let runtime = heddle_rt::RuntimeBuilder::new().policy("two-queue:quantum=100us").workers(1).build()?;
/// let sum = runtime.run(|| heddle_rt::spawn(|| 1 + 1).join().unwrap());
/// assert_eq!(sum, 2);
/// # Ok::<(), heddle_rt::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuntimeBuilder {
    name: Option<Box<str>>,
    policy: Option<String>,
    mechanism: Option<Mechanism>,
    workers: Option<usize>,
    cpus: Option<Vec<u32>>,
    stack_size: Option<usize>,
    no_preempt_code: Vec<String>,
    dispatcher: Option<u32>,
    slice: Option<Ns>,
    max_preempted_polls: Option<u32>,
    share: Option<ShareConfig>,
    telemetry: Option<bool>,
    network: Option<Network>,
}

/// The default of [`RuntimeBuilder::max_preempted_polls`].
const MAX_PREEMPTED_POLLS: u32 = 1024;

/// The default policy.
const DEFAULT_POLICY: &str = "work-stealing";

impl Mechanism {
    /// Returns the best mechanism that there is here: user interrupts, then probes, then signals.
    pub fn automatic() -> Mechanism {
        if uintr::prepare().is_ok() {
            Mechanism::Uintr
        } else if probe::is_in_program() {
            Mechanism::Probe
        } else {
            Mechanism::Signal
        }
    }

    /// Succeeds if it can be had on this machine.
    ///
    /// # Errors
    /// What it needs and does not find, and what to do.
    pub fn check(self) -> Result<(), ConfigError> {
        match self.has_user_interrupts() {
            true => uintr::prepare().map_err(ConfigError::NoUserInterrupts),
            false => Ok(()),
        }
    }
}

impl RuntimeBuilder {
    /// Returns a builder with all defaults.
    pub fn new() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Sets the name used in stats and thread names: `heddle-NAME-0` and so on, of which the kernel keeps 15 bytes.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the policy and its parameters, as in `two-queue:quantum=100us,long=1ms`.
    pub fn policy(mut self, text: impl Into<String>) -> Self {
        self.policy = Some(text.into());
        self
    }

    /// Sets how tasks are preempted, if the policy preempts. The default is [`Mechanism::automatic`].
    pub fn mechanism(mut self, mechanism: Mechanism) -> Self {
        self.mechanism = Some(mechanism);
        self
    }

    /// Sets the number of workers; each is pinned to its own CPU.
    pub fn workers(mut self, n: usize) -> Self {
        self.workers = Some(n);
        self
    }

    /// Sets the CPUs to use, by the system's numbers, one worker each.
    pub fn cpus(mut self, cpus: impl Into<Vec<u32>>) -> Self {
        self.cpus = Some(cpus.into());
        self
    }

    /// Sets the default stack size of tasks in bytes, rounded up to one of [`crate::STACK_CLASSES`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Names code in which tasks are not preempted because it holds locks that other threads wait for in the kernel:
    /// functions of the program, or whole shared objects by file name, with `*` as a wildcard, as in `["my_pool_*",
    /// "libpool.so*"]`. The C library and the usual allocators are built in. The setting applies to the whole process;
    /// see also [`crate::no_preempt`] and [`crate::alloc::NoPreempt`].
    pub fn no_preempt_code(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.no_preempt_code.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs a central policy's dispatcher on `cpu`, by the system's number; it hands tasks to the workers on the other
    /// CPUs (Shinjuku). Worth it with many workers, whose contention for the queue would cost more than a CPU.
    pub fn dispatcher(mut self, cpu: u32) -> Self {
        self.dispatcher = Some(cpu);
        self
    }

    /// Limits the turn of a task to `slice` while others wait, under a policy that does not preempt. Without a limit, a
    /// task that waits for another one in a loop may wait forever. A policy with a quantum of its own ignores this.
    pub fn slice(mut self, slice: Ns) -> Self {
        self.slice = Some(slice);
        self
    }

    /// Sets how many polls of futures may be preempted at a time; 1,024 by default. Each keeps its stack until it goes
    /// on. Beyond that number a poll runs until it returns or waits, as on executors that do not preempt
    /// ([`Stats::polls_kept`](crate::Stats::polls_kept)).
    pub fn max_preempted_polls(mut self, n: u32) -> Self {
        self.max_preempted_polls = Some(n);
        self
    }

    /// Shares the CPUs of the workers with other programs: those of the share whose broker listens at `socket` (`heddle
    /// share serve`). `class` is `lc` for a latency-critical program, which has a CPU within microseconds of asking, or
    /// `be` for one that has what the others leave; `name` is what others see. One runtime of a process at a time can.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn share(
        mut self,
        socket: impl Into<PathBuf>,
        class: &str,
        name: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let kind = class.parse().map_err(|problem| ConfigError::Environment {
            name: "HEDDLE_SHARE_CLASS",
            value: class.to_owned(),
            problem,
        })?;
        self.share = Some(ShareConfig { socket: socket.into(), kind, name: name.into() });
        Ok(self)
    }

    /// Chooses the network of its sockets (`HEDDLE_NET`): the kernel's, which is the default, or lanes over AF_XDP on
    /// an interface, one for each worker. Lanes need the feature `bypass` of the crate `heddle`, and the rights to use
    /// them; `heddle doctor` tells what an interface can do. An interface serves one runtime at a time.
    ///
    /// ```no_run
    /// let network = "xdp:eth0,spin=50us".parse()?;
    /// let runtime = heddle_rt::Runtime::builder().net(network).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn net(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Sets whether other processes of the user can read the runtime's counters, have its events recorded
    /// (`heddle_telemetry`) and list the sockets of its lanes (`heddle net ls`); they can by default. The runtime has a
    /// file descriptor for that, and another one and a thread for lanes.
    pub fn telemetry(mut self, seen: bool) -> Self {
        self.telemetry = Some(seen);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// [`ConfigError`] says what is wrong and how to fix it; nothing was started.
    pub fn build(self) -> Result<Runtime, ConfigError> {
        let this = self.with_environment()?;
        let policy = this.policy.as_deref().unwrap_or(DEFAULT_POLICY);
        with_policy(policy, this.start()?)?
    }

    /// Starts the runtime on a machine with these CPUs, which need not exist: if the system refuses to pin a worker,
    /// the worker runs unpinned.
    #[cfg(virtual_time)]
    pub(crate) fn build_on(self, topology: Vec<CpuInfo>) -> Result<Runtime, ConfigError> {
        let this = self.with_environment()?;
        let policy = this.policy.as_deref().unwrap_or(DEFAULT_POLICY);
        with_policy(policy, Start { topology, ..this.start()? })?
    }

    /// Starts the runtime under a policy passed as a value, such as the caller's own.
    ///
    /// # Errors
    /// As for [`RuntimeBuilder::build`].
    pub fn build_with(self, policy: impl Policy) -> Result<Runtime, ConfigError> {
        self.with_environment()?.start()?.visit(policy)
    }

    /// Resolves every setting that does not depend on the policy.
    fn start(&self) -> Result<Start, ConfigError> {
        if !heddle_arch::fsgsbase_supported(heddle_sys::memory::hwcap2()) {
            return Err(ConfigError::NoFsGsBase);
        }
        heddle_arch::learn_processor();
        if self.name.as_ref().is_some_and(|name| name.contains('\0')) {
            return Err(ConfigError::NameWithZero);
        }
        interpose::prepare();
        futex::prepare();
        let dispatcher = self.dispatcher.map(heddle_sys::topology::cpu_info);
        let mechanism = self.mechanism.unwrap_or_else(Mechanism::automatic);
        mechanism.check()?;
        if mechanism != Mechanism::None {
            code::learn(&self.no_preempt_code);
        }
        let stack_class = match self.stack_size {
            None => pool::DEFAULT_CLASS,
            Some(size) => {
                pool::class_for(size).map_err(|most| ConfigError::StackTooLarge { size, most })?
            }
        };
        let name = self.name.clone();
        let join = |config| Share::join(config, mechanism != Mechanism::None);
        let share = self.share.as_ref().map(join).transpose()?;
        let topology = match &share {
            Some(share) => {
                interpose::report_shared(share.member().cpus());
                infos(share.member().cpus())
            }
            None => self.topology()?,
        };
        let net = self.network.clone().map_or(Ok(None), |network| open(network, topology.len()))?;
        Ok(Start {
            share,
            net,
            telemetry: self.telemetry.unwrap_or(true),
            name,
            topology,
            dispatcher,
            mechanism,
            stack_class,
            slice: self.slice,
            max_preempted_polls: self.max_preempted_polls.unwrap_or(MAX_PREEMPTED_POLLS),
        })
    }

    fn with_environment(mut self) -> Result<Self, ConfigError> {
        self.policy = self.policy.or(variable("HEDDLE_POLICY", |v| Ok(v.to_owned()))?);
        self.mechanism = self.mechanism.or(variable("HEDDLE_MECHANISM", str::parse)?);
        let number = |v: &str| v.parse::<usize>().map_err(|_| "not a whole number".to_owned());
        self.workers = self.workers.or(variable("HEDDLE_WORKERS", number)?);
        self.stack_size = self.stack_size.or(variable("HEDDLE_STACK_SIZE", number)?);
        self.cpus = self.cpus.or(variable("HEDDLE_CPUS", cpu_list::parse)?);
        let names = |v: &str| Ok(v.split(',').map(str::to_owned).collect::<Vec<_>>());
        let names = variable("HEDDLE_NO_PREEMPT_CODE", names)?;
        self.no_preempt_code.extend(names.into_iter().flatten());
        let cpu = |v: &str| v.parse::<u32>().map_err(|_| "not a CPU number".to_owned());
        self.dispatcher = self.dispatcher.or(variable("HEDDLE_DISPATCHER", cpu)?);
        if let Some(socket) = std::env::var_os("HEDDLE_SHARE").filter(|_| self.share.is_none()) {
            let class = variable("HEDDLE_SHARE_CLASS", |v| Ok(v.to_owned()))?;
            let name = variable("HEDDLE_SHARE_NAME", |v| Ok(v.to_owned()))?;
            let (class, name) = (class.as_deref().unwrap_or("lc"), name.unwrap_or_default());
            self = self.share(socket, class, name)?;
        }
        if self.share.is_some()
            && (self.cpus.is_some() || self.workers.is_some() || self.dispatcher.is_some())
        {
            return Err(ShareError::HasCpus.into());
        }
        let seen = |v: &str| match v {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err("neither on nor off".to_owned()),
        };
        self.telemetry = self.telemetry.or(variable("HEDDLE_TELEMETRY", seen)?);
        let network = |v: &str| v.parse::<Network>().map_err(|error| error.to_string());
        self.network = self.network.or(variable("HEDDLE_NET", network)?);
        // `HEDDLE_TLS` is read where the choice is made, once per process; here it is only validated.
        variable("HEDDLE_TLS", str::parse::<TlsMode>)?;
        Ok(self)
    }

    /// Returns the CPUs that get a worker.
    fn topology(&self) -> Result<Vec<CpuInfo>, ConfigError> {
        let usable = interpose::usable().map_err(refused("reading the CPU affinity"))?;
        let mut cpus = self.cpus.clone().unwrap_or_else(|| usable.clone());
        let mut named = cpus.iter().chain(&self.dispatcher);
        if let Some(&cpu) = named.find(|cpu| !usable.contains(cpu)) {
            return Err(ConfigError::NoSuchCpu { cpu, usable });
        }
        cpus.dedup();
        if let Some(dispatcher) = self.dispatcher {
            cpus.retain(|&cpu| cpu != dispatcher);
            if cpus.is_empty() {
                return Err(ConfigError::DispatcherNeedsCpu);
            }
        }
        let wanted = self.workers.unwrap_or(cpus.len());
        if wanted == 0 || cpus.is_empty() {
            return Err(ConfigError::NoWorkers);
        }
        if wanted > cpus.len() {
            return Err(ConfigError::TooManyWorkers { wanted, available: cpus.len(), cpus });
        }
        cpus.truncate(wanted);
        Ok(infos(&cpus))
    }
}

/// Opens the lanes of `network`, one for each of `workers`, if it has lanes.
fn open(network: Network, workers: usize) -> Result<Option<Arc<Net>>, ConfigError> {
    let Network::Xdp { options, or_kernel } = network else { return Ok(None) };
    let interface = options.interface.clone();
    match Net::open(options, workers as u32) {
        Ok(net) => Ok(Some(Arc::new(net))),
        Err(error) if or_kernel => {
            eprintln!(
                "heddle: the kernel's sockets serve this program, not lanes on {interface}: {error}"
            );
            Ok(None)
        }
        Err(error) => Err(ConfigError::Net(Box::new(error))),
    }
}

fn infos(cpus: &[u32]) -> Vec<CpuInfo> {
    cpus.iter().map(|&cpu| heddle_sys::topology::cpu_info(cpu)).collect()
}

fn variable<T>(
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    parse(&value).map(Some).map_err(|problem| ConfigError::Environment { name, value, problem })
}
