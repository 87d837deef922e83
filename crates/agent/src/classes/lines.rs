//! What threads say of the work that they have in hand: the lines of executors (`heddle_core::line`).

use heddle_core::line;
use heddle_sys::bpf::{Map, MapView};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use thiserror::Error;

/// Where the maps of steering attachments are pinned, each in a folder with the attachment's number.
const PINS: &str = "/sys/fs/bpf/heddle";
/// The pin of an attachment's lines there.
const PIN: &str = "map_hd_lines";

/// Why there are no lines to read.
#[derive(Debug, Error)]
pub enum LinesError {
    /// The map cannot be opened.
    #[error("no class map at {}: {source} (`heddle ls` lists attachments; the map can also be given as a path)", path.display())]
    Open {
        /// Where it should be.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
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
        source: std::io::Error,
    },
}

/// The lines of a steering attachment's executors, in this process's memory.
///
/// Reading takes no system call. A line names its thread by the number that the thread has in the agent's process-id
/// namespace, and no thread twice: where two lines name one, the first counts. Lines may change at any time; what is read is
/// what was stored a moment ago.
pub struct Lines(MapView);

impl Lines {
    /// Those of `named`: the number of an attachment, or a path at which their map is pinned.
    ///
    /// # Errors
    /// [`LinesError`].
    pub fn open(named: &str) -> Result<Lines, LinesError> {
        let path = match named.parse::<u32>() {
            Ok(_) => Path::new(PINS).join(named).join(PIN),
            Err(_) => named.into(),
        };
        let map = Map::open(&path).map_err(|source| LinesError::Open { path, source })?;
        Lines::of(&map)
    }

    /// Those in `map`, whose descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`LinesError::Shape`], [`LinesError::View`].
    pub fn of(map: &Map) -> Result<Lines, LinesError> {
        let spec = map.spec();
        let (name, size) = (spec.name.clone(), spec.value_size);
        if size != line::BYTES {
            return Err(LinesError::Shape { name, size });
        }
        MapView::new(map).map(Lines).map_err(|source| LinesError::View { name, source })
    }

    /// What thread `tid` works on now: a number from 1, which program and policy agree on. None where it has no line, or says
    /// that it does nothing. `hint` is where its line was last, and will be.
    ///
    /// A load while the hint is right; a load for each executor (64 at most) where it is not.
    #[inline]
    pub fn work_of(&self, tid: u32, hint: &mut usize) -> Option<u32> {
        if !self.is_of(*hint, tid) {
            *hint = (0..self.0.len().min(line::MOST)).find(|&at| self.is_of(at, tid))?;
        }
        let work = self.0.half(*hint, line::CLASS).load(Relaxed);
        Some(work).filter(|&work| work != line::IDLE)
    }

    fn is_of(&self, at: usize, tid: u32) -> bool {
        at < self.0.len() && self.0.half(at, line::THREAD).load(Relaxed) == tid
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines({})", self.0.len())
    }
}
