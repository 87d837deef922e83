//! What the ticker remembers from one check to the next. It is allocated with the runtime, because the ticker must not
//! allocate.

use crate::held_up::HeldUp;
use heddle_core::Ns;

/// What the ticker last observed of one CPU.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watch {
    pub(crate) generation: u64,
    pub(crate) at: Ns,
    /// When it was first observed.
    pub(crate) since: Ns,
    /// Its worker's CPU time at that moment.
    pub(crate) cpu_time: Ns,
}

/// See the module documentation.
pub(crate) struct Watches {
    pub(crate) cpus: Box<[Watch]>,
    pub(crate) held_up: HeldUp,
}

impl Watches {
    /// Returns empty observations of this many CPUs.
    pub(crate) fn new(cpus: usize) -> Watches {
        Watches { cpus: vec![Watch::default(); cpus].into(), held_up: HeldUp::default() }
    }
}
