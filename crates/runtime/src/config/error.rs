//! Configuration errors.

use crate::preempt::Mechanism;
use crate::share::ShareError;
use heddle_core::Ns;
use heddle_netstack::net::NetError;
use heddle_policies::PolicyError;
use std::io;

/// A configuration error. When it is returned, nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The policy or one of its parameters does not exist, or a parameter's value is invalid.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The interface cannot serve the runtime's own network.
    #[error(
        "{0}; `heddle doctor` tells what the interface can do, and `HEDDLE_NET=auto:` falls back to the kernel"
    )]
    Net(#[source] Box<NetError>),
    /// The number of workers is zero.
    #[error("a runtime needs at least one worker; omit the number to get one per CPU")]
    NoWorkers,
    /// There are more workers than CPUs to pin them to.
    #[error(
        "cannot start {wanted} workers: only {available} CPUs may be used ({cpus:?}), and each worker needs its own"
    )]
    TooManyWorkers {
        /// The number of workers requested.
        wanted: usize,
        /// The number of usable CPUs.
        available: usize,
        /// The usable CPUs.
        cpus: Vec<u32>,
    },
    /// This process cannot use the CPU.
    #[error("CPU {cpu} does not exist or may not be used; usable CPUs: {usable:?}")]
    NoSuchCpu {
        /// The CPU requested.
        cpu: u32,
        /// The usable CPUs.
        usable: Vec<u32>,
    },
    /// The quantum is so short that preempting costs more than the work in between.
    #[error(
        "a quantum of {quantum} is shorter than preemption by {} can do here; ask for at least {shortest}, \
         or for no preemption (HEDDLE_MECHANISM=none)",
        mechanism.name()
    )]
    QuantumTooShort {
        /// The quantum requested.
        quantum: Ns,
        /// The mechanism.
        mechanism: Mechanism,
        /// The shortest quantum for this mechanism.
        shortest: Ns,
    },
    /// The stack exceeds the largest stack class.
    #[error("a stack of {size} bytes is too large; the maximum is {most}")]
    StackTooLarge {
        /// Bytes requested.
        size: usize,
        /// Bytes of the largest stack class.
        most: usize,
    },
    /// An environment variable has an invalid value.
    #[error("{name}={value}: {problem}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with the value, or what is accepted.
        problem: String,
    },
    /// A dispatcher was requested for a policy with per-CPU queues.
    #[error(
        "policy `{0}` has a queue per CPU, and a dispatcher hands out tasks from a central one; \
         leave the dispatcher out, \
         or choose a central policy such as `fifo` or `shinjuku`"
    )]
    DispatcherNotCentral(&'static str),
    /// The dispatcher leaves no CPU for a worker.
    #[error(
        "a dispatcher occupies a CPU, and no other CPU may be used; allow at least two CPUs, or omit the dispatcher"
    )]
    DispatcherNeedsCpu,
    /// The processor or kernel lacks a required feature.
    #[error(
        "user space cannot set FS and GS on this machine (needs FSGSBASE and Linux 5.9 or later); see `heddle doctor`"
    )]
    NoFsGsBase,
    /// The mechanism is user interrupts, and there are none.
    #[error(
        "no user interrupts here: {0}; `heddle doctor` says more, and HEDDLE_MECHANISM=signal does without"
    )]
    NoUserInterrupts(#[source] heddle_sys::uintr::Unavailable),
    /// A system call failed.
    #[error("cannot start the runtime: {what}: {error}{}", advice(error))]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The workers cannot share CPUs with other programs ([`RuntimeBuilder::share`](crate::RuntimeBuilder::share)).
    #[error("cannot share CPUs with other programs: {0}")]
    Share(#[from] ShareError),
    /// Thread names cannot contain this name.
    #[error("the runtime's name is part of its threads' names and must not contain a zero byte")]
    NameWithZero,
}

/// Wraps the error of a system call made for `what`.
pub(super) fn refused(what: &'static str) -> impl Fn(io::Error) -> ConfigError {
    move |error| ConfigError::System { what, error }
}

/// Advice on a system error, if there is any.
fn advice(error: &io::Error) -> &'static str {
    match (error.raw_os_error(), error.kind()) {
        (Some(libc::EMFILE), _) => "; the process is out of file descriptors: raise `ulimit -n`",
        (Some(libc::EAGAIN), _) => "; raise `ulimit -u` or the control group's pids.max",
        (_, io::ErrorKind::OutOfMemory) => {
            "; raise `ulimit -v` or allow sysctl vm.overcommit_memory"
        }
        _ => "",
    }
}
