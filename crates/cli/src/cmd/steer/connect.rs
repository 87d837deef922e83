//! Choosing what serves the requests of these commands.

use heddle_steer::client::Steering;

use super::refused;

/// Connects to heddled if it runs. For root without heddled, or with `direct`, this process serves itself.
pub fn open(direct: bool) -> anyhow::Result<Steering> {
    // The usual limit of 1,024 descriptors is too low for the sockets of the largest groups.
    heddle_sys::limits::raise_descriptors();
    Steering::open(direct).map_err(refused)
}
