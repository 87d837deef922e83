//! The costs of scheduling on the simulated machine.

use heddle_core::{Ns, Topology};

/// Time that a CPU spends on anything but tasks. All zero by default: the machine of queueing theory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// To put a task on a CPU: the switch and the scheduler's work around it.
    pub switch: Ns,
    /// Added if the CPU last ran a task of another application (latency-critical and best-effort tasks
    /// belong to different ones): 1,905 ns in Skyloft, section 5.4.
    pub app_switch: Ns,
    /// Until an idle CPU looks for a task.
    pub wake: Ns,
    /// To take a task from another CPU's queue.
    pub steal: Ns,
    /// How long taking a task from a central queue holds its lock, one CPU after the other; CPUs
    /// waiting for the lock are busy. Includes other work done under the lock per task (re-arming a
    /// one-shot epoll: 1,150 cycles in trials). Not used under a dispatcher, which is alone.
    pub central_lock: Ns,
    /// Added at the start of a task that last ran on a CPU at distance 0, 1, 2, 3 and 4 (see
    /// [`Topology::distance`]): its data is in other caches.
    pub migration: [Ns; Topology::FARTHEST as usize + 1],
}

/// How a running task is taken off its CPU, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// What notifies the CPU.
    pub by: PreemptionSource,
    /// How long the sender is busy with one message.
    pub send: Ns,
    /// From the end of sending until the message arrives; the task runs on meanwhile.
    pub deliver: Ns,
    /// How long the CPU is busy receiving a message.
    pub receive: Ns,
    /// Whether a CPU is left alone while nothing waits for it (Aspen, section 3.2). A local timer
    /// cannot know and interrupts at every quantum; it then costs `receive` even if the task continues.
    pub skip: bool,
    /// The source looks at running tasks only at whole multiples of this time (Aspen, section 3.2: of the quantum), so
    /// that a quantum, or a task that comes to wait behind an overdue one, is noticed up to that much later. Zero: at
    /// once.
    pub interval: Ns,
    /// By how many per mille the mechanism slows down all tasks: probes in their code.
    pub slowdown_permille: u32,
}

/// What notices that a quantum is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionSource {
    /// No preemption: tasks run until they leave by themselves.
    Disabled,
    /// A timer on each CPU.
    LocalTimer,
    /// One extra core for all, which sends one message after the other.
    TimerCore,
    /// The dispatcher, among its other work.
    Dispatcher,
}

/// A core that hands out the tasks of a central policy, one decision after the other. Without one, CPUs take tasks from
/// the central queue themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dispatcher {
    /// To take in one request and enqueue it.
    pub admit: Ns,
    /// To notice that a CPU has become free.
    pub notice: Ns,
    /// To hand one task to one CPU.
    pub dispatch: Ns,
    /// From then until that CPU has it.
    pub handoff: Ns,
}

/// A mechanism by name.
#[derive(Clone, Copy, Debug)]
pub struct MechanismInfo {
    /// Its name.
    pub name: &'static str,
    /// What it is, and where its costs come from.
    pub summary: &'static str,
    /// The costs.
    pub preemption: Preemption,
}

const fn mechanism(by: PreemptionSource, send: u64, deliver: u64, receive: u64) -> Preemption {
    Preemption {
        by,
        send: Ns(send),
        deliver: Ns(deliver),
        receive: Ns(receive),
        skip: !matches!(by, PreemptionSource::LocalTimer),
        interval: Ns::ZERO,
        slowdown_permille: 0,
    }
}

/// Preemption mechanisms and their published costs. Skyloft's Table 6 is in cycles of 2.0 GHz.
pub const MECHANISMS: &[MechanismInfo] = &[
    MechanismInfo {
        name: "none",
        summary: "tasks run until they leave by themselves",
        preemption: mechanism(PreemptionSource::Disabled, 0, 0, 0),
    },
    MechanismInfo {
        name: "ideal",
        summary: "a timer core that costs nothing: the policy as theory has it",
        preemption: mechanism(PreemptionSource::TimerCore, 0, 0, 0),
    },
    MechanismInfo {
        name: "signal",
        summary: "a timer core sends signals (Skyloft, Table 6: 1,224, 5,274, 6,359 cycles)",
        preemption: mechanism(PreemptionSource::TimerCore, 612, 2637, 3180),
    },
    MechanismInfo {
        name: "signal-vm",
        summary: "the same in the virtual machine of this project (heddle bench threads: 10.1, 10.6, 1.1 us)",
        preemption: mechanism(PreemptionSource::TimerCore, 10_100, 10_600, 1_100),
    },
    MechanismInfo {
        name: "posix-timer",
        summary: "each CPU a timer that raises signals (Skyloft, Table 6, setitimer: 5,057 cycles)",
        preemption: mechanism(PreemptionSource::LocalTimer, 0, 0, 2529),
    },
    MechanismInfo {
        name: "kernel-ipi",
        summary: "kernel interrupts from a timer core (Skyloft, Table 6: 437, 1,345, 1,582 cycles)",
        preemption: mechanism(PreemptionSource::TimerCore, 219, 673, 791),
    },
    MechanismInfo {
        name: "uintr",
        summary: "user interrupts from a timer core (Skyloft, Table 6: 167, 1,211, 661 cycles)",
        preemption: mechanism(PreemptionSource::TimerCore, 84, 606, 331),
    },
    MechanismInfo {
        name: "uintr-timer",
        summary: "each CPU a user timer interrupt (Skyloft, Table 6: 642 cycles)",
        preemption: mechanism(PreemptionSource::LocalTimer, 0, 0, 321),
    },
    MechanismInfo {
        name: "probe",
        summary: "compiled-in probes, tuned (Aspen, 4.1.1: 2.3 % slower; 5,000 probes in 260 us)",
        preemption: Preemption {
            slowdown_permille: 23,
            ..mechanism(PreemptionSource::TimerCore, 10, 26, 30)
        },
    },
];

impl Preemption {
    /// Returns the mechanism called `name`.
    pub fn named(name: &str) -> Option<Preemption> {
        MECHANISMS.iter().find(|m| m.name == name).map(|m| m.preemption)
    }
}
