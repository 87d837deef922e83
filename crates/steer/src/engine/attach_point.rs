//! Dispatches on where an attachment is: a group of sockets, or the packets of an interface below them.

use std::os::fd::OwnedFd;

use super::{Quota, State, Stored, TypedDescriptors, group, invalid, packets};
use crate::hook::Hook;
use crate::policy::{Maps, Object};
use crate::request::{Attachment, Error, ErrorKind, PacketTarget, Policy};

fn below(attachment: &Attachment) -> bool {
    attachment.hook != Hook::SocketSelect
}

/// Deploys `object`, using the maps that are in `maps` already.
pub fn attach(
    state: &State,
    quota: &Quota,
    attachment: Attachment,
    object: &Object,
    given: &TypedDescriptors,
    maps: Maps,
    below: Option<PacketTarget>,
) -> Result<Stored, Error> {
    let unsupported = |text| Err(Error::new(ErrorKind::Unsupported, text));
    match attachment.hook {
        Hook::SocketSelect => group::attach(state, attachment, object, given, maps),
        Hook::CpuRedirect | Hook::XdpDrv | Hook::XdpSkb => {
            let below = below.filter(|below| !below.interface.is_empty());
            let below =
                below.ok_or_else(|| invalid(format!("{} needs an interface", attachment.hook)))?;
            packets::attach(state, quota, attachment, object, given, maps, &below)
        }
        Hook::XdpOffload => unsupported(
            "no card here runs programs (`heddle doctor` tries it): xdp-drv and cpu-redirect do the \
             same on the host's CPUs",
        ),
        Hook::Stream => unsupported(
            "requests in streams are scheduled by the program that owns the connections \
             (StreamScheduler): there is nothing to attach from outside",
        ),
    }
}

/// Returns whether anything of an attachment is left.
///
/// # Errors
/// If this cannot be determined; `NotFound` if its pins are gone.
pub fn alive(state: &State, attachment: &Attachment) -> Result<bool, Error> {
    if below(attachment) {
        // The policy keeps its maps and programs as long as these.
        drop(state.program(attachment.id)?);
        return packets::alive(state, attachment);
    }
    group::alive(state, attachment)
}

/// Makes `fd` an executor of an existing attachment and returns its index.
pub fn add(
    state: &State,
    stored: &mut Stored,
    index: Option<u32>,
    label: String,
    fd: &OwnedFd,
) -> Result<u32, Error> {
    if below(&stored.attachment) {
        return Err(invalid("executors below sockets are given when the policy is attached"));
    }
    group::add(state, stored, index, label, fd)
}

/// Replaces the policy of an attachment; on failure the old one stays in force.
pub fn replace(
    state: &State,
    stored: Stored,
    policy: Policy,
    object: &Object,
) -> Result<(), Error> {
    if below(&stored.attachment) {
        return packets::replace(state, stored, policy, object);
    }
    group::replace(state, stored, policy, object)
}

/// Removes the policy: the kernel decides.
pub fn evict(state: &State, stored: &Stored) -> Result<(), Error> {
    if below(&stored.attachment) { packets::evict(state, stored) } else { group::evict(stored) }
}

/// Removes everything the kernel has of an attachment.
pub fn detach(state: &State, stored: &Stored, sockets: &[OwnedFd]) -> Result<(), Error> {
    if below(&stored.attachment) {
        packets::leave(state, stored)
    } else {
        group::detach(stored, sockets)
    }
}
