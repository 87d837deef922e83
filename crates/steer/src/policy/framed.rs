//! A policy in the frame of a hook, after the kernel has verified it under the rules for unprivileged users.
//!
//! The verifier lets a process with `CAP_PERFMON` load programs that write kernel addresses into their maps
//! and read uninitialised stack. Heddle's frames need that capability: they find headers in packets, and read
//! sockets. But a policy can be another user's. So it is verified twice: first in a frame that only calls it,
//! with a stub for the observer that may return anything, by a thread that has dropped the capability
//! ([`verify_strictly`]); then in the frame of its hook. What the first pass proves holds in any frame, since
//! all a policy sees of its frame is a pointer to the input, whose content is unknown to the verifier, and
//! the answers. Only the verifier's barriers against speculation are lost, which it omits for those who may
//! read memory anyway; so in the second pass, too, the capability is dropped unless the frame reads kernel
//! memory ([`load_least`]).

use std::os::fd::{AsFd as _, AsRawFd as _};

use heddle_bpf::{Fentry, Program, ProgramKind};

use super::instruction::CALL;
use super::link::{Image, LinkError, link};
use super::load::{LoadError, Maps, load, load_distrusted};
use super::object::Object;
use super::shipped::frame;

/// Links `policy` into the frame for the first verification.
///
/// # Errors
/// See [`LinkError`].
pub fn strict_image(policy: &Object) -> Result<Image, LinkError> {
    link(&[&frame("strict"), &frame("common"), &frame("observe_stub"), policy])
}

/// Has the kernel verify `policy` by the rules for unprivileged users. Creates its maps as well, so that they
/// too have the kernel's protection against speculation.
///
/// # Errors
/// Those of linking and loading; a violation by the policy is a refusal.
pub fn verify_strictly(policy: &Object, maps: &mut Maps) -> Result<(), LoadError> {
    load_distrusted("hd_strict", ProgramKind::SkReuseport, &strict_image(policy)?, maps).map(drop)
}

/// The map that a `pick_next` shares with the programs of agents.
const PICKS: &str = "hd_picks";

/// Links a `pick_next` into its frame, which only calls it.
pub(super) fn pick_next_image(code: &Object) -> Result<Image, LinkError> {
    link(&[&frame("pick_next"), code])
}

/// Has the kernel verify a `pick_next` by the rules for unprivileged users, and creates its maps. The result is for
/// agents, whose enclaves it runs in.
///
/// # Errors
/// As [`verify_strictly`].
pub(super) fn load_pick_next(code: &Object) -> Result<Fentry, LoadError> {
    let image = pick_next_image(code)?;
    let mut maps = Maps::new();
    load_distrusted("hd_pick_next", ProgramKind::SkReuseport, &image, &mut maps)?;
    maps.remove(PICKS);
    // Another map takes the place of the removed one.
    let fd = |name: &str| match name {
        PICKS => Some(0),
        _ => maps.get(name).map(|map| map.as_fd().as_raw_fd()),
    };
    let instructions = image.with_maps(fd)?;
    let shared = image.map_uses.iter().filter(|used| used.map == PICKS).map(|used| used.at);
    Ok(Fentry {
        name: "hd_pick_next".into(),
        instructions,
        shared: shared.collect(),
        maps: maps.into_values().collect(),
    })
}

/// Links `policy` into the frame `hook` (a file of `bpf/steer/hooks`), verifies it twice and loads it;
/// `prepare` may add maps that Heddle fills in.
///
/// # Errors
/// Those of linking and loading.
pub fn load_framed(
    name: &str,
    kind: ProgramKind,
    hook: &str,
    policy: &Object,
    maps: &mut Maps,
    prepare: impl Fn(&Image, &mut Maps) -> Result<(), LoadError>,
) -> Result<Program, LoadError> {
    let image = link(&[&frame(hook), &frame("common"), &frame("observe"), policy])?;
    verify_strictly(policy, maps)?;
    prepare(&image, maps)?;
    load_least(name, kind, &image, maps)
}

/// Loads a policy in its frame with the least trust that works. Unless the frame reads kernel memory, the
/// verifier treats the program as unprivileged and adds its barriers against speculation.
///
/// # Errors
/// As [`load`].
pub fn load_least(
    name: &str,
    kind: ProgramKind,
    image: &Image,
    maps: &mut Maps,
) -> Result<Program, LoadError> {
    if reads_kernel(image) {
        load(name, kind, image, maps)
    } else {
        load_distrusted(name, kind, image, maps)
    }
}

/// Returns whether a program reads kernel memory, for which Heddle's frames use a single helper.
fn reads_kernel(image: &Image) -> bool {
    /// `BPF_FUNC_probe_read_kernel`
    const READ_KERNEL: u64 = 113;
    let calls = |word: &u64| word & 0xffff == u64::from(CALL) && word >> 32 == READ_KERNEL;
    image.instructions.iter().any(calls)
}
