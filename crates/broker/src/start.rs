//! What it takes to start a broker.

use std::io;
use std::time::Duration;

use heddle_sys::scheduling;

use crate::config::{Config, Realtime};
use crate::cpus;
use crate::paths::UnusablePath;
use crate::realtime;

/// Who may connect, and when the broker ends by itself.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The members of this group (a name or a number) may join, besides root and the broker's user.
    pub group: Option<String>,
    /// Every user may join.
    pub everyone: bool,
    /// It ends once it has had no member for so long.
    pub until_idle: Option<Duration>,
}

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its socket cannot be where it should be.
    #[error(transparent)]
    Path(#[from] UnusablePath),
    /// It cannot be as its file wants it.
    #[error("{0}")]
    Refused(String),
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Checks that the CPUs are there; returns the real-time priority, if there is one.
pub fn check_machine(config: &Config) -> Result<Option<u32>, StartError> {
    let shown = |cpus: &[u32]| cpus::format(cpus);
    let online = cpus::online().map_err(|source| StartError::System {
        what: "cannot read which CPUs are online".into(),
        source,
    })?;
    let missing: Vec<u32> =
        config.cpus.iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    if !missing.is_empty() {
        return Err(StartError::Refused(format!(
            "CPUs {} of the share are not online; those online are {}",
            shown(&missing),
            shown(&online)
        )));
    }
    // More CPUs than a mask has: then it cannot be checked.
    let missing = scheduling::mask(0).map_or(Vec::new(), |mask| cpus::missing(&config.cpus, &mask));
    if !missing.is_empty() {
        return Err(StartError::Refused(format!(
            "this process may not run on CPUs {} of the share: start it without taskset, and in a cgroup whose cpuset \
             has them",
            shown(&missing)
        )));
    }
    let permitted = realtime::check(config.priority);
    let priority = match (config.realtime, permitted) {
        (Realtime::Never, _) | (Realtime::Auto, Err(_)) => None,
        (Realtime::Always, Err(why)) => {
            return Err(StartError::Refused(format!("realtime = \"always\": the broker {why}")));
        }
        (_, Ok(())) => Some(config.priority),
    };
    let is_whole = online.iter().all(|cpu| config.cpus.contains(cpu));
    if priority.is_some() && is_whole && !config.whole_machine {
        return Err(StartError::Refused(format!(
            "the share has all online CPUs ({}), and its workers would be real-time: nothing else would run beside \
             them for most of the time; leave a CPU out of `cpus`, or set realtime = \"never\" or whole_machine = true",
            shown(&online)
        )));
    }
    Ok(priority)
}
