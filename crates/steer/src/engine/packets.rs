//! Attachments below sockets: the packets of a port, as they arrive at an interface. Ownership of ports:
//! [`super::claims`].

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use heddle_bpf::Program;

use super::claims::Claims;
use super::group::{MAX_EXECUTORS, failed_load, keep_common, set_executors};
use super::quota::{Quota, of_policy};
use super::{State, Stored, TypedDescriptors, invalid};
use crate::hook::Hook;
use crate::hook::xdp::{self, Executors, Interface, Mode, PolicyError, Root};
use crate::policy::{Maps, Object};
use crate::request::{Attachment, Error, ErrorKind, PacketTarget, Policy, Role, Slot, Status};

/// Maximum packets waiting for a CPU.
const CPU_QUEUE: u32 = 2048;

/// Returns what the executors of a hook are, and how its root is attached. Only from the driver can packets
/// go to other CPUs.
fn means(hook: Hook) -> (Executors, Mode) {
    match hook {
        Hook::CpuRedirect => (Executors::Cpus, Mode::Native),
        Hook::XdpSkb => (Executors::Sockets, Mode::Generic),
        _ => (Executors::Sockets, Mode::Native),
    }
}

fn failed_policy(error: &PolicyError) -> Error {
    match error {
        PolicyError::Load(error) => failed_load(error),
        PolicyError::GenericCpus => Error::new(ErrorKind::Unsupported, error.to_string()),
    }
}

/// Deploys `object` to the packets of the ports that the sockets in `given` are bound to.
pub fn attach(
    state: &State,
    quota: &Quota,
    mut attachment: Attachment,
    object: &Object,
    given: &TypedDescriptors,
    mut maps: Maps,
    below: &PacketTarget,
) -> Result<Stored, Error> {
    let uid = attachment.uid;
    quota.check_interface(uid, &below.interface)?;
    let claims = Claims::take(quota, given, &below.interface, uid)?;
    let interface = &claims.interface;
    let first = claims.first;
    attachment.address = first.address.to_string();
    attachment.protocol = first.protocol.to_string();
    let hook = attachment.hook;
    let means = means(hook);
    let program = xdp::load_policy(&attachment.policy, means, object, &mut maps)
        .map_err(|error| failed_policy(&error))?;
    attachment.executors = executors(&maps, hook, given, below)?;
    let count = u32::try_from(attachment.executors.len()).unwrap_or(MAX_EXECUTORS);
    set_executors(&maps, count)?;

    let key = interface.key().map_err(|error| failed("cannot name", interface, &error))?;
    let root = root(state, &key, interface, means, uid)?;
    let number = free_slot(state, quota, &claims, &root, &key, uid)?;
    attachment.slot = Some(Slot { root: key, number });
    let fd = root.program.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|error| Error::system("cannot copy a descriptor", &error))?;
    attachment.map_bytes = of_policy(&maps);
    let stored = Stored { attachment, root: Program::from_fd(fd), maps };
    enter(state, &stored, &root, &program, &claims).inspect_err(|_| {
        // The error says what is wrong; nothing left behind decides anything (I1).
        let _ = leave(state, &stored);
        let _ = state.remove(stored.attachment.id);
    })?;
    Ok(stored)
}

/// Returns a slot for one more attachment of user `uid`, if the quota permits.
fn free_slot(
    state: &State,
    quota: &Quota,
    claims: &Claims<'_>,
    root: &Root,
    key: &str,
    uid: u32,
) -> Result<u32, Error> {
    let interface = &claims.interface;
    let asked = |error: io::Error| failed("cannot ask", interface, &error);
    let there = xdp::claims(&root.maps).map_err(asked)?;
    // A slot belongs to its attachment while that is recorded, even if empty: it may have been evicted.
    let (mut taken, mut slots) = (Vec::new(), Vec::new());
    for attachment in state.list()? {
        let Some(slot) = attachment.slot.filter(|slot| slot.root == key) else { continue };
        taken.push(slot.number);
        if attachment.uid == uid {
            slots.push(slot.number);
        }
    }
    let own = there.iter().filter(|(_, slot)| slots.contains(slot)).count();
    quota.check_slots(uid, interface.name(), slots.len(), own + claims.len())?;
    let full = || {
        Error::new(
            ErrorKind::Busy,
            format!("{} has {} policies already", interface.name(), xdp::MAX_SLOTS),
        )
    };
    xdp::free_slot(&root.maps, &taken).map_err(asked)?.ok_or_else(full)
}

