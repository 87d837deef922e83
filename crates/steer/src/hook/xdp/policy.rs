//! Policies at XDP: loading them, and the slots that the root jumps to.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::AsFd as _;

use heddle_bpf::{Map, MapKind, MapSpec, Program, ProgramKind};

use super::{EXECUTORS, Mode, claims, map};
use crate::policy::{
    Image, LinkError, LoadError, Maps, Object, frame, link, load, verify_strictly,
};

/// The map of `bpf/steer/hooks/xdp_root.c` with the policies.
const SLOTS: &str = "hd_slots";
/// The maximum number of policies per interface.
pub const MAX_SLOTS: u32 = 64;
/// The seed of the flow hash.
const SEED: &str = "hd_seed_constants";
/// What only sockets have.
const OF_SOCKETS: [&str; 2] = ["hd_idle", "hd_qlen"];

/// The kind of a policy's executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executors {
    /// CPUs that carry packets through the network stack: CPU Redirect.
    Cpus,
    /// AF_XDP sockets of programs in user space: XDP_DRV and XDP_SKB, by the mode of the root.
    Sockets,
}

impl Executors {
    fn frame(self) -> &'static str {
        match self {
            Self::Cpus => "xdp_cpu",
            Self::Sockets => "xdp_xsk",
        }
    }
}

/// Why a policy cannot be loaded for this hook.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// CPUs, with the root in generic mode. There, kernels copy a packet that has little headroom, forget the
    /// length of its Ethernet header, and hand it to the CPU with that header where IP's should be, so that
    /// IP drops it (measured on 6.18: every packet of a veth pair).
    #[error(
        "packets can be redirected to CPUs by the driver only, and this one's runs no XDP programs: \
         kernels damage packets that are redirected to CPUs in generic mode; socket-select works on \
         every interface"
    )]
    GenericCpus,
    /// Linking and loading. A policy that reads socket queues (JIQ) is refused: packets have not reached a
    /// socket yet.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Loads `policy` for a root in `mode`. `maps` are the policy's own, not the root's.
///
/// # Errors
/// See [`PolicyError`].
pub fn load_policy(
    name: &str,
    (executors, mode): (Executors, Mode),
    policy: &Object,
    maps: &mut Maps,
) -> Result<Program, PolicyError> {
    if (executors, mode) == (Executors::Cpus, Mode::Generic) {
        return Err(PolicyError::GenericCpus);
    }
    Ok(load_frame(name, executors, policy, maps)?)
}

fn load_frame(
    name: &str,
    executors: Executors,
    policy: &Object,
    maps: &mut Maps,
) -> Result<Program, LoadError> {
    let mut image = framed(executors.frame(), policy)?;
    if executors == Executors::Cpus {
        size_by_cpus(&mut image)?;
    }
    verify_strictly(policy, maps)?;
    seed(maps)?;
    load(name, ProgramKind::Xdp, &image, maps)
}

/// Links `policy` into a frame that has no sockets to look at.
pub(crate) fn framed(hook: &str, policy: &Object) -> Result<Image, LinkError> {
    link(&[&frame(hook), &frame("common"), policy]).map_err(|error| match error {
        LinkError::Undefined { name, .. } if OF_SOCKETS.contains(&name.as_str()) => {
            LinkError::NoSockets(name)
        }
        error => error,
    })
}

/// The kernel creates no map for more CPUs than it was built for.
fn size_by_cpus(image: &mut Image) -> Result<(), LoadError> {
    let cpus = super::executors::possible_cpus()
        .map_err(|error| LoadError::Map { name: EXECUTORS.into(), error })?;
    for map in image.maps.iter_mut().filter(|map| map.name == EXECUTORS) {
        map.entries = cpus;
    }
    Ok(())
}

/// Flows keep their hash when the policy is replaced, and no outsider knows it.
pub(crate) fn seed(maps: &mut Maps) -> Result<(), LoadError> {
    if maps.contains_key(SEED) {
        return Ok(());
    }
    put_constants(maps, SEED, &RandomState::new().hash_one(SEED).to_ne_bytes())
}

/// Sets the constants of a frame before it is loaded: the verifier knows them then.
pub(crate) fn put_constants(maps: &mut Maps, name: &str, bytes: &[u8]) -> Result<(), LoadError> {
    let spec = MapSpec {
        name: name.into(),
        kind: MapKind::Array,
        key_size: 4,
        value_size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        entries: 1,
        read_only: true,
    };
    let create = || {
        let map = Map::create(&spec)?;
        map.update(&0_u32.to_ne_bytes(), bytes)?;
        map.freeze().map(|()| map)
    };
    let map = create().map_err(|error| LoadError::Map { name: name.into(), error })?;
    maps.insert(name.into(), map);
    Ok(())
}

/// Makes `program` the policy of `slot` of the root of `maps`.
///
/// # Errors
/// The kernel's.
pub fn put_policy(maps: &Maps, slot: u32, program: &Program) -> io::Result<()> {
    map(maps, SLOTS)?.put_fd(slot, program.as_fd())
}

/// Empties `slot`: its packets pass. Returns whether there was a policy.
///
/// # Errors
/// The kernel's.
pub fn take_policy(maps: &Maps, slot: u32) -> io::Result<bool> {
    map(maps, SLOTS)?.remove(&slot.to_ne_bytes())
}

/// Returns a slot without policy and claims that is not in `taken`; `None` if there is none.
///
/// # Errors
/// The kernel's.
pub fn free_slot(maps: &Maps, taken: &[u32]) -> io::Result<Option<u32>> {
    let claimed = claims(maps)?;
    let slots = map(maps, SLOTS)?;
    for slot in (0..MAX_SLOTS)
        .filter(|slot| !taken.contains(slot) && claimed.iter().all(|(_, of)| of != slot))
    {
        if slots.lookup(&slot.to_ne_bytes())?.is_none() {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}
