//! Checks that the machine's state is possible (M1, M3).

use super::super::{CpuOccupant, State};
use super::kernel::Kernel;
use heddle_core::TaskId;

impl Kernel {
    pub fn audit(&self) -> Result<(), String> {
        (0..self.cpus.len()).try_for_each(|cpu| self.audit_cpu(cpu))?;
        (0..self.threads.len()).try_for_each(|slot| self.audit_thread(TaskId(slot as u32)))?;
        (1..=self.enclaves.len() as u32).try_for_each(|id| self.audit_enclave(id))
    }

    fn audit_cpu(&self, at: usize) -> Result<(), String> {
        let word = &self.cpus[at].word;
        let managed = word.occupant == CpuOccupant::Managed;
        ensure(managed == word.current.is_some(), || format!("cpu{at}: {word:?}"))?;
        let alone = word.online || (word.current.is_none() && word.latched.is_none());
        ensure(alone, || format!("cpu{at} is offline and has a thread: {word:?}"))?;
        ensure(word.current.is_none() || word.current != word.latched, || {
            format!("cpu{at} runs what is latched to it: {word:?}")
        })
    }

    fn audit_thread(&self, thread: TaskId) -> Result<(), String> {
        let word = self.word(thread);
        let on = |pick: fn(&super::kernel::Cpu) -> Option<TaskId>| {
            let cpus = self.cpus.iter().enumerate();
            cpus.filter(|(_, cpu)| pick(cpu) == Some(thread)).map(|(at, _)| at).collect::<Vec<_>>()
        };
        let (running, latched) = (on(|cpu| cpu.word.current), on(|cpu| cpu.word.latched));
        let fits = match word.state {
            State::Free | State::Blocked | State::Parked => {
                running.is_empty() && latched.is_empty()
            }
            State::Latched if word.is_offered() => {
                running.is_empty() && latched.is_empty() && self.is_offered(word.enclave, thread)
            }
            State::Latched => running.is_empty() && latched == [self.place_of(thread)],
            State::OnCpu => latched.is_empty() && running == [self.place_of(thread)],
        };
        ensure(fits, || format!("{thread} {word:?} runs on {running:?}, latched to {latched:?}"))?;
        let own = |&cpu: &usize| self.cpus[cpu].enclave == word.enclave;
        let home = running.iter().chain(&latched).all(own);
        ensure(home, || format!("{thread} {word:?} is on a CPU of another enclave"))
    }

    fn audit_enclave(&self, id: u32) -> Result<(), String> {
        let word = self.enclave(id).word;
        let threads = self.threads_of(id).len() as u64;
        ensure(word.threads == threads, || format!("enclave {id} {word:?} has {threads} threads"))
    }
}

fn ensure(so: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if so { Ok(()) } else { Err(what()) }
}