/// The moment at which the policy begins to receive packets.
fn enter(
    state: &State,
    stored: &Stored,
    root: &Root,
    program: &Program,
    claims: &Claims<'_>,
) -> Result<(), Error> {
    state.keep(stored)?;
    let number = slot(stored)?.number;
    xdp::put_policy(&root.maps, number, program)
        .map_err(|error| Error::system("cannot put the policy in place", &error))?;
    claims.put(root, number, stored.attachment.uid)
}

fn failed(what: &str, interface: &Interface, error: &io::Error) -> Error {
    Error::system(format!("{what} interface {}", interface.name()), error)
}

fn slot(stored: &Stored) -> Result<&Slot, Error> {
    stored
        .attachment
        .slot
        .as_ref()
        .ok_or_else(|| invalid("an attachment below sockets without its slot"))
}

/// Installs the executors and returns their labels.
fn executors(
    maps: &Maps,
    hook: Hook,
    given: &TypedDescriptors,
    below: &PacketTarget,
) -> Result<Vec<String>, Error> {
    if hook == Hook::CpuRedirect {
        return cpus(maps, below);
    }
    let mut labels = Vec::new();
    for (role, socket) in given {
        let Role::XdpSocket { index, queue, label } = role else { continue };
        xdp::put_socket(maps, *index, *queue, socket.as_fd()).map_err(|error| {
            Error::system(format!("{label} cannot be executor {index}"), &error)
        })?;
        let at = *index as usize;
        if labels.len() <= at {
            labels.resize(at + 1, String::new());
        }
        labels[at] = super::clean(label);
    }
    if labels.is_empty() {
        return Err(invalid(format!("no executor: {hook} takes AF_XDP sockets")));
    }
    Ok(labels)
}

fn cpus(maps: &Maps, below: &PacketTarget) -> Result<Vec<String>, Error> {
    if below.cpus.is_empty() {
        return Err(invalid("no executor: CPU Redirect takes the CPUs to choose among"));
    }
    for (index, cpu) in (0..).zip(&below.cpus) {
        xdp::put_cpu(maps, index, *cpu, CPU_QUEUE)
            .map_err(|error| Error::system(format!("CPU {cpu} cannot be an executor"), &error))?;
    }
    Ok(below.cpus.iter().map(|cpu| format!("CPU {cpu}")).collect())
}

fn folder(state: &State, key: &str) -> PathBuf {
    state.pins().join(key)
}

