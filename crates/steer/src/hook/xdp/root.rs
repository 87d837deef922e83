//! The root program of an interface: attaching, pinning and recovering it.

use std::fs;
use std::io;
use std::path::Path;

use heddle_bpf::{Link, Map, Program, ProgramKind, xdp_programs};
use rustix::io::Errno;

use super::{Interface, Mode};
use crate::policy::{LoadError, Maps, frame, link, load};

/// The pins of a root.
const LINK: &str = "link";
const PROGRAM: &str = "program";
const MAP: &str = "map_";

/// Why an interface does not accept Heddle's root program.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It has another program: an interface takes one, in one mode.
    #[error(
        "{interface} has an XDP program already: `{name}` (id {id}, {mode} mode), and takes one; end \
         what put it there, or take it off with `ip link set dev {interface} {off} off`"
    )]
    Taken {
        /// The interface.
        interface: String,
        /// The kernel's id of the program.
        id: u32,
        /// Its name.
        name: String,
        /// Its mode.
        mode: Mode,
        /// What `ip link` calls that mode.
        off: &'static str,
    },
    /// Its driver runs no programs.
    #[error("the driver of {interface} runs no XDP programs ({error}): {} mode works", mode.other())]
    Unsupported {
        /// The interface.
        interface: String,
        /// The mode that was tried.
        mode: Mode,
        /// What the kernel said.
        error: io::Error,
    },
    /// The driver does not support it with these settings.
    #[error(
        "the driver of {interface} runs XDP programs, but not with its present settings ({error}): a \
         smaller MTU, as many receive queues as the peer or the machine has CPUs to send, or no LRO \
         (`ethtool -K {interface} lro off`); generic mode works as it is"
    )]
    Settings {
        /// The interface.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The caller lacks the privilege.
    #[error(
        "attaching to {interface} takes CAP_NET_ADMIN and CAP_BPF (or root, or heddled): {error}"
    )]
    Denied {
        /// The interface.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The program does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Another failure.
    #[error("cannot attach to {interface}: {error}")]
    System {
        /// The interface.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Heddle's program on an interface.
#[derive(Debug)]
pub struct Root {
    /// The program.
    pub program: Program,
    /// Its maps: the claims and the slots.
    pub maps: Maps,
    link: Link,
}

impl Root {
    /// Attaches a root to `interface`: in `mode`, or else in the driver if it supports XDP, otherwise in
    /// generic mode. It stays as long as the result or a pin of it does.
    ///
    /// # Errors
    /// See [`AttachError`]. Nothing is left behind.
    pub fn attach(interface: &Interface, mode: Option<Mode>) -> Result<Self, AttachError> {
        let mut maps = Maps::new();
        let image = link(&[&frame("xdp_root")]).map_err(LoadError::from)?;
        let program = load("hd_root", ProgramKind::Xdp, &image, &mut maps)?;
        let (link, _) = attach(interface, &program, mode)?;
        Ok(Self { program, maps, link })
    }

    /// Pins it in `folder`, on a BPF file system, so that it outlives this process.
    ///
    /// # Errors
    /// The file system's; pins made until then are removed.
    pub fn pin(&self, folder: &Path) -> io::Result<()> {
        let pin_all = || {
            for (name, map) in &self.maps {
                map.pin(&folder.join(format!("{MAP}{name}")))?;
            }
            self.program.pin(&folder.join(PROGRAM))?;
            // Last, so that a process that finds the link finds the rest.
            self.link.pin(&folder.join(LINK))
        };
        fs::create_dir_all(folder)?;
        pin_all().inspect_err(|_| {
            let _ = Self::unpin(folder);
        })
    }

    /// Recovers it from `folder`. `None` if there is none, or its interface is gone; then the pins are
    /// removed too.
    ///
    /// # Errors
    /// If pins exist and cannot be opened.
    pub fn open(folder: &Path) -> io::Result<Option<Self>> {
        let link = match Link::open(&folder.join(LINK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            link => link?,
        };
        if link.interface()? == 0 {
            return Self::unpin(folder).map(|()| None);
        }
        let mut maps = Maps::new();
        for entry in fs::read_dir(folder)?.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            if let Some(name) = file.strip_prefix(MAP) {
                maps.insert(name.into(), Map::open(&entry.path())?);
            }
        }
        let program = Program::open(&folder.join(PROGRAM))?;
        Ok(Some(Self { program, maps, link }))
    }

    /// Removes the pins in `folder`: the program is detached once its last [`Root`] is dropped.
    ///
    /// # Errors
    /// The file system's; missing pins are no error.
    pub fn unpin(folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            fs::remove_file(entry.path())?;
        }
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Detaches the program from the interface now, even if others still hold it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn detach(&self) -> io::Result<()> {
        self.link.detach()
    }

    /// Returns the mode in which it runs on `interface`; `None` if it is not there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn mode(&self, interface: &Interface) -> io::Result<Option<Mode>> {
        let id = self.program.info()?.id;
        let there = interface.run(|| xdp_programs(interface.index()))?;
        let at = |found: Option<u32>, mode| (found == Some(id)).then_some(mode);
        Ok(at(there.native, Mode::Native).or_else(|| at(there.generic, Mode::Generic)))
    }
}

/// Attaches `program` to `interface`: in `mode`, or else in the driver if it supports XDP, otherwise in generic
/// mode. Returns the mode it runs in.
pub(crate) fn attach(
    interface: &Interface,
    program: &Program,
    mode: Option<Mode>,
) -> Result<(Link, Mode), AttachError> {
    let first = mode.unwrap_or(Mode::Native);
    match put(interface, program, first) {
        Err(AttachError::Unsupported { .. } | AttachError::Settings { .. }) if mode.is_none() => {
            put(interface, program, Mode::Generic).map(|link| (link, Mode::Generic))
        }
        result => result.map(|link| (link, first)),
    }
}

fn put(interface: &Interface, program: &Program, mode: Mode) -> Result<Link, AttachError> {
    let attached = interface.run(|| Link::xdp(program, interface.index(), mode == Mode::Native));
    attached.map_err(|error| explain(interface, mode, error))
}

fn explain(interface: &Interface, mode: Mode, error: io::Error) -> AttachError {
    let name = interface.name().to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::BUSY | Errno::EXIST) => {
            taken(interface).unwrap_or(AttachError::System { interface: name, error })
        }
        Some(Errno::OPNOTSUPP) => AttachError::Unsupported { interface: name, mode, error },
        Some(Errno::PERM | Errno::ACCESS) => AttachError::Denied { interface: name, error },
        // Drivers' errors for long packets, too few queues and merged packets.
        Some(Errno::RANGE | Errno::NOSPC | Errno::INVAL | Errno::TOOBIG)
            if mode == Mode::Native =>
        {
            AttachError::Settings { interface: name, error }
        }
        _ => AttachError::System { interface: name, error },
    }
}

/// Returns the program on the interface.
fn taken(interface: &Interface) -> Option<AttachError> {
    let there = interface.run(|| xdp_programs(interface.index())).ok()?;
    let native = there.native.map(|id| (id, Mode::Native, "xdpdrv"));
    let (id, mode, off) = native.or(there.generic.map(|id| (id, Mode::Generic, "xdpgeneric")))?;
    let info = Program::by_id(id).and_then(|program| program.info());
    let name = info.map_or_else(|_| "unknown".into(), |info| info.name);
    Some(AttachError::Taken { interface: interface.name().into(), id, name, mode, off })
}
