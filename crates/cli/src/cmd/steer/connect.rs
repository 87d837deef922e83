//! Choosing what serves the requests of these commands.

use heddle_steer::client::Steering;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::refused;

/// Connects to heddled if it runs. For root without heddled, or with `direct`, this process serves itself.
pub fn open(direct: bool) -> anyhow::Result<Steering> {
    // The usual limit of 1,024 descriptors is too low for the sockets of the largest groups.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    Steering::open(direct).map_err(refused)
}
