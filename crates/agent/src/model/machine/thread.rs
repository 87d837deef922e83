//! Events of threads.

use super::super::{Kind, State, ThreadWord};
use super::kernel::{Kernel, Thread, contains};
use heddle_core::{CpuId, CpuSet, Ns, TaskId};

impl Kernel {
    pub fn spawn(&mut self, enclave: u32, home: CpuId, runnable: bool) -> TaskId {
        let thread = self.slot();
        self.tids += 1;
        let queue = self.enclave(enclave).queue;
        let word = ThreadWord {
            tid: self.tids,
            tgid: 1000,
            os_cpu: self.infos[home.index()].os_id,
            enclave,
            queue,
            weight: 100,
            ..ThreadWord::default()
        };
        let affinity = CpuSet::first(self.cpus.len().min(CpuSet::CAPACITY));
        self.threads[thread.index()] = Thread { word, affinity, slice: None, at: home.index() };
        self.set_state(thread, State::Blocked);
        self.enclave_mut(enclave).word.threads += 1;
        self.queues[queue.0 as usize].word.associated += 1;
        if runnable {
            self.park(thread, Kind::ThreadCreated, 1);
            self.run_orphans(enclave);
        } else {
            self.notify(thread, Kind::ThreadCreated, 0);
        }
        thread
    }

    fn slot(&mut self) -> TaskId {
        if let Some(slot) = self.free.pop_first() {
            return TaskId(slot);
        }
        self.threads.push(Thread::default());
        TaskId(self.threads.len() as u32 - 1)
    }

    fn is(&self, thread: TaskId, state: State) -> bool {
        self.word(thread).state == state
    }

    pub fn block(&mut self, thread: TaskId) -> bool {
        if !self.is(thread, State::OnCpu) {
            return false;
        }
        let cpu = self.place_of(thread);
        self.take_off(cpu);
        self.set_state(thread, State::Blocked);
        self.notify(thread, Kind::ThreadBlocked, 0);
        self.dispatch(cpu);
        true
    }

    pub fn wake(&mut self, thread: TaskId) -> bool {
        let asleep = self.is(thread, State::Blocked);
        if asleep {
            self.park(thread, Kind::ThreadWakeup, 0);
            self.run_orphans(self.word(thread).enclave);
        }
        asleep
    }

    pub fn yield_now(&mut self, thread: TaskId) -> bool {
        if !self.is(thread, State::OnCpu) {
            return false;
        }
        let cpu = self.place_of(thread);
        self.take_off(cpu);
        self.park(thread, Kind::ThreadYield, 0);
        self.dispatch(cpu);
        true
    }

    /// A thread leaves for good. Its slot is free before the last message is sent.
    pub fn leave(&mut self, thread: TaskId, last: Kind) -> bool {
        let cpu = self.place_of(thread);
        match self.word(thread).state {
            State::Free => return false,
            State::OnCpu => {
                self.take_off(cpu);
                if last == Kind::ThreadDead {
                    self.set_state(thread, State::Blocked);
                    self.notify(thread, Kind::ThreadBlocked, 0);
                }
            }
            State::Latched if self.withdraw(self.word(thread).enclave, thread) => {}
            State::Latched => drop(self.unlatch(cpu)),
            State::Blocked | State::Parked => {}
        }
        self.forget(thread, last);
        self.dispatch(cpu);
        true
    }

    fn forget(&mut self, thread: TaskId, last: Kind) {
        let word = self.word(thread);
        self.enclave_mut(word.enclave).word.threads -= 1;
        self.queues[word.queue.0 as usize].word.associated -= 1;
        self.notify(thread, last, 0);
        self.set_state(thread, State::Free);
        self.threads[thread.index()] = Thread::default();
        self.free.insert(thread.0);
    }

    /// The affinity message comes first, so that a reader of the CPU's loss knows the reason.
    pub fn set_affinity(&mut self, thread: TaskId, cpus: CpuSet) -> bool {
        let word = self.word(thread);
        let machine = CpuSet::first(self.cpus.len().min(CpuSet::CAPACITY));
        let cpus = cpus.and(&machine);
        if word.state == State::Free || cpus.is_empty() {
            return false;
        }
        self.threads[thread.index()].affinity = cpus;
        self.notify(thread, Kind::ThreadAffinity, 0);
        let cpu = self.place_of(thread);
        if !self.park_offered(thread) && !contains(&cpus, cpu) {
            self.lose_cpu(thread, cpu, word.state);
        }
        self.run_orphans(word.enclave);
        true
    }

    fn lose_cpu(&mut self, thread: TaskId, cpu: usize, state: State) {
        match state {
            State::OnCpu => self.evict(cpu),
            State::Latched => {
                self.unlatch(cpu);
                self.park(thread, Kind::ThreadPreempted, 1);
            }
            State::Free | State::Blocked | State::Parked => return,
        }
        self.dispatch(cpu);
    }

    pub fn set_weight(&mut self, thread: TaskId, weight: u32) -> bool {
        let there = !self.is(thread, State::Free);
        if there {
            self.threads[thread.index()].word.weight = weight;
            self.notify(thread, Kind::ThreadPriority, u64::from(weight));
        }
        there
    }

    /// Lets idle CPUs of an enclave without an agent run waiting threads.
    pub fn run_orphans(&mut self, enclave: u32) {
        let one = &self.enclaves[enclave as usize - 1];
        if one.word.phase == super::super::Phase::Orphan {
            let cpus: Vec<CpuId> = one.spec.cpus.clone();
            cpus.into_iter().for_each(|cpu| self.dispatch(cpu.index()));
        }
    }

    /// Returns the threads of an enclave, in the order of their slots.
    pub fn threads_of(&self, enclave: u32) -> Vec<TaskId> {
        let all = self.threads.iter().enumerate();
        let its = all.filter(|(_, thread)| thread.word.enclave == enclave);
        its.map(|(slot, _)| TaskId(slot as u32)).collect()
    }

    /// Returns when the longest wait of an enclave's threads began, for the agent or for the CPU that the thread is
    /// committed to.
    pub fn waits_since(&self, enclave: u32) -> Option<Ns> {
        let all = self.threads.iter().map(|thread| &thread.word);
        let waits = |word: &&ThreadWord| {
            word.enclave == enclave && matches!(word.state, State::Parked | State::Latched)
        };
        all.filter(waits).map(|word| word.runnable_at).min()
    }
}
