//! The time in which a load is measured.

use heddle_core::Ns;

/// The time that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its start, by the system's monotonic clock.
    pub begin: Ns,
    /// Its end.
    pub end: Ns,
}
