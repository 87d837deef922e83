//! What threads say of their present work: the lines of executors (`heddle_core::line`).

use heddle_bpf::{Map, MapView};
use heddle_core::line;
use serde::Deserialize;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use thiserror::Error;

/// Where the maps of steering attachments are pinned, each in a folder named by the attachment's number.
const PINS: &str = "/sys/fs/bpf/heddle";
/// Where attachments are recorded, each in a file that names its owner.
const RECORDS: &str = "/run/heddle";
/// The pin of an attachment's lines.
const PIN: &str = "map_hd_lines";

/// Why lines cannot be read.
#[derive(Debug, Error)]
pub enum LinesError {
    /// The map cannot be opened.
    #[error(
        "no class map at {}: {source} (`heddle steer ls` lists attachments; the map can also be given as a path)",
        path.display()
    )]
    Open {
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The owner of the lines is unknown.
    #[error(
        "cannot read the owner of the lines from {}: {source} (attach again, or give the map as a path)",
        path.display()
    )]
    Owner {
        /// The file that should name the owner.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The map does not hold lines.
    #[error("map `{name}` is not a class map: its values have {size} bytes, lines have 64")]
    Shape {
        /// The map.
        name: String,
        /// The size of its values in bytes.
        size: u32,
    },
    /// The map cannot be mapped into memory.
    #[error("cannot map `{name}` into memory: {source}")]
    View {
        /// The map.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The lines of a steering attachment's executors, mapped into this process.
///
/// Reading takes no system call. A line names its thread by its number in the agent's process-id namespace. If two
/// lines name the same thread, the first one counts. Lines may change at any time; a read returns what was stored a
/// moment ago.
///
/// The owner can write anything into them, so they count only for the owner's threads; root's count for all of the
/// enclave.
pub struct Lines {
    view: MapView,
    owner: u32,
}

impl Lines {
    /// Opens the lines of `named`: the number of an attachment, or a path at which their map is pinned. Their owner
    /// is the attachment's, or the pin's.
    ///
    /// # Errors
    /// [`LinesError`].
    pub fn open(named: &str) -> Result<Lines, LinesError> {
        let attachment = named.parse::<u32>().ok();
        let path =
            attachment.map_or_else(|| named.into(), |_| Path::new(PINS).join(named).join(PIN));
        let map =
            Map::open(&path).map_err(|source| LinesError::Open { path: path.clone(), source })?;
        let (says, owner) = match attachment {
            None => (path.clone(), std::fs::metadata(&path).map(|pin| pin.uid())),
            Some(number) => {
                let record = Path::new(RECORDS).join(format!("{number}.json"));
                let owner = owner_by(&record);
                (record, owner)
            }
        };
        let owner = owner.map_err(|source| LinesError::Owner { path: says, source })?;
        Ok(Lines { owner, ..Lines::of(&map)? })
    }

    /// Maps the lines in `map`, whose descriptor may be closed afterwards. They count as root's.
    ///
    /// # Errors
    /// [`LinesError::Shape`], [`LinesError::View`].
    pub fn of(map: &Map) -> Result<Lines, LinesError> {
        let spec = map.spec();
        let (name, size) = (spec.name.clone(), spec.value_size);
        if size != line::BYTES {
            return Err(LinesError::Shape { name, size });
        }
        let view = MapView::new(map).map_err(|source| LinesError::View { name, source })?;
        Ok(Lines { view, owner: 0 })
    }

    /// Whether the lines count for the threads of every process.
    pub(super) fn are_roots(&self) -> bool {
        self.owner == 0
    }

    /// Whether the lines count for the threads of process `tgid` under its present user. Takes system calls.
    pub(super) fn speak_for(&self, tgid: u32) -> bool {
        self.are_roots() || user_of(tgid) == Some(self.owner)
    }

    /// Uses the lines in `view`, whose values must be lines. They count as root's.
    #[doc(hidden)]
    #[must_use]
    pub fn over(view: MapView) -> Lines {
        Lines { view, owner: 0 }
    }

    /// Returns the number of the work that thread `tid` does now, from 1, on which program and policy agree. None
    /// if it has no line, or its line says that it is idle. `hint` is where its line was last, and is updated.
    ///
    /// Takes one load while the hint is right; otherwise one for each executor (at most 64).
    #[inline]
    pub fn work_of(&self, tid: u32, hint: &mut usize) -> Option<u32> {
        if !self.is_of(*hint, tid) {
            *hint = (0..self.view.len().min(line::MOST)).find(|&at| self.is_of(at, tid))?;
        }
        let work = self.view.half(*hint, line::CLASS).load(Relaxed);
        Some(work).filter(|&work| work != line::IDLE)
    }

    fn is_of(&self, at: usize, tid: u32) -> bool {
        at < self.view.len() && self.view.half(at, line::THREAD).load(Relaxed) == tid
    }
}

fn owner_by(record: &Path) -> io::Result<u32> {
    #[derive(Deserialize)]
    struct Attachment {
        uid: u32,
    }
    Ok(serde_json::from_slice::<Attachment>(&std::fs::read(record)?)?.uid)
}

/// Returns the real user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines({})", self.view.len())
    }
}