/// Returns the interface's root: the existing one, or a new one, pinned. If a user other than root is the
/// first to ask, it runs in the driver if the driver supports it, so that a user's choice cannot exclude
/// another's: generic-mode attachments work there as well.
fn root(
    state: &State,
    key: &str,
    interface: &Interface,
    (executors, mode): (Executors, Mode),
    uid: u32,
) -> Result<Root, Error> {
    let folder = folder(state, key);
    let about = |error: io::Error| failed("cannot attach to", interface, &error);
    if let Some(root) = Root::open(&folder).map_err(about)? {
        match root.mode(interface).map_err(about)? {
            Some(_) if !xdp::has_holders(&root.maps) => {
                let text = format!(
                    "{} has policies of another release of Heddle: detach them first (`heddle steer ls`)",
                    interface.name()
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
            Some(there) if there == mode || there == Mode::Native => return Ok(root),
            Some(there) => {
                let text = format!(
                    "{} has policies in {there} mode, which excludes the other: detach them first",
                    interface.name()
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
            // It was detached by another process.
            None => Root::unpin(&folder).map_err(about)?,
        }
    }
    let any = uid != 0 && executors == Executors::Sockets && mode == Mode::Generic;
    let root = Root::attach(interface, (!any).then_some(mode)).map_err(|error| {
        let kind = match error {
            xdp::AttachError::Taken { .. } => ErrorKind::Busy,
            xdp::AttachError::Unsupported { .. } | xdp::AttachError::Settings { .. } => {
                ErrorKind::Unsupported
            }
            xdp::AttachError::Denied { .. } => ErrorKind::Denied,
            _ => ErrorKind::System,
        };
        Error::new(kind, error.to_string())
    })?;
    root.pin(&folder).map_err(about)?;
    Ok(root)
}

/// Opens the root that an attachment belongs to; `None` if it is gone, with its interface or by hand.
fn open(state: &State, stored: &Stored) -> Result<Option<Root>, Error> {
    open_root(state, slot(stored)?)
}

fn open_root(state: &State, slot: &Slot) -> Result<Option<Root>, Error> {
    Root::open(&folder(state, &slot.root))
        .map_err(|error| Error::system(format!("cannot open {}", slot.root), &error))
}

/// Returns whether the interface exists, with the root and a claim that holds.
///
/// # Errors
/// If this cannot be determined.
pub fn alive(state: &State, attachment: &Attachment) -> Result<bool, Error> {
    let Some(slot) = &attachment.slot else { return Ok(false) };
    let Some(root) = open_root(state, slot)? else { return Ok(false) };
    xdp::is_claimed(&root.maps, slot.number)
        .map_err(|error| Error::system(format!("cannot ask {}", slot.root), &error))
}

/// Replaces the policy of an attachment.
pub fn replace(
    state: &State,
    mut stored: Stored,
    policy: Policy,
    object: &Object,
) -> Result<(), Error> {
    let gone = || Error::new(ErrorKind::NotFound, "the interface is gone");
    let root = open(state, &stored)?.ok_or_else(gone)?;
    let old = state.open(stored.attachment.id)?;
    keep_common(&mut stored.maps, object);
    let means = means(stored.attachment.hook);
    let program = xdp::load_policy(&policy.name, means, object, &mut stored.maps)
        .map_err(|error| failed_policy(&error))?;
    stored.attachment.policy = policy.name;
    stored.attachment.parameters = policy.parameters;
    stored.attachment.status = Status::Active;
    stored.attachment.map_bytes = of_policy(&stored.maps);
    state.keep(&stored)?;
    let put = xdp::put_policy(&root.maps, slot(&stored)?.number, &program);
    put.map_err(|error| {
        // The error says what is wrong.
        let _ = state.keep(&old);
        Error::system("cannot put the new policy in place; the old one decides", &error)
    })
}

/// Removes the policy: the packets of its ports pass.
pub fn evict(state: &State, stored: &Stored) -> Result<(), Error> {
    let Some(root) = open(state, stored)? else { return Ok(()) };
    let taken = xdp::take_policy(&root.maps, slot(stored)?.number).map(drop);
    taken.map_err(|error| Error::system("cannot take the policy away", &error))
}

/// Releases policy and claims, and detaches the root from an interface that has no others.
pub fn leave(state: &State, stored: &Stored) -> Result<(), Error> {
    let Some(root) = open(state, stored)? else { return Ok(()) };
    let slot = slot(stored)?;
    let left = || -> io::Result<()> {
        xdp::take_policy(&root.maps, slot.number)?;
        xdp::take_claims(&root.maps, slot.number)?;
        if xdp::claims(&root.maps)?.is_empty() {
            Root::unpin(&folder(state, &slot.root))?;
        }
        Ok(())
    };
    left().map_err(|error| Error::system("cannot take the policy off the interface", &error))
}

/// Removes what a killed command left on interfaces: claims and policies without an attachment, roots without
/// claims. Call with the lock. Returns what could not be removed now.
///
/// # Errors
/// If the records or the pins cannot be read.
pub fn sweep(state: &State) -> Result<Vec<Error>, Error> {
    let known: Vec<Slot> =
        state.list()?.into_iter().filter_map(|attachment| attachment.slot).collect();
    let pins = state.pins();
    let read = |error: io::Error| Error::system(format!("cannot read {}", pins.display()), &error);
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(pins).map_err(read)? {
        let entry = entry.map_err(read)?;
        let key = entry.file_name().to_string_lossy().into_owned();
        if !key.starts_with("xdp-") {
            continue;
        }
        let slots: Vec<u32> =
            known.iter().filter(|slot| slot.root == key).map(|slot| slot.number).collect();
        if let Err(error) = tidy(&entry.path(), &slots) {
            failed.push(Error::system(format!("cannot tidy up {key}"), &error));
        }
    }
    Ok(failed)
}

/// Removes from the root in `folder` everything outside `slots`, and the root itself if there are none.
fn tidy(folder: &Path, slots: &[u32]) -> io::Result<()> {
    if slots.is_empty() {
        return Root::unpin(folder);
    }
    let Some(root) = Root::open(folder)? else { return Ok(()) };
    let claims = xdp::claims(&root.maps)?;
    for slot in (0..xdp::MAX_SLOTS).filter(|slot| !slots.contains(slot)) {
        xdp::take_policy(&root.maps, slot)?;
        if claims.iter().any(|(_, of)| *of == slot) {
            xdp::take_claims(&root.maps, slot)?;
        }
    }
    Ok(())
}
