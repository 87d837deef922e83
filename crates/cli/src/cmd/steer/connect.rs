//! Choosing what serves the requests of these commands.

use heddle_steer::client::Steering;

use super::refused;

/// Connects to heddled if it runs. For root without heddled, or with `direct`, this process serves itself.
pub fn open(direct: bool) -> anyhow::Result<Steering> {
    Steering::open(direct).map_err(refused)
}
