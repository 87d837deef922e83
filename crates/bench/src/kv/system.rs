//! Which systems are compared.

use heddle::Mechanism;
use std::fmt;
use std::str::FromStr;

/// What runs the server's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// User-level threads of Heddle.
    Heddle,
    /// Tasks of tokio's multi-thread runtime.
    Tokio,
    /// A pool of kernel threads.
    Threads,
}

impl Runtime {
    /// Every runtime.
    pub const ALL: [Runtime; 3] = [Runtime::Heddle, Runtime::Tokio, Runtime::Threads];

    /// The name that `heddle kv serve --system` takes.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Heddle => "heddle",
            Runtime::Tokio => "tokio",
            Runtime::Threads => "threads",
        }
    }
}

/// The network of a server between two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// The kernel's sockets.
    Kernel,
    /// Lanes of Heddle's runtime over AF_XDP.
    Xdp,
}

impl Net {
    /// All of them.
    pub const ALL: [Net; 2] = [Net::Kernel, Net::Xdp];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Net::Kernel => "kernel",
            Net::Xdp => "xdp",
        }
    }

    /// The value of `HEDDLE_NET` for a server at `interface`.
    pub fn variable(self, interface: &str) -> String {
        match self {
            Net::Kernel => "kernel".into(),
            Net::Xdp => format!("xdp:{interface}"),
        }
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(name: &str) -> Result<Net, String> {
        let found = Net::ALL.into_iter().find(|net| net.name() == name);
        found.ok_or_else(|| format!("no network `{name}`; there are kernel, xdp"))
    }
}

/// A runtime with its policy and how it preempts: `heddle two-queue:quantum=100us`, `heddle two-queue:quantum=20us
/// probe`, `tokio`.
///
/// ```
/// use heddle_bench::kv::System;
/// let system: System = "heddle two-queue:quantum=20us probe".parse().unwrap();
/// assert!(system.is_preemptive());
/// assert!(!"heddle fifo".parse::<System>().unwrap().is_preemptive());
/// assert!("rayon".parse::<System>().unwrap_err().to_string().contains("heddle, tokio, threads"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// What runs the handlers.
    pub runtime: Runtime,
    /// Heddle's policy with its parameters.
    pub policy: Option<String>,
    /// How Heddle preempts, if it is said.
    pub mechanism: Option<Mechanism>,
    /// The network, if namespaces are compared; else it is loopback. Not part of the text that names a system, only of
    /// its name in results.
    pub net: Option<Net>,
}

impl System {
    /// What `heddle bench kv` compares unless told otherwise: the two-queue policy with preemption, the
    /// same runtime without, and what a user would pick instead.
    pub fn defaults() -> Vec<System> {
        let plain = |runtime| System { runtime, policy: None, mechanism: None, net: None };
        let heddle =
            |policy: &str| System { policy: Some(policy.to_owned()), ..plain(Runtime::Heddle) };
        vec![heddle("two-queue"), heddle("fifo"), plain(Runtime::Tokio), plain(Runtime::Threads)]
    }

    /// Whether Heddle takes the processor away from a request that has run for a quantum.
    pub fn is_preemptive(&self) -> bool {
        self.runtime == Runtime::Heddle && !self.is_fifo()
    }

    /// Whether this is Heddle run to completion, against which the cost of preemption is measured.
    pub fn is_fifo(&self) -> bool {
        self.policy_name() == Some("fifo")
    }

    /// Whether this is the policy that others are held against.
    pub fn is_two_queue(&self) -> bool {
        self.policy_name() == Some("two-queue")
    }

    /// What happens to a request on this system, for people.
    pub fn in_words(&self) -> String {
        match (self.runtime, self.policy_name()) {
            _ if self.mechanism.is_some() || self.net == Some(Net::Xdp) => self.to_string(),
            (Runtime::Heddle, Some("fifo")) => "Heddle run to completion".into(),
            (Runtime::Heddle, Some("two-queue")) => "two-queue and preemption".into(),
            (Runtime::Heddle, _) => self.to_string(),
            (Runtime::Tokio, _) => "tokio".into(),
            (Runtime::Threads, _) => "the thread pool".into(),
        }
    }

    /// The same systems on each of `nets`, those that are not Heddle only on the kernel's.
    pub fn on(systems: &[System], nets: &[Net]) -> Vec<System> {
        let on = |net: Net, system: &System| System { net: Some(net), ..system.clone() };
        let fits = move |net: Net, system: &System| {
            net == Net::Kernel || system.runtime == Runtime::Heddle
        };
        let of = |system: &System| {
            let nets = nets.iter().copied().filter(|&net| fits(net, system));
            nets.map(|net| on(net, system)).collect::<Vec<_>>()
        };
        systems.iter().flat_map(of).collect()
    }

    fn policy_name(&self) -> Option<&str> {
        self.policy.as_deref().map(|policy| policy.split(':').next().unwrap_or(policy))
    }
}

impl FromStr for System {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<System, SystemError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let runtime = Runtime::ALL.into_iter().find(|r| r.name() == name);
        let runtime = runtime.ok_or_else(|| SystemError::Unknown(text.trim().to_owned()))?;
        let policy = words.next().map(str::to_owned);
        if policy.is_some() && runtime != Runtime::Heddle {
            return Err(SystemError::Policy(runtime.name()));
        }
        let mechanism = words.next().map(str::parse).transpose().map_err(SystemError::Mechanism)?;
        match words.next() {
            Some(word) => Err(SystemError::More(word.to_owned())),
            None => Ok(System { runtime, policy, mechanism, net: None }),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = self.net.map(|net| format!("net={}", net.name()));
        let words = [self.policy.as_deref(), self.mechanism.map(Mechanism::name), net.as_deref()];
        let words = words.into_iter().flatten();
        f.pad(&words.fold(self.runtime.name().to_owned(), |text, word| text + " " + word))
    }
}

/// A text that is no system, and what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SystemError {
    /// No such runtime.
    #[error("no system `{0}`; there are: heddle, tokio, threads, and after heddle a policy")]
    Unknown(String),
    /// A policy for a runtime that has none to choose.
    #[error("{0} has no policy to choose; only heddle has, as in `heddle two-queue:quantum=100us`")]
    Policy(&'static str),
    /// No such mechanism.
    #[error("{0}")]
    Mechanism(String),
    /// A fourth word.
    #[error("`{0}` is one word too many; a system is a runtime, a policy and a mechanism")]
    More(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_read_as_they_are_written() {
        for system in System::defaults() {
            assert_eq!(system.to_string().parse(), Ok(system));
        }
        let text = "heddle two-queue:quantum=20us probe";
        assert_eq!(text.parse::<System>().unwrap().to_string(), text);
    }

    #[test]
    fn only_heddle_has_lanes() {
        let systems = System::on(&System::defaults()[1..3], &Net::ALL);
        let names: Vec<String> = systems.iter().map(System::to_string).collect();
        assert_eq!(names, ["heddle fifo net=kernel", "heddle fifo net=xdp", "tokio net=kernel"]);
        assert_eq!("dpdk".parse::<Net>().unwrap_err(), "no network `dpdk`; there are kernel, xdp");
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let error = |text: &str| text.parse::<System>().unwrap_err().to_string();
        assert!(error("").contains("there are: heddle, tokio, threads"));
        assert!(error("tokio fifo").contains("only heddle has"));
        assert!(error("heddle fifo now").contains("no preemption mechanism `now`"));
        assert!(error("heddle fifo none now").contains("`now` is one word too many"));
    }
}
