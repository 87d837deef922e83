//! The kernel's switches and wakeups, in columns for each CPU.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use heddle_core::{Event, EventKind};

use super::Clocks;
use super::out::Packets;
use super::proto::{CompactSched, FtraceBundle, Packet};

/// The sequence of these packets.
const SEQUENCE: u32 = 1;
/// Switches of a packet.
const FULL: usize = 1 << 14;
/// CPUs beyond are not shown: Perfetto refuses a trace with more.
const CPUS: u16 = 1024;
/// The priority of an ordinary thread, as the kernel counts it.
const ORDINARY: i32 = 120;
/// The name that the kernel's tracer gives to threads that it does not know.
const UNKNOWN: &str = "<...>";

/// The bit of [`Event::arg`] that says that a thread could have run on; the others are the state in which it left.
const PREEMPTED: u32 = 1 << 31;
/// The state of a thread that has ended, by the kernel's `sched.h`.
const DEAD: u32 = 0x80;
/// States that are shown: from a sleep that signals end (1) to parked (64).
const SHOWN: u32 = 0x7f;
/// Idle: it sleeps, and does not count as load.
const NO_LOAD: u32 = 0x400;

/// A thread as it is shown.
struct Thread {
    name: Arc<str>,
    priority: i32,
}

/// A wakeup: when, and of which thread.
type Waking = (u64, u32);

/// What a CPU has in its next packet, and runs.
#[derive(Default)]
struct Cpu {
    columns: CompactSched,
    wakings: Vec<Waking>,
    names: HashMap<Arc<str>, u32>,
    last: u64,
    lost: bool,
    running: Option<Running>,
}

struct Running {
    tid: u32,
    since: u64,
    /// Whether it slept before.
    was_asleep: bool,
}

/// Switches and wakeups of all CPUs.
pub struct Sched {
    clocks: Clocks,
    cpus: BTreeMap<u16, Cpu>,
    threads: HashMap<u32, Thread>,
    asleep: HashSet<u32>,
    /// Events that were not written.
    pub ignored: u64,
}

impl Sched {
    pub fn new(clocks: Clocks) -> Sched {
        let (cpus, threads, asleep) = (BTreeMap::new(), HashMap::new(), HashSet::new());
        Sched { clocks, cpus, threads, asleep, ignored: 0 }
    }

    pub fn name(&mut self, tid: u32, name: &str, priority: Option<i32>) {
        let priority = priority.unwrap_or(ORDINARY);
        self.threads.insert(tid, Thread { name: name.into(), priority });
    }

