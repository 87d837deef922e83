//! CPUs that go offline and come back. Over sched_ext the kernel's programs see it; here the enclave's guardian looks.

use super::Rt;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::fence;

impl Rt {
    /// Updates which of the enclave's CPUs are online, by the operating system's numbers. A thread that is committed
    /// to one that is not is parked, as over sched_ext: the kernel has moved it to any other CPU. The guardian calls
    /// this periodically.
    pub fn set_online(&self, online: &BTreeSet<u32>) {
        for os_cpu in self.cpus.iter().map(|cpu| cpu.os_id) {
            let is_online = online.contains(&os_cpu);
            self.memory.cpu(os_cpu).online().store(is_online.into(), SeqCst);
            if !is_online {
                self.uncommit(os_cpu);
            }
        }
    }

    /// Parks what is committed to a CPU that is offline. A commit that has read the word before may come after this:
    /// the next call finds it. Its message has the agent lower the thread's priority.
    fn uncommit(&self, os_cpu: u32) {
        fence(SeqCst);
        for slot in 0..self.memory.slots() {
            let thread = self.memory.thread(slot);
            if thread.tid().load(Acquire) != 0 && thread.live().committed() == Some(os_cpu) {
                self.park(slot, os_cpu, true);
            }
        }
    }
}
