//! Attachments below sockets: the packets of a port, as they come from an interface.
//!
//! Whoever gives a bound socket owns its port, in the network namespace of that socket and in no other: the interface is
//! looked up there, so a port of one's own namespace is no claim on another's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use heddle_sys::bpf::Program;
use rustix::net::sockopt::{ipv6_v6only, socket_type};
use rustix::net::{SocketType, getsockname};

use super::group::{MAX_EXECUTORS, failed_load, keep_common, set_executors};
use super::{Given, State, Stored, invalid};
use crate::hook::Hook;
use crate::hook::xdp::{self, Claim, Executors, Interface, Mode, PolicyError, Protocol, Root};
use crate::policy::{Maps, Object};
use crate::request::{Attachment, Below, Error, ErrorKind, Policy, Role, Slot, Status};

/// Packets that may wait for a CPU.
const CPU_QUEUE: u32 = 2048;

/// What the executors of a hook are, and how its root is attached. Packets go to other CPUs from the driver only.
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
    mut attachment: Attachment,
    object: &Object,
    given: Given,
    mut maps: Maps,
    below: &Below,
) -> Result<Stored, Error> {
    let claims = claims(&given)?;
    let interface = interface(&given, &below.interface)?;
    attachment.address = claims[0].address.to_string();
    attachment.protocol = claims[0].protocol.to_string();
    let hook = attachment.hook;
    let means = means(hook);
    let program = xdp::load_policy(&attachment.policy, means, object, &mut maps)
        .map_err(|error| failed_policy(&error))?;
    attachment.executors = executors(&maps, hook, &given, below)?;
    let count = u32::try_from(attachment.executors.len()).unwrap_or(MAX_EXECUTORS);
    set_executors(&maps, count)?;

    let key = interface.key().map_err(|error| failed("cannot name", &interface, &error))?;
    let root = root(state, &key, &interface, means.1)?;
    let number =
        xdp::free_slot(&root.maps).map_err(|error| failed("cannot ask", &interface, &error))?;
    let full = || {
        Error::new(
            ErrorKind::Busy,
            format!("{} has {} policies already", interface.name(), xdp::MAX_SLOTS),
        )
    };
    let number = number.ok_or_else(full)?;
    attachment.slot = Some(Slot { root: key, number });
    let fd = root.program.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|error| Error::system("cannot copy a descriptor", &error))?;
    let stored = Stored { attachment, root: Program::from_fd(fd), maps };
    enter(state, &stored, &root, &program, &claims).inspect_err(|_| {
        // What is wrong is in the error; what this leaves behind decides nothing (I1).
        let _ = leave(state, &stored);
        let _ = state.remove(stored.attachment.id);
    })?;
    Ok(stored)
}

