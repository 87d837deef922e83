//! Enclaves made, opened and taken down.

use super::error::{Missing, RtError};
use super::memory::{EnclaveField, MAPS, Memory};
use super::queues::Channels;
use super::tracer::Tracer;
use super::{Rt, probe};
use crate::model::Phase;
use crate::private::{self, Lock};
use crate::{Backend as _, EnclaveSpec};
use heddle_bpf::Map;
use heddle_sys::processes::Process;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Where enclaves are pinned, a folder each.
fn root() -> PathBuf {
    Path::new(probe::BPF_FILE_SYSTEM).join("heddle/agent")
}

/// How long another process may take to make an enclave.
const WAITING: Duration = Duration::from_secs(20);

/// Held while enclaves are made, so that two cannot take the same CPU.
fn lock() -> Result<Lock, RtError> {
    let folder = private::folder(&root());
    let failed = RtError::system(format!("locking {}", root().display()));
    folder.and_then(|folder| private::lock(folder, WAITING)).map_err(failed)
}

/// The folders of all enclaves of this backend, and of what is left of some.
fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    let is_ours = |folder: &PathBuf| Tracer::pins().any(|pin| folder.join(pin).exists());
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

fn check(spec: &EnclaveSpec) -> Result<Vec<u32>, RtError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if spec.name.is_empty() || !spec.name.chars().all(fine) {
        let text = format!("`{}` is no name of an enclave: letters, digits, - and _", spec.name);
        return Err(RtError::Spec(text));
    }
    let mut cpus = spec.cpus.clone();
    cpus.sort_unstable();
    cpus.dedup();
    let there = |cpu: &u32| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    match cpus.iter().find(|cpu| !there(cpu)) {
        Some(absent) => Err(RtError::Spec(format!("there is no CPU {absent}"))),
        None if cpus.is_empty() => Err(RtError::Spec("an enclave needs a CPU".into())),
        None => Ok(cpus),
    }
}

/// The first number that no CPU of this machine can have.
fn possible_cpus() -> u64 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u64>().ok());
    last.map_or(1024, |last| last + 1)
}

/// Whose one of `cpus` is already.
fn overlap(cpus: &[u32]) -> Option<RtError> {
    folders().iter().find_map(|folder| {
        let memory = Memory::open(folder).ok()?;
        let cpu = memory.own_cpus().into_iter().find(|cpu| cpus.contains(cpu))?;
        let enclave = folder.file_name()?.to_string_lossy().into_owned();
        Some(RtError::Overlap { cpu, enclave })
    })
}

/// Undoes the enclaves whose guardian was killed and that no agent cleans up. One that cannot be undone stays, and has its CPUs.
fn undo_abandoned() {
    for folder in folders().iter().filter(|folder| is_abandoned(folder)) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let _ = Rt::undo(&name);
    }
}

fn is_abandoned(folder: &Path) -> bool {
    let Ok(memory) = Memory::open(folder) else { return false };
    let guardian = Process {
        pid: memory.guardian().load(Relaxed),
        began: memory.enclave(EnclaveField::GuardianBegan).load(Relaxed),
    };
    guardian.began != 0 && !guardian.lives() && memory.agent().load(Relaxed) == 0
}

