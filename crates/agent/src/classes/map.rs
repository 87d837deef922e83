//! Class maps: where an agent reads what a thread works on.
//!
//! | map | key | written by | costs |
//! |---|---|---|---|
//! | an attachment's lines | found by the thread's number in the line | the program | a load |
//! | an array of a steering policy | the executor's number, which the lines give | policy, program | two loads |
//! | a hash of a policy or a program | the thread's number | policy, program | a system call |
//!
//! A value begins with the number of the work, four bytes in the machine's order, from 1 as in lines; 0 says that the
//! thread has none. What follows in a value is the map's own affair.

use super::lines::{self, Lines, LinesError};
use heddle_bpf::{Map, MapKind, MapView};
use heddle_core::line;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// A map that says what each thread works on.
///
/// Its owner can write anything into it, so it counts only for the owner's threads; root's counts for all of the
/// enclave.
#[derive(Debug)]
pub struct ClassMap {
    source: Source,
    owner: u32,
}

#[derive(Debug)]
enum Source {
    /// The class in each executor's line.
    Lines(Lines),
    /// An array by executor. The lines tell which executor a thread serves.
    Executors(Lines, MapView),
    /// A hash by thread.
    Threads(Map),
}

impl From<Lines> for ClassMap {
    fn from(lines: Lines) -> ClassMap {
        ClassMap { owner: lines.owner(), source: Source::Lines(lines) }
    }
}

impl ClassMap {
    /// Opens the class map `named`: `7` is the lines of steering attachment 7, `7:work` the map `work` of its policy,
    /// anything else a path at which lines or a hash are pinned.
    ///
    /// # Errors
    /// [`LinesError`].
    pub fn open(named: &str) -> Result<ClassMap, LinesError> {
        let (attachment, map) = match named.split_once(':') {
            Some((attachment, map)) => (attachment, Some(map)),
            None => (named, None),
        };
        match (attachment.parse(), map) {
            (Ok(attachment), None) => Ok(Lines::of_attachment(attachment)?.into()),
            (Ok(attachment), Some(map)) => {
                let lines = Lines::of_attachment(attachment)?;
                let map = lines::attached(attachment, map)?;
                ClassMap::of(&map, lines)
            }
            (Err(_), _) => {
                let (map, owner) = lines::pinned(Path::new(named))?;
                match map.spec().kind {
                    MapKind::Hash | MapKind::LruHash => ClassMap::by_thread(map, owner),
                    _ => Ok(ClassMap { source: Source::Lines(Lines::of(&map)?), owner }),
                }
            }
        }
    }

    /// Uses `map`: a hash by thread, or an array by executor, whose threads are in `lines`. It counts for whomever the
    /// lines count.
    ///
    /// # Errors
    /// [`LinesError::Kind`], [`LinesError::View`].
    pub fn of(map: &Map, lines: Lines) -> Result<ClassMap, LinesError> {
        let (spec, owner) = (map.spec(), lines.owner());
        let name = spec.name.clone();
        match spec.kind {
            MapKind::Array if spec.value_size >= 4 => {
                let works =
                    MapView::new(map).map_err(|source| LinesError::View { name, source })?;
                Ok(ClassMap { source: Source::Executors(lines, works), owner })
            }
            MapKind::Hash | MapKind::LruHash => {
                let map = map.try_clone().map_err(|source| LinesError::View { name, source })?;
                ClassMap::by_thread(map, owner)
            }
            _ => Err(LinesError::Kind { name, why: WANTED }),
        }
    }

    fn by_thread(map: Map, owner: u32) -> Result<ClassMap, LinesError> {
        let spec = map.spec();
        if spec.key_size != 4 || spec.value_size < 4 {
            return Err(LinesError::Kind { name: spec.name.clone(), why: WANTED });
        }
        Ok(ClassMap { source: Source::Threads(map), owner })
    }

    /// Whether the map counts for the threads of every process.
    pub(super) fn is_roots(&self) -> bool {
        self.owner == 0
    }

    /// Whether the map counts for the threads of process `tgid` under its present user. Takes system calls.
    pub(super) fn speaks_for(&self, tgid: u32) -> bool {
        self.is_roots() || user_of(tgid) == Some(self.owner)
    }

    /// Returns the number of the work that thread `tid` does now, from 1; none if the map does not know. `hint` is
    /// where its line was last, and is updated.
    #[inline]
    pub fn work_of(&self, tid: u32, hint: &mut usize) -> Option<u32> {
        let work = match &self.source {
            Source::Lines(lines) => return lines.work_of(tid, hint),
            Source::Executors(lines, works) => {
                let executor = lines.executor_of(tid, hint)?;
                (executor < works.len()).then(|| works.half(executor, 0).load(Relaxed))?
            }
            Source::Threads(works) => looked_up(works, tid)?,
        };
        Some(work).filter(|&work| work != line::IDLE)
    }
}

/// What a map must be like.
const WANTED: &str =
    "it must be an array by executor or a hash by thread (4-byte keys), values of 4 bytes or more";

/// If the kernel fails, the thread has the class that it has without a map.
fn looked_up(works: &Map, tid: u32) -> Option<u32> {
    let value = works.lookup(&tid.to_ne_bytes()).ok()??;
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// Returns the real user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}
