//! What threads say of the work that they have in hand: the lines of executors (`heddle_core::line`).

use heddle_bpf::{Map, MapView};
use heddle_core::line;
use serde::Deserialize;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use thiserror::Error;

/// Where the maps of steering attachments are pinned, each in a folder with the attachment's number.
const PINS: &str = "/sys/fs/bpf/heddle";
/// Where attachments are written down, a file each, which says whose it is.
const RECORDS: &str = "/run/heddle";
/// The pin of an attachment's lines there.
const PIN: &str = "map_hd_lines";

/// Why there are no lines to read.
#[derive(Debug, Error)]
pub enum LinesError {
    /// The map cannot be opened.
    #[error("no class map at {}: {source} (`heddle steer ls` lists attachments; the map can also be given as a path)", path.display())]
    Open {
        /// Where it should be.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is not known whose threads the lines may speak for.
    #[error("whose lines {} has is not known: {source} (attach it anew, or give the map as a path)", path.display())]
    Owner {
        /// What should say so.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The map holds something else.
    #[error("map `{name}` is no class map: its values have {size} bytes, and lines 64")]
    Shape {
        /// The map.
        name: String,
        /// Bytes of its values.
        size: u32,
    },
    /// The map cannot be mapped into memory.
    #[error("map `{name}` cannot be read without system calls: {source}")]
    View {
        /// The map.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The lines of a steering attachment's executors, in this process's memory.
///
/// Reading takes no system call. A line names its thread by the number that the thread has in the agent's process-id
/// namespace, and no thread twice: where two lines name one, the first counts. Lines may change at any time; what is read is
/// what was stored a moment ago.
///
/// Their owner writes into them what he likes, so they speak only for his own threads; root's for all of the enclave.
pub struct Lines {
    view: MapView,
    owner: u32,
}

impl Lines {
    /// Those of `named`: the number of an attachment, or a path at which their map is pinned. Their owner is the attachment's, or the pin's.
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

    /// Those in `map`, whose descriptor may be closed afterwards. They are root's.
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

    /// Whether they speak for the threads of every process.
    pub(super) fn are_roots(&self) -> bool {
        self.owner == 0
    }

    /// Whether they speak for the threads of process `tgid`, as its user is now. Takes system calls.
    pub(super) fn speak_for(&self, tgid: u32) -> bool {
        self.are_roots() || user_of(tgid) == Some(self.owner)
    }

    /// Those in `view`, whose values are lines. They are root's.
    #[doc(hidden)]
    #[must_use]
    pub fn over(view: MapView) -> Lines {
        Lines { view, owner: 0 }
    }

    /// What thread `tid` works on now: a number from 1, which program and policy agree on. None where it has no line, or says
    /// that it does nothing. `hint` is where its line was last, and will be.
    ///
    /// A load while the hint is right; a load for each executor (64 at most) where it is not.
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

/// The real user of a process.
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
