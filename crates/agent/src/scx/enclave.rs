//! Making, opening and removing enclaves.

use super::commit::Regions;
use super::error::system;
use super::memory::EnclaveField as Field;
use super::memory::Memory;
use super::programs::{self, Calls, Lock};
use super::queues::Ends;
use super::threads::give_back_of;
use super::{Scx, ScxError};
use crate::EnclaveSpec;
use crate::model::Phase;
use heddle_bpf::Link;
use heddle_core::Ns;
use heddle_sys::topology::cpu_info;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// The length of a name (`struct hd_name` ends with a zero byte).
const NAME_BYTES: usize = 63;
/// The size of the default queue's ring: room for some thousand messages.
pub(super) const RING_BYTES: u32 = 1 << 18;

/// `HD_FLAG_PICKS`: the enclave has a `pick_next`.
const PICKS: u64 = 4;

/// Optional services for an enclave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnclaveFlags {
    /// Send [`crate::model::Kind::TimerTick`].
    pub ticks: bool,
    /// Send [`crate::model::Kind::CpuAvailable`] and [`crate::model::Kind::CpuBusy`].
    pub cpus: bool,
}

impl Scx {
    /// Makes an enclave, whose guardian is this process. Loads the kernel's programs if they are not loaded yet,
    /// which takes some hundred milliseconds.
    ///
    /// # Errors
    /// If something is [`super::Missing`], a name or a CPU is not valid; [`ScxError::Exists`],
    /// [`ScxError::Overlap`].
    pub fn create(spec: &EnclaveSpec) -> Result<Scx, ScxError> {
        check_name(&spec.name)?;
        let lock = programs::lock()?;
        let (memory, calls) = programs::find_or_load(&lock)?;
        super::lifecycle::sweep(&memory, &lock)?;
        let made = check(&memory, spec).and_then(|()| write(&memory, spec));
        let made = made.and_then(|id| Ok((id, attach_pick_next(&memory, spec, id)?)));
        match made {
            Ok((id, pick_next)) => Ok(Scx { _pick_next: pick_next, ..Scx::of(memory, calls, id) }),
            Err(error) => {
                unload_if_empty(&memory, &lock);
                Err(error)
            }
        }
    }

    /// Opens an enclave that another process has made.
    ///
    /// # Errors
    /// [`ScxError::NoEnclave`], [`ScxError::Version`].
    pub fn open(name: &str) -> Result<Scx, ScxError> {
        super::probe()?;
        let lock = programs::lock()?;
        let none = || ScxError::NoEnclave(name.to_owned());
        let (memory, calls) = programs::find(&lock)?.ok_or_else(none)?;
        let id = memory.enclaves().find(|&id| memory.name(id) == name).ok_or_else(none)?;
        Ok(Scx::of(memory, calls, id))
    }

    /// Returns the names of all enclaves of this backend.
    ///
    /// # Errors
    /// [`ScxError::Version`]; the kernel's errors.
    pub fn names() -> Result<Vec<String>, ScxError> {
        if super::probe().is_err() {
            return Ok(Vec::new());
        }
        let lock = programs::lock()?;
        Ok(programs::find(&lock)?.map_or_else(Vec::new, |(memory, _)| memory.names()))
    }

    fn of(memory: Memory, calls: Calls, id: u32) -> Scx {
        let mine = |cpu: &u32| memory.cpu_enclave(*cpu).load(Relaxed) == id;
        let cpus = (0..memory.cpu_room() as u32).filter(mine).map(cpu_info).collect();
        let (name, ends) = (memory.name(id), Ends::new(memory.queue_room()));
        Scx {
            memory,
            calls,
            id,
            name,
            cpus,
            ends,
            regions: Regions::default(),
            unmanaged: Mutex::default(),
            members: Mutex::default(),
            _pick_next: None,
        }
    }

    /// Returns the enclave's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process number of the enclave's guardian.
    #[must_use]
    pub fn guardian(&self) -> u32 {
        self.memory.enclave(self.id, Field::GuardianAndQueue).load(Relaxed) as u32
    }

    /// Sets the enclave's optional services.
    pub fn set_flags(&self, flags: EnclaveFlags) {
        let flags = u64::from(flags.ticks) | u64::from(flags.cpus) << 1;
        let word = self.memory.enclave(self.id, Field::Flags);
        word.store(word.load(Relaxed) & PICKS | flags, Release);
    }

    pub(super) fn has_pick_next(&self) -> bool {
        self.memory.enclave(self.id, Field::Flags).load(Relaxed) & PICKS != 0
    }

    /// Returns the number of threads of the machine that opted in but got no status word; the kernel runs them
    /// first in, first out.
    #[must_use]
    pub fn without_slot(&self) -> u64 {
        self.memory.without_slot()
    }

