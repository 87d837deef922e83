//! Events of CPUs.

use super::super::{CpuOccupant, Kind, Message, Seq};
use super::kernel::Kernel;
use heddle_core::TaskId;

impl Kernel {
    pub fn occupy(&mut self, cpu: usize, who: CpuOccupant) {
        let was_above = self.is_occupied(cpu);
        let thread = self.take_off(cpu);
        self.set_occupant(cpu, who);
        if let Some(thread) = thread {
            self.park(thread, Kind::ThreadPreempted, 0);
        }
        if !was_above {
            self.notify_cpu(cpu, Kind::CpuBusy);
        }
    }

    pub fn release(&mut self, cpu: usize) {
        if self.is_occupied(cpu) {
            self.set_occupant(cpu, CpuOccupant::Idle);
            self.notify_cpu(cpu, Kind::CpuAvailable);
            self.dispatch(cpu);
        }
    }

    /// Whether something above managed threads has it.
    fn is_occupied(&self, cpu: usize) -> bool {
        !matches!(self.cpus[cpu].word.occupant, CpuOccupant::Idle | CpuOccupant::Managed)
    }

    fn notify_cpu(&mut self, cpu: usize, kind: Kind) {
        let id = self.cpus[cpu].enclave;
        if id != 0 && self.enclave(id).spec.cpu_messages {
            self.cpu_message(cpu, kind);
        }
    }

    pub fn tick(&mut self, cpu: usize) {
        let id = self.cpus[cpu].enclave;
        if id != 0 && self.enclave(id).spec.ticks {
            self.cpu_message(cpu, Kind::TimerTick);
        }
    }

    fn cpu_message(&mut self, cpu: usize, kind: Kind) {
        let message = Message {
            kind,
            thread: TaskId(0),
            tid: 0,
            os_cpu: self.infos[cpu].os_id,
            tseq: Seq(0),
            aseq: Seq(0),
            at: self.now,
            info: 0,
        };
        self.send(self.cpus[cpu].queue, message);
    }

    /// Going offline is reported as a busy CPU: the agent reads its word and sees why.
    pub fn set_online(&mut self, cpu: usize, online: bool) {
        if self.cpus[cpu].word.online == online {
            return;
        }
        self.cpus[cpu].word.online = online;
        if online {
            self.notify_cpu(cpu, Kind::CpuAvailable);
            return self.dispatch(cpu);
        }
        self.cpus[cpu].kick = false;
        self.evict(cpu);
        if let Some(thread) = self.unlatch(cpu) {
            self.park(thread, Kind::ThreadPreempted, 1);
        }
        self.notify_cpu(cpu, Kind::CpuBusy);
        self.run_orphans_of(cpu);
    }

    fn run_orphans_of(&mut self, cpu: usize) {
        let id = self.cpus[cpu].enclave;
        if id != 0 {
            self.run_orphans(id);
        }
    }

    pub fn is_awaited(&self, cpu: usize) -> bool {
        let at = &self.cpus[cpu];
        at.kick || (at.word.latched.is_some() && at.word.occupant == CpuOccupant::Idle)
    }
}
