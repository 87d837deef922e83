//! The costs of scheduling according to the papers.

use crate::costs::{Costs, Dispatcher, Preemption, PreemptionSource};
use heddle_core::Ns;

/// The cost of a preemption beyond the interrupt: going through the scheduler, switching, cold caches.
/// Aspen, section 4.2: 0.2 to 0.9 us. Skyloft's and ghOSt's synthetic requests spin and have nothing in
/// the caches: the lower end.
pub const SWITCH_SPINNING: Ns = Ns(200);

/// The same for RocksDB: the middle of Aspen's range.
pub const SWITCH_ROCKSDB: Ns = Ns(550);

/// A message between a CPU and a spinning core through shared memory: 265 ns in ghOSt's Table 3, line
/// 2, half of it at either end.
const MESSAGE_END: Ns = Ns(133);

/// A spinning dispatcher that shares memory with spinning workers: a message each way for every task,
/// and 191 ns to turn a request into a thread (Skyloft, Table 7, spawn).
pub const USER_DISPATCHER: Dispatcher =
    Dispatcher { admit: Ns(191), notice: MESSAGE_END, dispatch: MESSAGE_END, handoff: MESSAGE_END };

/// A switch between user threads, 37 ns (Skyloft, Table 7, yield), and between applications, 1,905 ns (section 5.4).
pub const USER_SWITCH: Costs = Costs { switch: Ns(37), app_switch: Ns(1905), ..FREE };

const FREE: Costs = Costs {
    switch: Ns(0),
    app_switch: Ns(0),
    wake: Ns(0),
    steal: Ns(0),
    central_lock: Ns(0),
    migration: [Ns(0); 5],
};

/// Linux: 599 ns a switch (ghOSt, Table 3, line 12), 2,471 ns if a thread must be woken (Skyloft,
/// section 5.4).
pub const LINUX: Costs = Costs { switch: Ns(599), wake: Ns(2471 - 599), ..FREE };

/// The dispatcher's user interrupts: Skyloft, Table 6, in cycles of 2.0 GHz; every worker is
/// interrupted at every quantum, as by the artefact's dispatcher. Then the worker reports, at
/// [`MESSAGE_END`].
pub const SKYLOFT_IPI: Preemption = Preemption {
    by: PreemptionSource::Dispatcher,
    send: Ns(84),
    deliver: Ns(606),
    receive: Ns(331 + MESSAGE_END.0 + SWITCH_SPINNING.0),
    skip: false,
    interval: Ns(0),
    slowdown_permille: 0,
};

/// Shinjuku's posted interrupts: sending costs 14 % of a signal's 612 ns (Aspen, note 6; Skyloft, Table
/// 6), delivering as much as for a kernel interrupt (Table 6), receiving 0.6 us (Aspen, section 2.1).
pub const SHINJUKU_IPI: Preemption = Preemption {
    send: Ns(86),
    deliver: Ns(673),
    receive: Ns(600 + MESSAGE_END.0 + SWITCH_SPINNING.0),
    ..SKYLOFT_IPI
};

/// ghOSt's global agent, Table 3: a message costs it 265 ns (line 2), a transaction 668 ns (line 4),
/// and the CPU has the thread 1,772 ns after the commit began (line 6), its own 1,064 ns included.
pub const GHOST_AGENT: Dispatcher =
    Dispatcher { admit: Ns(265), notice: Ns(265), dispatch: Ns(668), handoff: Ns(1772 - 668) };

/// ghOSt preempts by the transaction that installs the next thread, so all of it is in [`GHOST_AGENT`];
/// and only if a task waits: its long requests take 10.007 ms at low load (the artefact's p99.9 of
/// `ghost-30us`).
pub const GHOST_PREEMPTION: Preemption = Preemption {
    by: PreemptionSource::Dispatcher,
    send: Ns(0),
    deliver: Ns(0),
    receive: Ns(0),
    skip: true,
    interval: Ns(0),
    slowdown_permille: 0,
};

/// Tasks run until they leave by themselves.
pub const NO_PREEMPTION: Preemption =
    Preemption { by: PreemptionSource::Disabled, ..GHOST_PREEMPTION };

/// A timer core of Aspen: sending from section 4.4 (a signal 1.7 us, a user interrupt 0.2 us),
/// receiving from section 2 (2.4 and 0.4 us) with [`SWITCH_ROCKSDB`], delivering from Skyloft's Table
/// 6.
pub fn aspen(send: u64, deliver: u64, receive: u64) -> Preemption {
    Preemption {
        by: PreemptionSource::TimerCore,
        send: Ns(send),
        deliver: Ns(deliver),
        receive: Ns(receive) + SWITCH_ROCKSDB,
        skip: true,
        interval: Ns::ZERO,
        slowdown_permille: 0,
    }
}
