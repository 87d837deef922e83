//! Who serves the requests of these commands: the one place that chooses.

use heddle_steer::client::Steering;

use super::refused;

/// heddled if it runs; for root without it, or with `direct`, this process.
pub fn open(direct: bool) -> anyhow::Result<Steering> {
    Steering::open(direct).map_err(refused)
}
