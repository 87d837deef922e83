//! What the ticker remembers from one look to the next. It is allocated with the runtime, because the ticker
//! allocates nothing.

use crate::held_up::HeldUp;
use heddle_core::Ns;

/// What the ticker saw of one CPU.
#[derive(Clone, Copy, Default)]
pub(crate) struct Watch {
    pub(crate) generation: u64,
    pub(crate) at: Ns,
    /// Its worker's CPU time then.
    pub(crate) cpu_time: Ns,
}

/// See the module.
pub(crate) struct Watches {
    pub(crate) cpus: Box<[Watch]>,
    pub(crate) held_up: HeldUp,
}

impl Watches {
    /// For this many CPUs.
    pub(crate) fn new(cpus: usize) -> Watches {
        Watches { cpus: vec![Watch::default(); cpus].into(), held_up: HeldUp::default() }
    }
}