/// The moment at which packets begin to meet the policy.
fn enter(
    state: &State,
    stored: &Stored,
    root: &Root,
    program: &Program,
    claims: &[Claim],
) -> Result<(), Error> {
    state.keep(stored)?;
    let number = slot(stored)?.number;
    xdp::put_policy(&root.maps, number, program)
        .map_err(|error| Error::system("cannot put the policy in place", &error))?;
    for claim in claims {
        xdp::put_claim(&root.maps, claim, number).map_err(|error| match error {
            xdp::ClaimError::Taken { .. } => Error::new(ErrorKind::Busy, error.to_string()),
            xdp::ClaimError::System(..) => Error::new(ErrorKind::System, error.to_string()),
        })?;
    }
    Ok(())
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

/// The ports of the sockets that were given as claims.
fn claims(given: &Given) -> Result<Vec<Claim>, Error> {
    let sockets = given.iter().filter(|(role, _)| *role == Role::Claim);
    let mut claims = Vec::new();
    for (_, socket) in sockets {
        claims.extend(claims_of(socket.as_fd())?);
    }
    claims.dedup();
    if claims.is_empty() {
        return Err(invalid(
            "no claim: a socket that is bound to the port shows that the port is yours",
        ));
    }
    Ok(claims)
}

fn claims_of(socket: BorrowedFd<'_>) -> Result<Vec<Claim>, Error> {
    let failed = |error: rustix::io::Errno| Error::system("a claim is no socket", &error.into());
    let name = getsockname(socket).map_err(failed)?;
    let address =
        SocketAddr::try_from(name).map_err(|_| invalid("a claim is no socket of IPv4 or IPv6"))?;
    if address.port() == 0 {
        return Err(invalid("a claim is bound to no port"));
    }
    let protocol = match socket_type(socket).map_err(failed)? {
        SocketType::STREAM => Protocol::Tcp,
        SocketType::DGRAM => Protocol::Udp,
        _ => return Err(invalid("a claim is neither a socket of TCP nor of UDP")),
    };
    let mut claims = vec![Claim { protocol, address }];
    let both = address.ip().is_ipv6()
        && address.ip().is_unspecified()
        && !ipv6_v6only(socket).unwrap_or(true);
    if both {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
        claims.push(Claim { protocol, address });
    }
    Ok(claims)
}

/// The interface, in the namespace of the claims.
fn interface(given: &Given, name: &str) -> Result<Interface, Error> {
    let claim = given.iter().find(|(role, _)| *role == Role::Claim).map(|(_, socket)| socket);
    let claim = claim.ok_or_else(|| invalid("no claim"))?;
    let about = |error: io::Error| Error::system(format!("interface `{name}`"), &error);
    let namespace = heddle_sys::socket::namespace(claim.as_fd()).map_err(about)?;
    Interface::by_name(name, Some(namespace)).map_err(|error| match error.raw_os_error() {
        // ENODEV
        Some(19) => Error::new(
            ErrorKind::NotFound,
            format!("there is no interface `{name}` in the network namespace of the server (`ip link` there lists them)"),
        ),
        _ => about(error),
    })
}

/// Puts the executors in place; their labels.
fn executors(maps: &Maps, hook: Hook, given: &Given, below: &Below) -> Result<Vec<String>, Error> {
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

fn cpus(maps: &Maps, below: &Below) -> Result<Vec<String>, Error> {
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

/// The root of the interface: the one that is there, or a new one, pinned.
fn root(state: &State, key: &str, interface: &Interface, mode: Mode) -> Result<Root, Error> {
    let folder = folder(state, key);
    let about = |error: io::Error| failed("cannot attach to", interface, &error);
    if let Some(root) = Root::open(&folder).map_err(about)? {
        match root.mode(interface).map_err(about)? {
            Some(there) if there == mode => return Ok(root),
            Some(there) => {
                let text = format!(
                    "{} has policies in {there} mode, which excludes the other: detach them first",
                    interface.name()
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
            // Somebody took it off.
            None => Root::unpin(&folder).map_err(about)?,
        }
    }
    let root = Root::attach(interface, Some(mode)).map_err(|error| {
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

/// Opens the root that an attachment belongs to; `None` if it is gone, with its interface or by somebody's hand.
fn open(state: &State, stored: &Stored) -> Result<Option<Root>, Error> {
    let slot = slot(stored)?;
    Root::open(&folder(state, &slot.root))
        .map_err(|error| Error::system(format!("cannot open {}", slot.root), &error))
}

/// Whether the interface is there and has the root.
pub fn alive(state: &State, stored: &Stored) -> bool {
    open(state, stored).is_ok_and(|root| root.is_some())
}

/// Puts another policy in the place of an attachment's.
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
    state.keep(&stored)?;
    let put = xdp::put_policy(&root.maps, slot(&stored)?.number, &program);
    put.map_err(|error| {
        // What is wrong is in the error.
        let _ = state.keep(&old);
        Error::system("cannot put the new policy in place; the old one decides", &error)
    })
}

/// Takes the policy away: the packets of its ports pass.
pub fn evict(state: &State, stored: &Stored) -> Result<(), Error> {
    let Some(root) = open(state, stored)? else { return Ok(()) };
    let taken = xdp::take_policy(&root.maps, slot(stored)?.number).map(drop);
    taken.map_err(|error| Error::system("cannot take the policy away", &error))
}

/// Gives policy and claims back, and takes the root off an interface that has no others.
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

/// Removes what a command that was killed half-way has left on interfaces: claims of no attachment, roots without claims.
/// For whoever has the lock.
pub fn sweep(state: &State) -> Result<(), Error> {
    let known: Vec<Slot> =
        state.list()?.into_iter().filter_map(|attachment| attachment.slot).collect();
    for entry in std::fs::read_dir(state.pins()).into_iter().flatten().flatten() {
        let key = entry.file_name().to_string_lossy().into_owned();
        if !key.starts_with("xdp-") || known.iter().any(|slot| slot.root == key) {
            continue;
        }
        Root::unpin(&entry.path())
            .map_err(|error| Error::system(format!("cannot remove {key}"), &error))?;
    }
    Ok(())
}
