//! What can be wrong with a configuration.

use crate::preempt::Mechanism;
use heddle_core::Ns;
use heddle_policies::PolicyError;
use std::io;

/// What is wrong with a configuration. Nothing was started if this is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The policy or one of its parameters does not exist, or has a wrong value.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// No workers.
    #[error("a runtime needs at least one worker; leave the number out to have one for every CPU")]
    NoWorkers,
    /// More workers than CPUs to pin them to.
    #[error(
        "{wanted} workers, but only {available} CPUs may be used ({cpus:?}); workers are pinned, one to a CPU"
    )]
    TooManyWorkers {
        /// What was asked for.
        wanted: usize,
        /// How many CPUs there are.
        available: usize,
        /// Which.
        cpus: Vec<u32>,
    },
    /// A CPU that this process cannot use.
    #[error("CPU {cpu} does not exist or may not be used; usable are {usable:?}")]
    NoSuchCpu {
        /// What was asked for.
        cpu: u32,
        /// What there is.
        usable: Vec<u32>,
    },
    /// A quantum that costs more than it brings.
    #[error(
        "a quantum of {quantum} is shorter than preemption by {mechanism:?} can do here; ask for at least {shortest}, or for no preemption \
         (HEDDLE_MECHANISM=none)"
    )]
    QuantumTooShort {
        /// What was asked for.
        quantum: Ns,
        /// By what means.
        mechanism: Mechanism,
        /// What would do.
        shortest: Ns,
    },
    /// A stack larger than the largest.
    #[error("a stack of {size} bytes is too large; at most {most}")]
    StackTooLarge {
        /// What was asked for.
        size: usize,
        /// What would do.
        most: usize,
    },
    /// An environment variable that cannot be understood.
    #[error("{name}={value}: {problem}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        problem: String,
    },
    /// A dispatcher for a policy whose workers have queues of their own.
    #[error(
        "policy `{0}` has a queue per CPU, and a dispatcher hands out tasks from a central one; leave the dispatcher out, \
         or choose a central policy such as `fifo` or `shinjuku`"
    )]
    DispatcherNotCentral(&'static str),
    /// A dispatcher and no CPU left for a worker.
    #[error(
        "a dispatcher takes a CPU of its own, and no other one may be used; allow at least two CPUs, or leave it out"
    )]
    DispatcherNeedsCpu,
    /// The processor or kernel lacks what the runtime needs.
    #[error(
        "this machine does not let user space set FS and GS (FSGSBASE: Linux 5.9 or later); `heddle doctor` tells more"
    )]
    NoFsGsBase,
    /// The system refused something.
    #[error("cannot start the runtime: {what}: {error}{}", advice(error))]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        #[source]
        error: io::Error,
    },
    /// A name that threads cannot have.
    #[error("a runtime's name is its threads' name, too, and may not contain a zero byte")]
    NameWithZero,
}

/// The error of a system call that was made for `what`.
pub(super) fn refused(what: &'static str) -> impl Fn(io::Error) -> ConfigError {
    move |error| ConfigError::System { what, error }
}

/// What to do about an error of the system, where that is known.
fn advice(error: &io::Error) -> &'static str {
    match (error.raw_os_error(), error.kind()) {
        (Some(libc::EMFILE), _) => "; the process has no descriptors left: raise `ulimit -n`",
        (Some(libc::EAGAIN), _) => "; raise `ulimit -u` or the control group's pids.max",
        (_, io::ErrorKind::OutOfMemory) => {
            "; raise `ulimit -v` or allow sysctl vm.overcommit_memory"
        }
        _ => "",
    }
}
