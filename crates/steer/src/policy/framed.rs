//! A policy in the frame of a hook, after the kernel has verified it under the rules for those who may not read its
//! memory.
//!
//! The verifier lets a process with `CAP_PERFMON` load programs that write the kernel's addresses into their maps and
//! read stack that nobody has written. Heddle's frames cannot do without it: they find headers in packets, and look at
//! sockets. A policy can be a stranger's. So it is verified twice: first in a frame that does nothing but call it, with
//! a stub in the observer's place that answers anything at all, by a thread that has given the capability up
//! ([`verify_strictly`]); then in the frame of its hook. What the first proves holds in any frame, for a policy sees
//! nothing of its frame but a pointer to the input, of whose content the verifier knows nothing, and the answers. Only
//! the verifier's barriers against speculation, which it leaves out for those who may read memory anyway, are lost; so
//! the second time, too, the capability is given up unless the frame reads the kernel's memory ([`load_least`]).

use heddle_bpf::{Program, ProgramKind};

use super::instruction::CALL;
use super::link::{Image, LinkError, link};
use super::load::{LoadError, Maps, load, load_distrusted};
use super::object::Object;
use super::shipped::frame;

/// `policy` in the frame that the first verification is about.
///
/// # Errors
/// See [`LinkError`].
pub fn strict_image(policy: &Object) -> Result<Image, LinkError> {
    link(&[&frame("strict"), &frame("common"), &frame("observe_stub"), policy])
}

/// Has the kernel verify `policy` by the rules for strangers. Its maps are made on the way, so that they too have what
/// the kernel does against speculation.
///
/// # Errors
/// Those of linking and loading; what the policy may not do is a refusal.
pub fn verify_strictly(policy: &Object, maps: &mut Maps) -> Result<(), LoadError> {
    load_distrusted("hd_strict", ProgramKind::SkReuseport, &strict_image(policy)?, maps).map(drop)
}

/// Links `policy` into the frame `hook` (a file of `bpf/steer/hooks`), has it verified twice and loads it; `prepare` may
/// add maps that Heddle fills in.
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

/// Loads a policy in its frame with no more trust than that takes. Unless the frame reads the kernel's memory, the verifier
/// treats the program as a stranger's and puts its barriers against speculation into it.
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

/// Whether a program reads the kernel's memory: with the one helper that Heddle's frames have for it.
fn reads_kernel(image: &Image) -> bool {
    /// `BPF_FUNC_probe_read_kernel`
    const READ_KERNEL: u64 = 113;
    let calls = |word: &u64| word & 0xffff == u64::from(CALL) && word >> 32 == READ_KERNEL;
    image.instructions.iter().any(calls)
}
