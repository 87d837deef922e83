//! From a linked image to a program in the kernel, with its maps.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use heddle_bpf::{Map, MapKind, MapSpec, Program, ProgramFunction, ProgramKind, ProgramSpec};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::link::{Image, LinkError};
use super::object::{DeclKind, MapDecl};

/// Maps by name. A program linked later reuses the existing ones.
pub type Maps = BTreeMap<String, Map>;

/// Why an image could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A map.
    #[error("cannot make map `{name}`: {error}")]
    Map {
        /// Which.
        name: String,
        /// Why: `EPERM` without privilege, `ENOMEM` and `E2BIG` if it is too large.
        error: io::Error,
    },
    /// The thread's capabilities.
    #[error("cannot give up capabilities for loading: {0}")]
    Privileges(io::Error),
    /// The program is inconsistent.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The kernel's verifier.
    #[error(transparent)]
    Refused(#[from] heddle_bpf::LoadError),
}

/// Loads `image`, reusing those of `maps` whose name and shape match, and creating the others and those for
/// its variables. A policy must have passed [`super::verify_strictly`] before.
///
/// # Errors
/// See [`LoadError`]. Maps that were created stay in `maps`.
pub fn load(
    name: &str,
    kind: ProgramKind,
    image: &Image,
    maps: &mut Maps,
) -> Result<Program, LoadError> {
    for decl in &image.maps {
        let there = maps.get(&decl.name).is_some_and(|map| fits(decl, map.spec()));
        if is_own(decl) || !there {
            let map =
                create(decl).map_err(|error| LoadError::Map { name: decl.name.clone(), error })?;
            maps.insert(decl.name.clone(), map);
        }
    }
    let instructions = image.with_maps(|name| maps.get(name).map(|map| map.as_fd().as_raw_fd()))?;
    let functions = functions(image);
    let functions = functions.as_slice();
    Ok(Program::load(&ProgramSpec { name, kind, instructions: &instructions, functions })?)
}

/// Heddle's functions that policies and frames call in loops over executors: verified once, not in each round.
const VERIFIED_ALONE: [&str; 3] = ["hd_idle", "hd_qlen", "hd_group_size"];

fn functions(image: &Image) -> Vec<ProgramFunction<'_>> {
    let function = |(at, name): &'_ (usize, String)| {
        let alone = VERIFIED_ALONE.iter().find(|alone| *alone == name).copied();
        ProgramFunction { at: u32::try_from(*at).unwrap_or(u32::MAX), alone }
    };
    image.functions.iter().map(function).collect()
}

/// Loads `image` by the rules for those who may not read kernel memory, whatever this process's privileges.
pub(super) fn load_distrusted(
    name: &str,
    kind: ProgramKind,
    image: &Image,
    maps: &mut Maps,
) -> Result<Program, LoadError> {
    let _distrust = Distrust::new().map_err(LoadError::Privileges)?;
    load(name, kind, image, maps)
}

/// This thread without the capabilities that make the verifier trust a program; restored on drop.
struct Distrust(Option<CapabilitySets>);

impl Distrust {
    fn new() -> io::Result<Self> {
        let before = capabilities(None)?;
        let trusted = CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
        if !before.effective.intersects(trusted) {
            return Ok(Self(None));
        }
        let effective = before.effective.difference(trusted);
        set_capabilities(None, CapabilitySets { effective, ..before })?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Distrust {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // It cannot fail: the restored capabilities are still permitted.
            let _ = set_capabilities(None, before);
        }
    }
}

/// Heddle's values for running policies: they may change, but the policies cannot change them.
const CONTROL: &str = "hd_control";

/// Variables, constants and parameters belong to one deployment of a policy; another's sections of the same
/// size must not be mistaken for them. Maps are kept, and so is what Heddle prepares.
fn is_own(decl: &MapDecl) -> bool {
    decl.is_data() && !decl.name.starts_with("hd_")
}

pub(super) fn spec(decl: &MapDecl) -> MapSpec {
    let (kind, read_only) = match decl.kind {
        DeclKind::Array => (MapKind::Array, false),
        DeclKind::Hash => (MapKind::Hash, false),
        DeclKind::PerCpu => (MapKind::PerCpuArray, false),
        DeclKind::Programs => (MapKind::Programs, false),
        DeclKind::Reuseport => (MapKind::ReuseportSockets, false),
        DeclKind::Cpus => (MapKind::Cpus, false),
        DeclKind::Xsks => (MapKind::XdpSockets, false),
        DeclKind::Sockets => (MapKind::Sockets, false),
        DeclKind::Lru => (MapKind::LruHash, false),
        DeclKind::Growing => (MapKind::GrowingHash, false),
        DeclKind::Prefixes => (MapKind::Prefixes, false),
        DeclKind::SocketsByKey => (MapKind::SocketHash, false),
        DeclKind::Data { constant, .. } => (MapKind::Array, constant || decl.name == CONTROL),
    };
    let (key_size, value_size, entries) = (decl.key_size, decl.value_size, decl.entries);
    MapSpec { name: decl.name.clone(), kind, key_size, value_size, entries, read_only }
}

/// Creates a map.
pub(crate) fn create(decl: &MapDecl) -> io::Result<Map> {
    let map = Map::create(&spec(decl))?;
    if let DeclKind::Data { bytes, constant } = &decl.kind {
        if bytes.iter().any(|byte| *byte != 0) {
            map.update(&0_u32.to_ne_bytes(), bytes)?;
        }
        if *constant {
            map.freeze()?;
        }
    }
    Ok(map)
}

/// Returns whether a map has the shape that a policy declares.
pub(crate) fn declared(decl: &MapDecl, map: &MapSpec) -> bool {
    same_shape(&spec(decl), map)
}

/// Heddle's maps with a value for each executor. How many they have room for is decided when an attachment is made;
/// its programs, and those that replace them, take them as they are.
const PER_EXECUTOR: [&str; 4] = ["hd_executor", "hd_counts", "hd_lines", "hd_sockets"];
/// How many that is, for programs.
const ROOM: &str = "hd_room_constants";

fn fits(decl: &MapDecl, map: &MapSpec) -> bool {
    let mut wanted = spec(decl);
    if PER_EXECUTOR.contains(&decl.name.as_str()) {
        wanted.entries = map.entries;
    }
    same_shape(&wanted, map)
}

/// Returns Heddle's declaration `decl`, which is for [`FEW_EXECUTORS`], for an attachment with room for `executors`.
pub(crate) fn with_room(decl: &MapDecl, executors: u32) -> MapDecl {
    let mut decl = decl.clone();
    if PER_EXECUTOR.contains(&decl.name.as_str()) {
        decl.entries = decl.entries - FEW_EXECUTORS + executors;
    }
    if decl.name == ROOM {
        let bytes = executors.to_ne_bytes().to_vec();
        decl.kind = DeclKind::Data { bytes, constant: true };
    }
    decl
}

/// The executors that Heddle's maps are declared for, and the most of packets, lanes and streams: `HD_FEW`.
pub(crate) const FEW_EXECUTORS: u32 = 64;

/// The kernel keeps fewer characters of a name than are allowed here.
fn same_shape(a: &MapSpec, b: &MapSpec) -> bool {
    let shape = |s: &MapSpec| (s.kind, s.key_size, s.value_size, s.entries, s.read_only);
    shape(a) == shape(b)
}
