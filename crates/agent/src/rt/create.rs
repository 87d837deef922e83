//! Making, opening and removing enclaves.

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
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Returns the folder of all enclaves; each is pinned in a folder of its own.
fn root() -> PathBuf {
    Path::new(probe::BPF_FILE_SYSTEM).join("heddle/agent")
}

/// How long another process may take to make an enclave.
const WAITING: Duration = Duration::from_secs(20);

/// Locks the making of enclaves, so that two cannot take the same CPU.
pub(super) fn lock() -> Result<Lock, RtError> {
    let folder = private::folder(&root());
    let failed = RtError::system(format!("locking {}", root().display()));
    folder.and_then(|folder| private::lock(folder, WAITING)).map_err(failed)
}

/// Returns the folders of all enclaves of this backend, and of remains of enclaves.
fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    let is_ours = |folder: &PathBuf| Tracer::pins().any(|pin| folder.join(pin).exists());
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

fn check(spec: &EnclaveSpec) -> Result<Vec<u32>, RtError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if spec.name.is_empty() || !spec.name.chars().all(fine) {
        let text =
            format!("`{}` is not a valid enclave name: use letters, digits, - and _", spec.name);
        return Err(RtError::Spec(text));
    }
    let cpus = spec.cpus.iter().copied().collect();
    check_cpus(&cpus)?;
    Ok(cpus.into_iter().collect())
}

pub(super) fn check_cpus(cpus: &BTreeSet<u32>) -> Result<(), RtError> {
    let there = |cpu: &u32| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    match cpus.iter().find(|cpu| !there(cpu)) {
        Some(absent) => Err(RtError::Spec(format!("there is no CPU {absent}"))),
        None if cpus.is_empty() => Err(RtError::Spec("an enclave needs a CPU".into())),
        None => Ok(()),
    }
}

/// Returns the first number that no CPU of this machine can have.
fn possible_cpus() -> u64 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u64>().ok());
    last.map_or(1024, |last| last + 1)
}

/// Returns an error if one of `cpus` belongs to another enclave.
pub(super) fn overlap(cpus: &[u32]) -> Option<RtError> {
    folders().iter().find_map(|folder| {
        let memory = Memory::open(folder).ok()?;
        let cpu = memory.own_cpus().into_iter().find(|cpu| cpus.contains(cpu))?;
        let enclave = folder.file_name()?.to_string_lossy().into_owned();
        Some(RtError::Overlap { cpu, enclave })
    })
}

/// Undoes the enclaves whose guardian was killed and that no agent cleans up. One that cannot be undone stays and
/// keeps its CPUs.
pub(super) fn undo_abandoned() {
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
    /// Makes an enclave. Dropping it removes it and restores its threads. Remains of a killed process's enclave
    /// with the same CPUs or name are undone first.
    ///
    /// # Errors
    /// [`RtError::Missing`] if the machine or the process lacks something, [`RtError::Exists`],
    /// [`RtError::Overlap`], [`RtError::Spec`] for an invalid name or CPU.
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
        cpus.iter().for_each(|&cpu| memory.take_cpu(cpu));
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
        rt.tracer.attach(&object, folder)?;
        rt.is_owner = true;
        Ok(rt)
    }

    /// Opens an enclave that another process has made, as its agent or as an observer.
    ///
    /// # Errors
    /// [`RtError::NoEnclave`], or a lack of privilege.
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

    /// Opens an enclave as an agent that uses only `cpus`, by the operating system's numbers. The enclave has them
    /// when the agent attaches, and may still have others.
    ///
    /// # Errors
    /// As [`Rt::open`].
    pub fn open_on(name: &str, cpus: &BTreeSet<u32>) -> Result<Rt, RtError> {
        let mut rt = Rt::open(name)?;
        rt.cpus.retain(|cpu| cpus.contains(&cpu.os_id));
        Ok(rt)
    }

    fn assemble(folder: PathBuf, memory: Memory, tracer: Tracer) -> Rt {
        let cpus = memory.own_cpus().into_iter().map(heddle_sys::topology::cpu_info).collect();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (channels, enforcing, last_check) =
            (Channels::default(), Mutex::new(()), Mutex::default());
        Rt { name, folder, cpus, memory, tracer, channels, enforcing, last_check, is_owner: false }
    }

    /// Returns the names of all enclaves.
    #[must_use]
    pub fn enclaves() -> Vec<String> {
        let name = |folder: &PathBuf| folder.file_name().map(|n| n.to_string_lossy().into_owned());
        folders().iter().filter_map(name).collect()
    }

    /// Gives all threads back and removes the enclave. Returns the number of threads given back.
    ///
    /// # Errors
    /// The error of the first thread that could not be given back; the enclave stays, and [`Rt::undo`] tries again.
    pub fn remove(mut self) -> Result<usize, RtError> {
        self.is_owner = false;
        self.take_down()
    }

    pub(super) fn take_down(&self) -> Result<usize, RtError> {
        let given = self.give_back()?;
        clear(&self.folder);
        Ok(given)
    }

    /// Undoes an enclave whose guardian and agent are dead, or were interrupted while they made it: every thread is
    /// again what it was before. Returns the number of threads; zero if there is no such enclave.
    ///
    /// # Errors
    /// As [`Rt::remove`], or a lack of privilege.
    pub fn undo(name: &str) -> Result<usize, RtError> {
        match Rt::open(name) {
            Ok(rt) => rt.remove(),
            Err(RtError::NoEnclave(_)) => {
                // Half made, or half removed: what holds threads is made last and removed first.
                clear(&root().join(name));
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// Removes the pins. The programs go first, so that none sends messages about maps that are gone.
fn clear(folder: &Path) {
    for name in Tracer::pins().chain(MAPS) {
        let _ = fs::remove_file(folder.join(name));
    }
    // Fails if another program keeps something there; then the folder is in use.
    let _ = fs::remove_dir(folder);
}
