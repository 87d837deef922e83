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
/// The map of an attachment's lines.
const LINES: &str = "hd_lines";

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
    /// The map does not say what threads or executors work on.
    #[error("map `{name}` is not a class map: {why}")]
    Kind {
        /// The map.
        name: String,
        /// What it would have to be.
        why: &'static str,
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
        match named.parse() {
            Ok(attachment) => Lines::of_attachment(attachment),
            Err(_) => {
                let (map, owner) = pinned(Path::new(named))?;
                Ok(Lines { owner, ..Lines::of(&map)? })
            }
        }
    }

    /// Opens the lines of a steering attachment.
    ///
    /// # Errors
    /// [`LinesError`].
    pub(super) fn of_attachment(attachment: u32) -> Result<Lines, LinesError> {
        let map = attached(attachment, LINES)?;
        Ok(Lines { owner: owner_of(attachment)?, ..Lines::of(&map)? })
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

    /// Returns the user whose threads the lines count for.
    pub(super) fn owner(&self) -> u32 {
        self.owner
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
        let at = self.executor_of(tid, hint)?;
        let work = self.view.half(at, line::CLASS).load(Relaxed);
        Some(work).filter(|&work| work != line::IDLE)
    }

    /// Returns the number of the executor that thread `tid` serves, if it has a line. `hint` as above.
    #[inline]
    pub(super) fn executor_of(&self, tid: u32, hint: &mut usize) -> Option<usize> {
        if !self.is_of(*hint, tid) {
            *hint = (0..self.view.len().min(line::MOST)).find(|&at| self.is_of(at, tid))?;
        }
        Some(*hint)
    }

    fn is_of(&self, at: usize, tid: u32) -> bool {
        at < self.view.len() && self.view.half(at, line::THREAD).load(Relaxed) == tid
    }
}

/// Opens a map that is pinned at `path`; returns it with the pin's owner.
pub(super) fn pinned(path: &Path) -> Result<(Map, u32), LinesError> {
    let map = Map::open(path).map_err(|source| LinesError::Open { path: path.into(), source })?;
    let owner = std::fs::metadata(path).map(|pin| pin.uid());
    Ok((map, owner.map_err(|source| LinesError::Owner { path: path.into(), source })?))
}

/// Opens the map `name` of an attachment.
pub(super) fn attached(attachment: u32, name: &str) -> Result<Map, LinesError> {
    let path = Path::new(PINS).join(attachment.to_string()).join(format!("map_{name}"));
    Map::open(&path).map_err(|source| LinesError::Open { path, source })
}

/// Returns the user to whom an attachment belongs.
fn owner_of(attachment: u32) -> Result<u32, LinesError> {
    #[derive(Deserialize)]
    struct Attachment {
        uid: u32,
    }
    let record = Path::new(RECORDS).join(format!("{attachment}.json"));
    let read = || Ok(serde_json::from_slice::<Attachment>(&std::fs::read(&record)?)?.uid);
    read().map_err(|source| LinesError::Owner { path: record.clone(), source })
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines({})", self.view.len())
    }
}