    pub fn is_named(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Adds an event of the kernel. Events of a CPU are in the order of their times.
    pub fn event<W: Write>(&mut self, out: &mut Packets<W>, event: &Event) -> io::Result<()> {
        let cpu = event.cpu.0;
        if cpu >= CPUS {
            self.ignored += 1;
            return Ok(());
        }
        let at = self.clocks.boottime(event.at.0);
        match event.kind {
            EventKind::Start => self.switch(at, event),
            EventKind::Wakeup => self.cpu(cpu).wakings.push((at, event.who)),
            EventKind::Lost => {
                let cpu = self.cpu(cpu);
                (cpu.lost, cpu.running) = (true, None);
            }
            _ => self.ignored += 1,
        }
        let state = self.cpu(cpu);
        match state.columns.switch_at.len().max(state.wakings.len()) >= FULL {
            true => self.flush(out, cpu),
            false => Ok(()),
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut Cpu {
        self.cpus.entry(cpu).or_default()
    }

    /// `by` leaves the CPU, `who` gets it.
    fn switch(&mut self, at: u64, event: &Event) {
        let Event { who, by, arg, request: delay, .. } = *event;
        let was_asleep = self.asleep.remove(&who);
        if arg & PREEMPTED == 0 && arg & (SHOWN | NO_LOAD) != 0 && by != 0 {
            self.asleep.insert(by);
        }
        let (name, priority) = self.shown(who);
        let cpu = self.cpus.entry(event.cpu.0).or_default();
        let before = cpu.running.replace(Running { tid: who, since: at, was_asleep });
        // How long a thread waited for its turn is known at the end of the turn.
        if let Some(turn) = before.filter(|turn| turn.tid == by && turn.was_asleep) {
            cpu.wakings.push((turn.since.saturating_sub(delay), by));
        }
        let number = cpu.number(&name);
        let columns = &mut cpu.columns;
        columns.switch_at.push(at.saturating_sub(cpu.last));
        columns.switch_prev_state.push(shown_state(arg));
        columns.switch_next.push(who.cast_signed());
        columns.switch_next_priority.push(priority);
        columns.switch_next_name.push(number);
        cpu.last = cpu.last.max(at);
    }

    fn shown(&self, tid: u32) -> (Arc<str>, i32) {
        match self.threads.get(&tid) {
            Some(thread) => (Arc::clone(&thread.name), thread.priority),
            None if tid == 0 => ("swapper".into(), ORDINARY),
            None => (UNKNOWN.into(), ORDINARY),
        }
    }

    /// Writes what a CPU has.
    fn flush<W: Write>(&mut self, out: &mut Packets<W>, cpu: u16) -> io::Result<()> {
        let mut wakings = std::mem::take(&mut self.cpu(cpu).wakings);
        wakings.sort_unstable();
        let mut last = 0;
        for (at, tid) in wakings {
            let (name, priority) = self.shown(tid);
            let state = self.cpu(cpu);
            let number = state.number(&name);
            let columns = &mut state.columns;
            columns.waking_at.push(at - last);
            columns.waking.push(tid.cast_signed());
            columns.waking_cpu.push(cpu.into());
            columns.waking_priority.push(priority);
            columns.waking_name.push(number);
            last = at;
        }
        let state = self.cpu(cpu);
        let columns = std::mem::take(&mut state.columns);
        state.names.clear();
        state.last = 0;
        let lost = std::mem::take(&mut state.lost);
        if columns.switch_at.is_empty() && columns.waking_at.is_empty() && !lost {
            return Ok(());
        }
        let bundle = FtraceBundle {
            cpu: Some(cpu.into()),
            lost_events: lost.then_some(true),
            compact_sched: Some(columns),
        };
        let sequence = Some(SEQUENCE);
        out.write(&Packet { sequence, ftrace_events: Some(bundle), ..Packet::default() })
    }

    /// Writes what all CPUs have.
    pub fn flush_all<W: Write>(&mut self, out: &mut Packets<W>) -> io::Result<()> {
        let cpus: Vec<u16> = self.cpus.keys().copied().collect();
        cpus.into_iter().try_for_each(|cpu| self.flush(out, cpu))
    }
}

impl Cpu {
    /// Returns the number of a name in the packet.
    fn number(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.columns.names.len() as u32;
        self.columns.names.push(name.as_ref().into());
        self.names.insert(Arc::clone(name), number);
        number
    }
}

/// Returns the state in which a thread left its CPU, as the kernel's tracepoint reports it since 4.14: one bit, 0 if it
/// could have run on, 256 if it was preempted.
fn shown_state(arg: u32) -> i64 {
    const IDLE: i64 = 0x80;
    const REPORTED_DEAD: i64 = 0x10;
    const REPORTED_PREEMPTED: i64 = 0x100;
    match arg {
        _ if arg & PREEMPTED != 0 => REPORTED_PREEMPTED,
        _ if arg & DEAD != 0 => REPORTED_DEAD,
        _ if arg & SHOWN == 2 && arg & NO_LOAD != 0 => IDLE,
        _ if arg & SHOWN == 0 => 0,
        _ => 1 << (arg & SHOWN).ilog2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_the_tracepoint() {
        // R, S, D, dead, idle workers of the kernel (D without load), killable sleep, preempted in any state.
        let states = [0, 1, 2, DEAD, 0x402, 0x102, PREEMPTED | 1].map(shown_state);
        assert_eq!(states, [0, 1, 2, 0x10, 0x80, 2, 0x100]);
    }
}
