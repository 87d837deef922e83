//! A policy in the frame of a hook, after the kernel has verified it under the rules for those who may not read its
//! memory.
//!
//! The verifier lets a process with `CAP_PERFMON` load programs that write the kernel's addresses into their maps and
//! read stack that nobody has written. Heddle's frames cannot do without it: they find headers in packets, and look at
//! sockets. A policy can be a stranger's. So it is verified twice: first in a frame that does nothing but call it, with
//! a stub in the observer's place that answers anything at all, by a thread that has given the capability up
//! ([`verify_strictly`]); then in the frame of its hook. What the first proves holds in any frame, for a policy sees
//! nothing of its frame but a pointer to the input, of whose content the verifier knows nothing, and the answers. Only
//! the verifier's barriers against speculation, which it leaves out for those who may read memory anyway, are lost.

use heddle_sys::bpf::{Program, ProgramKind};

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
    load(name, kind, &image, maps)
}