impl Rt {
    /// Makes an enclave. It is removed, and its threads are what they were before, when the value is dropped. What a process has
    /// left that was killed, whose enclave had the CPUs or the name, is undone.
    ///
    /// # Errors
    /// [`RtError::Missing`] where machine or process lack something, [`RtError::Exists`], [`RtError::Overlap`],
    /// [`RtError::Spec`] for a name or CPUs that are none.
    pub fn create(spec: &EnclaveSpec) -> Result<Rt, RtError> {
        let cpus = check(spec)?;
        probe::file_system()?;
        let _lock = lock()?;
        undo_abandoned();
        if let Some(error) = overlap(&cpus) {
            return Err(error);
        }
        let folder = root().join(&spec.name);
        fs::create_dir(&folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RtError::Exists(spec.name.clone()),
            _ => RtError::system(format!("making {}", folder.display()))(error),
        })?;
        let made = Rt::load(spec, &cpus, &folder);
        if made.is_err() {
            clear(&folder);
        }
        made
    }

    fn load(spec: &EnclaveSpec, cpus: &[u32], folder: &Path) -> Result<Rt, RtError> {
        let object = Tracer::load()?;
        let failed = |what: &str| RtError::system(format!("{what} of enclave `{}`", spec.name));
        let memory = Memory::of(&object).map_err(failed("the maps"))?;
        for cpu in cpus {
            let words = memory.cpu(*cpu);
            words.enclave().store(1, Relaxed);
            words.online().store(1, Relaxed);
        }
        let patience = spec.patience.map_or(0, |patience| patience.0);
        memory.enclave(EnclaveField::Patience).store(patience, Relaxed);
        memory.enclave(EnclaveField::Grace).store(spec.grace.0, Relaxed);
        memory.enclave(EnclaveField::PossibleCpus).store(possible_cpus(), Relaxed);
        let me = std::process::id();
        let began = Process::of(me).map_or(0, |process| process.began);
        memory.guardian().store(me, Relaxed);
        memory.enclave(EnclaveField::GuardianBegan).store(began, Relaxed);
        memory.phase().store(Phase::Waiting as u32, Release);
        for name in MAPS {
            let pin = |map: Map| map.pin(&folder.join(name));
            object.map(name).and_then(pin).map_err(failed("pinning the maps"))?;
        }
        let tracer = Tracer::of(&object).map_err(failed("the program"))?;
        let mut rt = Rt::assemble(folder.to_owned(), memory, tracer);
        rt.create_queue(true).map_err(|error| RtError::Spec(error.to_string()))?;
        rt.tracer.settle(&object, folder)?;
        rt.is_owner = true;
        Ok(rt)
    }

    /// Opens an enclave that another process has made: as its agent, or to look at it.
    ///
    /// # Errors
    /// [`RtError::NoEnclave`]; a lack of privilege.
    pub fn open(name: &str) -> Result<Rt, RtError> {
        let folder = root().join(name);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => RtError::NoEnclave(name.to_owned()),
            io::ErrorKind::PermissionDenied => Missing::Bpf(error.to_string()).into(),
            _ => RtError::system(format!("opening enclave `{name}`"))(error),
        };
        let memory = Memory::open(&folder).map_err(failed)?;
        let tracer = Tracer::open(&folder).map_err(failed)?;
        Ok(Rt::assemble(folder, memory, tracer))
    }

    fn assemble(folder: PathBuf, memory: Memory, tracer: Tracer) -> Rt {
        let cpus = memory.own_cpus().into_iter().map(heddle_sys::topology::cpu_info).collect();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (channels, enforcing, looked) = (Channels::default(), Mutex::new(()), Mutex::default());
        Rt { name, folder, cpus, memory, tracer, channels, enforcing, looked, is_owner: false }
    }

    /// The names of the enclaves that there are.
    #[must_use]
    pub fn enclaves() -> Vec<String> {
        let name = |folder: &PathBuf| folder.file_name().map(|n| n.to_string_lossy().into_owned());
        folders().iter().filter_map(name).collect()
    }

    /// Gives all threads back and removes the enclave. The number of threads that were given back.
    ///
    /// # Errors
    /// Of the first thread that could not be given back; the enclave stays, and [`Rt::undo`] tries again.
    pub fn remove(mut self) -> Result<usize, RtError> {
        self.is_owner = false;
        self.take_down()
    }

    pub(super) fn take_down(&self) -> Result<usize, RtError> {
        let given = self.give_back()?;
        clear(&self.folder);
        Ok(given)
    }

    /// Undoes an enclave whose guardian and agent are dead, or were interrupted while they made it: every thread is again
    /// what it was before. The number of threads. Zero where there is no such enclave.
    ///
    /// # Errors
    /// Those of [`Rt::remove`]; a lack of privilege.
    pub fn undo(name: &str) -> Result<usize, RtError> {
        match Rt::open(name) {
            Ok(rt) => rt.remove(),
            Err(RtError::NoEnclave(_)) => {
                // Half made, or half removed: what holds threads was made last and is removed last.
                clear(&root().join(name));
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// Removes the pins: first what watches, so that nothing is told of maps that are gone.
fn clear(folder: &Path) {
    for name in Tracer::pins().chain(MAPS) {
        let _ = fs::remove_file(folder.join(name));
    }
    // Fails where somebody else keeps something there, and then it is theirs.
    let _ = fs::remove_dir(folder);
}