    /// Whether the kernel still runs the scheduler. If not, all its threads belong to the default scheduler, and
    /// [`Scx::ended`] returns the reason.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.memory.exit_code() == 0
    }

    /// Gives all threads back and removes the enclave, and with the last one the kernel's programs. Returns the
    /// number of threads given back.
    ///
    /// # Errors
    /// [`ScxError::System`]; [`ScxError::Left`] if threads could not be given back: then the enclave stays.
    pub fn remove(self) -> Result<usize, ScxError> {
        if !self.is_loaded() {
            // The pins may belong to another process by now, which has loaded the programs anew.
            clear(&self.memory, self.id);
            return self.give_back();
        }
        let lock = programs::lock()?;
        let given = give_back_of(&self.memory, self.id)?;
        // Threads that opt in from now on find no enclave.
        clear(&self.memory, self.id);
        unload_if_empty(&self.memory, &lock);
        Ok(given)
    }
}

/// Lets the kernel verify the enclave's `pick_next` and run it, until the link is gone.
fn attach_pick_next(
    memory: &Memory,
    spec: &EnclaveSpec,
    id: u32,
) -> Result<Option<Link>, ScxError> {
    let Some(pick_next) = &spec.pick_next else { return Ok(None) };
    let attached = programs::attach_pick_next(pick_next.code(), id);
    match attached {
        Ok(_) => drop(memory.enclave(id, Field::Flags).fetch_or(PICKS, Release)),
        Err(_) => clear(memory, id),
    }
    attached.map(Some)
}

fn unload_if_empty(memory: &Memory, lock: &Lock) {
    if memory.enclaves().next().is_none() {
        programs::unload(lock);
    }
}

fn check_name(name: &str) -> Result<(), ScxError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(fits) {
        let text = format!(
            "`{name}` is not a valid enclave name: use letters, digits, - and _, at most {NAME_BYTES}"
        );
        return Err(ScxError::Spec(text));
    }
    Ok(())
}

fn check(memory: &Memory, spec: &EnclaveSpec) -> Result<(), ScxError> {
    if memory.names().contains(&spec.name) {
        return Err(ScxError::Exists(spec.name.clone()));
    }
    if spec.cpus.is_empty() {
        return Err(ScxError::Spec("an enclave needs a CPU".into()));
    }
    let is_there =
        |cpu: &u32| std::fs::metadata(format!("/sys/devices/system/cpu/cpu{cpu}")).is_ok();
    let room = memory.cpu_room() as u32;
    if let Some(cpu) = spec.cpus.iter().find(|cpu| **cpu >= room || !is_there(cpu)) {
        return Err(ScxError::Spec(format!("this machine has no CPU {cpu}")));
    }
    overlap(memory, &spec.cpus)
}

fn overlap(memory: &Memory, cpus: &[u32]) -> Result<(), ScxError> {
    let owner = |cpu: &u32| memory.cpu_enclave(*cpu).load(Relaxed);
    let Some(other) = cpus.iter().map(owner).find(|&id| id != 0) else { return Ok(()) };
    let cpus = cpus.iter().copied().filter(|cpu| owner(cpu) == other).collect();
    Err(ScxError::Overlap { cpus, enclave: memory.name(other) })
}

fn write(memory: &Memory, spec: &EnclaveSpec) -> Result<u32, ScxError> {
    let room = memory.enclave_room();
    let id =
        (1..room as u32).find(|&id| memory.state(id) == 0).ok_or(ScxError::NoRoom(room - 1))?;
    clear(memory, id);
    let queue = super::queues::make(memory, id, RING_BYTES, true).map_err(system("a queue"))?;
    memory.set_name(id, &spec.name);
    let set = |field, value| memory.enclave(id, field).store(value, Release);
    set(Field::Patience, spec.patience.map_or(0, |time| time.0));
    set(Field::Grace, spec.grace.0);
    set(Field::Deadline, deadline(spec.starting.unwrap_or(spec.grace)));
    set(Field::GuardianAndQueue, u64::from(std::process::id()) | u64::from(queue) << 32);
    for &cpu in &spec.cpus {
        memory.cpu_queue(cpu).store(queue, Relaxed);
        memory.cpu_node(cpu).store(u32::from(cpu_info(cpu).node), Relaxed);
        memory.cpu_enclave(cpu).store(id, Release);
    }
    set(Field::StateAndAgent, Phase::Waiting as u64);
    Ok(id)
}

/// Returns the end of an enclave's wait for an agent.
pub(super) fn deadline(grace: Ns) -> u64 {
    heddle_sys::clock::now().0.saturating_add(grace.0)
}

pub(super) fn clear(memory: &Memory, id: u32) {
    let mine = |cpu: &u32| memory.cpu_enclave(*cpu).load(Relaxed) == id;
    for cpu in (0..memory.cpu_room() as u32).filter(mine) {
        memory.cpu_enclave(cpu).store(0, Release);
    }
    memory.clear_enclave(id);
    for queue in super::queues::of(memory, id) {
        super::queues::destroy(memory, queue);
    }
    memory.set_name(id, "");
}
