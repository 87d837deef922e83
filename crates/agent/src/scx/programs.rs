//! The programs and maps in the kernel: one set for all enclaves of the machine, loaded by the first process that
//! needs it, found by others where it is pinned, and removed with the last enclave.

use super::error::system;
use super::memory::{MAPS, Memory};
use super::{Missing, ScxError, probe};
use crate::objects::{LAYOUT_HASH, SCX};
use crate::private;
use heddle_bpf::{Fentry, Link, Map, Object, OpenObject, Program};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The scheduler's name in the kernel.
pub(super) const NAME: &str = "heddle";
const FOLDER: &str = "/sys/fs/bpf/heddle/agent";
/// Attached to tracepoints, by their names in the object.
const TRACING: [&str; 6] =
    ["hd_exec", "hd_switch", "hd_wakeup", "hd_wakeup_new", "hd_migrate", "hd_process_exit"];
/// Pinned like the shared maps: the kernel stops the timer of a map that user space does not hold.
const KEPT: &str = "hd_beats";
/// Run by agents.
const CALLS: [&str; 3] = ["hd_commit", "hd_commit_group", "hd_control"];
/// What a `pick_next` needs: the program with the functions at whose calls it runs, and the map that it shares.
const DISPATCH: &str = "hd_op_dispatch";
const PICKS: &str = "hd_picks";
/// The link that holds the scheduler in the kernel.
const OPERATIONS: &str = "link_ops";

/// The programs that agents run.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) commit: Program,
    pub(super) group: Program,
    pub(super) control: Program,
}

/// The right to make and remove enclaves, which one process has at a time.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "held, not read")] private::Lock);

/// How long another process may hold the lock: it loads programs, slowly on an emulated machine.
const WAITING: Duration = Duration::from_secs(60);

fn pin(name: &str) -> PathBuf {
    PathBuf::from(FOLDER).join(name)
}

pub(super) fn lock() -> Result<Lock, ScxError> {
    let folder = private::folder(Path::new(FOLDER));
    let locked = folder.and_then(|folder| private::lock(folder, WAITING));
    locked.map(Lock).map_err(system(format!("lock {FOLDER}")))
}

/// Finds what is loaded.
pub(super) fn find(_: &Lock) -> Result<Option<(Memory, Calls)>, ScxError> {
    let is_loaded = probe::loaded().is_some_and(|name| name == NAME) && pin(OPERATIONS).exists();
    if !is_loaded {
        return Ok(None);
    }
    let memory = Memory::open(|name| heddle_bpf::Map::open(&pin(name)));
    let memory = memory.map_err(system(FOLDER))?;
    if memory.layout() != LAYOUT_HASH {
        return Err(ScxError::Version(memory.names().join(", ")));
    }
    let program = |name| Program::open(&pin(name)).map_err(system(name));
    let (commit, group) = (program(CALLS[0])?, program(CALLS[1])?);
    Ok(Some((memory, Calls { commit, group, control: program(CALLS[2])? })))
}

/// Finds what is loaded, or loads it.
pub(super) fn find_or_load(lock: &Lock) -> Result<(Memory, Calls), ScxError> {
    if let Some(found) = find(lock)? {
        return Ok(found);
    }
    probe::probe()?;
    unload(lock);
    let done = load();
    if done.is_err() {
        unload(lock);
    }
    done?;
    find(lock)?.ok_or_else(|| {
        let why = "the kernel ended the scheduler at once; its log says why";
        system("load")(std::io::Error::other(why))
    })
}

fn load() -> Result<(), ScxError> {
    let mut object = OpenObject::read(NAME, SCX)?.load()?;
    for name in MAPS.into_iter().chain([KEPT, PICKS]) {
        object.map(name).and_then(|map| map.pin(&pin(name))).map_err(system(name))?;
    }
    for name in CALLS.into_iter().chain([DISPATCH]) {
        object.program(name).and_then(|call| call.pin(&pin(name))).map_err(system(name))?;
    }
    for name in TRACING {
        keep(object.attach(name)?, &format!("link_{name}"))?;
    }
    keep(attach(&mut object)?, OPERATIONS)
}

/// Lets `code` decide for enclave `id`.
pub(super) fn attach_pick_next(code: &Fentry, id: u32) -> Result<Link, ScxError> {
    let dispatch = Program::open(&pin(DISPATCH)).map_err(system(DISPATCH))?;
    let picks = Map::open(&pin(PICKS)).map_err(system(PICKS))?;
    code.attach(&dispatch, &format!("hd_pick_{id}"), &picks).map_err(ScxError::PickNext)
}

fn keep(link: Link, name: &str) -> Result<(), ScxError> {
    link.pin(&pin(name)).map_err(system(name))
}

fn attach(object: &mut Object) -> Result<Link, ScxError> {
    object.attach_operations("hd_ops").map_err(|refused| match probe::loaded() {
        Some(other) if other != NAME => Missing::Another(other).into(),
        _ => refused.into(),
    })
}

/// Removes everything from the kernel. Threads that were managed go on under the default scheduler.
pub(super) fn unload(_: &Lock) {
    let Ok(entries) = fs::read_dir(FOLDER) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // The scheduler first: it uses the rest.
    paths.sort_by_key(|path| !path.ends_with(OPERATIONS));
    for path in paths {
        // Another process may have been quicker.
        let _ = fs::remove_file(path);
    }
}
