//! Attachments to reuseport groups: sockets that share a port.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use heddle_bpf::Program;
use heddle_sys::isolated::run_in_child;
use heddle_sys::socket::{addresses, namespace};
use rustix::fs::fstat;
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_cookie, socket_reuseport, socket_type};

use super::quota::of_policy;
use super::{State, Stored, TypedDescriptors, invalid};
use crate::hook::observe::{self, Observed};
use crate::hook::reuseport;
use crate::policy::{FEW_EXECUTORS, LoadError, Maps, Object, create, frame, with_room};
use crate::request::{Attachment, Error, ErrorKind, Policy, Role, Status};

/// The maximum number of executors: `HD_MAX_EXECUTORS`.
pub const MAX_EXECUTORS: u32 = heddle_core::line::MOST as u32;
/// The map that holds the number of executors for the policy.
const CONTROL: &str = "hd_control";

/// A socket of the group.
struct Member<'a> {
    index: u32,
    label: String,
    fd: BorrowedFd<'a>,
}

/// What the kernel reports about a socket.
struct Bound {
    address: SocketAddr,
    observed: Observed,
    inode: u64,
    /// The inode of its network namespace: addresses are meaningful only within one.
    namespace: u64,
}

/// Queries the kernel about sockets that user `uid` may keep locked.
fn all_bound(uid: u32, sockets: &[BorrowedFd<'_>]) -> Result<Vec<Bound>, Error> {
    let addresses = addresses(uid, sockets).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Error::system("cannot look at the executors", &error),
        _ => Error::system("an executor is no socket", &error),
    })?;
    sockets.iter().zip(addresses).map(|(socket, address)| bound(*socket, address)).collect()
}

/// Queries the kernel without taking the socket's lock.
fn bound(socket: BorrowedFd<'_>, address: Option<SocketAddr>) -> Result<Bound, Error> {
    let failed =
        |error: rustix::io::Errno| Error::system("an executor is no socket", &error.into());
    let address = address.ok_or_else(|| invalid("an executor is no socket of IPv4 or IPv6"))?;
    let observed = match socket_type(socket).map_err(failed)? {
        SocketType::STREAM => Observed::Connections,
        _ => Observed::Datagrams,
    };
    if address.port() == 0 {
        return Err(invalid("an executor is bound to no port"));
    }
    if !socket_reuseport(socket).map_err(failed)? {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the socket on port {} has no SO_REUSEPORT, so there is nothing to choose among: \
                 bind a socket with it for each worker",
                address.port()
            ),
        ));
    }
    let inode = |fd: BorrowedFd<'_>| fstat(fd).map(|status| status.st_ino);
    let namespace = namespace(socket)
        .and_then(|namespace| Ok(inode(namespace.as_fd())?))
        .map_err(|error| Error::system("cannot ask for an executor's network namespace", &error))?;
    Ok(Bound { address, observed, inode: inode(socket).map_err(failed)?, namespace })
}

fn cookie(socket: BorrowedFd<'_>) -> u64 {
    socket_cookie(socket).unwrap_or(0)
}

/// Returns the sockets that are executors of an attachment, by index.
fn present(maps: &Maps) -> Vec<(u32, u64)> {
    let Some(map) = maps.get(reuseport::EXECUTORS) else { return Vec::new() };
    let at = |index: u32| {
        map.lookup(&index.to_ne_bytes())
            .ok()
            .flatten()
            .and_then(|v| v.try_into().ok())
            .map(u64::from_ne_bytes)
    };
    (0..map.spec().entries).filter_map(|index| at(index).map(|cookie| (index, cookie))).collect()
}

/// Returns whether any executor is left. What the policy observes of closed ones is cleared: the kernel may
/// have reused their memory for something that looks idle.
///
/// # Errors
/// If the kernel does not say; `NotFound` if its program or its executors have lost their pins.
pub fn alive(state: &State, attachment: &Attachment) -> Result<bool, Error> {
    let id = attachment.id;
    let executors = state.map(id, reuseport::EXECUTORS)?;
    let all = u32::try_from(attachment.executors.len()).unwrap_or(MAX_EXECUTORS);
    let mut gone = Vec::new();
    for index in 0..all {
        let there = executors
            .lookup(&index.to_ne_bytes())
            .map_err(|error| Error::system("cannot look for the executors", &error))?;
        if there.is_none() {
            gone.push(index);
        }
    }
    if !gone.is_empty()
        && let Ok(sockets) = state.map(id, observe::SOCKETS)
    {
        for index in &gone {
            // An executor that cannot be cleared is chosen in vain, and counted.
            let _ = observe::forget_socket(&sockets, *index);
        }
    }
    Ok(gone.len() < all as usize)
}

/// Returns which executors exist.
pub fn present_indices(stored: &Stored) -> BTreeSet<u32> {
    present(&stored.maps).into_iter().map(|(index, _)| index).collect()
}

pub fn failed_load(error: &LoadError) -> Error {
    let kind = match error {
        LoadError::Map { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
            ErrorKind::Denied
        }
        LoadError::Refused(refused) if refused.error.raw_os_error() == Some(1) => ErrorKind::Denied,
        _ => ErrorKind::System,
    };
    Error::new(kind, error.to_string())
}

fn members(given: &TypedDescriptors) -> Result<Vec<Member<'_>>, Error> {
    let mut members = Vec::new();
    for (role, fd) in given {
        let Role::Executor { index, label } = role else { continue };
        members.push(Member { index: *index, label: super::clean(label), fd: fd.as_fd() });
    }
    members.sort_by_key(|member| member.index);
    if members.is_empty() {
        return Err(invalid("no executor: a group needs at least one socket"));
    }
    let indices: BTreeSet<u32> = members.iter().map(|member| member.index).collect();
    if indices.len() != members.len() || indices.iter().any(|index| *index >= MAX_EXECUTORS) {
        return Err(invalid(format!("executors have different indices below {MAX_EXECUTORS}")));
    }
    Ok(members)
}

/// Deploys `object` to the group of the sockets in `given`, using the maps that are in `maps` already.
pub fn attach(
    state: &State,
    mut attachment: Attachment,
    object: &Object,
    given: &TypedDescriptors,
    mut maps: Maps,
) -> Result<Stored, Error> {
    let members = members(given)?;
    let fds: Vec<_> = members.iter().map(|member| member.fd).collect();
    let bounds = all_bound(attachment.uid, &fds)?;
    let first = &bounds[0];
    if bounds.iter().any(|bound| bound.namespace != first.namespace) {
        return Err(invalid(format!(
            "sockets at {} are in several network namespaces: attach to those of each",
            first.address
        )));
    }
    if let Some(other) = bounds.iter().find(|bound| bound.address != first.address) {
        return Err(invalid(format!(
            "{} and {} are two groups: attach to each",
            first.address, other.address
        )));
    }
    attachment.address = first.address.to_string();
    attachment.namespace = first.namespace;
    attachment.protocol =
        if first.observed == Observed::Connections { "tcp" } else { "udp" }.into();
    let cookies: Vec<u64> = members.iter().map(|member| cookie(member.fd)).collect();
    refuse_second(state, &attachment.address, &cookies)?;

    let count = members.last().map_or(0, |member| member.index + 1);
    prepare(&mut maps, room(count))?;
    let root = reuseport::load_root(&mut maps).map_err(|error| failed_load(&error))?;
    let program = reuseport::load_policy(&attachment.policy, object, &mut maps)
        .map_err(|error| failed_load(&error))?;
    reuseport::put_gone(&mut maps).map_err(|error| failed_load(&error))?;
    for member in &members {
        put(&maps, member)?;
    }
    let sockets: Vec<_> =
        members.iter().zip(&bounds).map(|(m, b)| (m.index, m.fd, b.observed)).collect();
    observe::put_sockets(&mut maps, &sockets).map_err(|error| failed_load(&error))?;
    set_executors(&maps, count)?;
    attachment.executors = labels(&members, count);
    attachment.sockets = vec![0; count as usize];
    for (member, bound) in members.iter().zip(&bounds) {
        attachment.sockets[member.index as usize] = bound.inode;
    }

    attachment.map_bytes = of_policy(&maps);
    let stored = Stored { attachment, root, maps };
    enter(state, &stored, &program, members[0].fd).inspect_err(|_| {
        // The error says what is wrong; nothing left behind decides anything (I1). Attaching is the last
        // step, so if it failed, what was attached before is still there, and is not ours to remove.
        let _ = state.remove(stored.attachment.id);
    })?;
    Ok(stored)
}

/// Creates the maps that every attachment has, whether or not its current policy uses them: a replacement
/// may, and programs bind to the lines. Those with a value for each executor have room for so many.
fn prepare(maps: &mut Maps, executors: u32) -> Result<(), Error> {
    let own = |name: &str| frame(name).maps.into_iter();
    let of_sockets = own("observe").filter(|decl| decl.name == observe::SOCKETS);
    let of_group = own("reuseport").filter(|decl| decl.name == reuseport::EXECUTORS);
    for decl in own("common").chain(of_sockets).chain(of_group) {
        if !maps.contains_key(&decl.name) {
            let map = create(&with_room(&decl, executors))
                .map_err(|error| failed_load(&LoadError::Map { name: decl.name.clone(), error }))?;
            maps.insert(decl.name.clone(), map);
        }
    }
    Ok(())
}

/// Returns how many executors an attachment that begins with `count` has room for: a power of two with at least a
/// quarter to spare, for workers that come later.
fn room(count: u32) -> u32 {
    (count + count / 4).next_power_of_two().clamp(FEW_EXECUTORS, MAX_EXECUTORS)
}

/// Returns how many executors an attachment has room for. Those of versions that knew only 64 have that.
fn room_of(stored: &Stored) -> u32 {
    stored.maps.get(reuseport::EXECUTORS).map_or(FEW_EXECUTORS, |map| map.spec().entries)
}

/// The moment at which the policy begins to receive inputs.
fn enter(
    state: &State,
    stored: &Stored,
    program: &Program,
    socket: BorrowedFd<'_>,
) -> Result<(), Error> {
    state.keep(stored)?;
    // A group left behind may attach the root later: its slot is empty then, and the kernel chooses.
    let (uid, root) = (stored.attachment.uid, &stored.root);
    let attach =
        || run_in_child(uid, &[root.as_fd(), socket], &mut [], |_| root.attach_reuseport(socket));
    let attached = reuseport::put_policy(&stored.maps, program).and_then(|()| attach());
    attached.map_err(|error| {
        Error::system(format!("cannot attach to {}", stored.attachment.address), &error)
    })
}

/// Before any change: refuses sockets that are steered already, and waits for those that the kernel has yet
/// to release. Call without the lock.
pub fn wait_for(state: &State, uid: u32, sockets: &[BorrowedFd<'_>]) -> Result<(), Error> {
    let cookies: Vec<u64> = sockets.iter().map(|socket| cookie(*socket)).collect();
    let bounds = match all_bound(uid, sockets) {
        Err(error) if error.kind == ErrorKind::Busy => return Err(error),
        // Sockets that cannot be steered are reported later.
        Err(_) => return Ok(()),
        Ok(bounds) => bounds,
    };
    // Those at several addresses are refused later, whatever is attached there.
    let Some(first) = bounds.first() else { return Ok(()) };
    if bounds.iter().all(|bound| bound.address == first.address) {
        refuse_second(state, &first.address.to_string(), &cookies)?;
    }
    reuseport::wait_until_free(sockets)
        .map_err(|error| Error::system("cannot ask whether the sockets are free", &error))
}

/// A socket has at most one attachment.
fn refuse_second(state: &State, address: &str, cookies: &[u64]) -> Result<(), Error> {
    let list = state.list()?;
    for attachment in list.into_iter().filter(|other| other.address == address) {
        // Attachments below sockets have no such map, and those that have just ended have none at all.
        let Ok(map) = state.map(attachment.id, reuseport::EXECUTORS) else { continue };
        let maps = Maps::from([(reuseport::EXECUTORS.to_owned(), map)]);
        if present(&maps).iter().any(|(_, cookie)| cookies.contains(cookie)) {
            let (id, policy) = (attachment.id, attachment.policy);
            let text = format!(
                "{} is attached already: {id}, policy {policy}. `heddle steer replace {id} --policy \
                 ...` changes the policy, `heddle steer detach {id}` ends it",
                attachment.address
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
    }
    Ok(())
}

fn put(maps: &Maps, member: &Member<'_>) -> Result<(), Error> {
    reuseport::put_executor(maps, member.index, member.fd).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => Error::new(
            ErrorKind::Busy,
            format!(
                "{} is in the map of another program, which steers or watches it already: end that \
                program first",
                member.label
            ),
        ),
        _ => Error::system(format!("{} cannot be an executor", member.label), &error),
    })
}

pub fn set_executors(maps: &Maps, count: u32) -> Result<(), Error> {
    let Some(control) = maps.get(CONTROL) else { return Ok(()) };
    let mut value = vec![0; control.spec().value_size as usize];
    value[..4].copy_from_slice(&count.to_ne_bytes());
    control
        .update(&0_u32.to_ne_bytes(), &value)
        .map_err(|error| Error::system("cannot tell the policy its executors", &error))
}

fn labels(members: &[Member<'_>], count: u32) -> Vec<String> {
    let label = |index| {
        members.iter().find(|m| m.index == index).map_or(String::new(), |m| m.label.clone())
    };
    (0..count).map(label).collect()
}

/// Makes `fd` an executor of an existing attachment and returns its index.
pub fn add(
    state: &State,
    stored: &mut Stored,
    index: Option<u32>,
    label: String,
    fd: &OwnedFd,
) -> Result<u32, Error> {
    let bound = all_bound(stored.attachment.uid, &[fd.as_fd()])?.swap_remove(0);
    refuse_second(state, &stored.attachment.address, &[cookie(fd.as_fd())])?;
    if bound.address.to_string() != stored.attachment.address {
        return Err(invalid(format!(
            "the socket is bound to {}, the group to {}",
            bound.address, stored.attachment.address
        )));
    }
    let own = stored.attachment.namespace;
    if own != 0 && bound.namespace != own {
        return Err(invalid(format!(
            "the socket at {} is in another network namespace than the group",
            bound.address
        )));
    }
    let (there, room) = (present_indices(stored), room_of(stored));
    let free = || (0..room).find(|index| !there.contains(index));
    let index = index.or_else(free).filter(|index| *index < room);
    let index = index.ok_or_else(|| {
        let id = stored.attachment.id;
        let more = if room < MAX_EXECUTORS {
            format!("; `heddle steer detach {id}`, then attach again: up to {MAX_EXECUTORS} fit")
        } else {
            String::new()
        };
        let text =
            format!("attachment {id} has room for {room} executors, and all are taken{more}");
        Error::new(ErrorKind::Busy, text)
    })?;
    let member = Member { index, label, fd: fd.as_fd() };
    put(&stored.maps, &member)?;
    // The previous executor may have closed while marked busy.
    forget_line(&stored.maps, index)?;
    observe::put_sockets(&mut stored.maps, &[(index, member.fd, bound.observed)])
        .map_err(|error| failed_load(&error))?;
    let executors = &mut stored.attachment.executors;
    let at = index as usize;
    if executors.len() <= at {
        executors.resize(at + 1, String::new());
    }
    executors[at] = member.label;
    let count = u32::try_from(executors.len()).unwrap_or(MAX_EXECUTORS);
    let sockets = &mut stored.attachment.sockets;
    sockets.resize(count as usize, 0);
    sockets[at] = bound.inode;
    set_executors(&stored.maps, count)?;
    Ok(index)
}

fn forget_line(maps: &Maps, index: u32) -> Result<(), Error> {
    let Some(lines) = maps.get(super::LINES) else { return Ok(()) };
    let empty = vec![0; lines.spec().value_size as usize];
    lines
        .update(&index.to_ne_bytes(), &empty)
        .map_err(|error| Error::system("cannot clear the line of the new executor", &error))
}

/// Replaces the policy of an attachment; on failure the old one stays in force.
pub fn replace(
    state: &State,
    mut stored: Stored,
    policy: Policy,
    object: &Object,
) -> Result<(), Error> {
    let old = Old::of(state, &stored)?;
    keep_common(&mut stored.maps, object);
    let program = reuseport::load_policy(&policy.name, object, &mut stored.maps)
        .map_err(|error| failed_load(&error))?;
    reuseport::put_gone(&mut stored.maps).map_err(|error| failed_load(&error))?;
    stored.attachment.policy = policy.name;
    stored.attachment.parameters = policy.parameters;
    stored.attachment.status = Status::Active;
    stored.attachment.map_bytes = of_policy(&stored.maps);
    let put = reuseport::put_policy(&stored.maps, &program);
    put.map_err(|error| {
        Error::system("cannot put the new policy in place; the old one decides", &error)
    })?;
    state.keep(&stored).inspect_err(|_| old.restore(state))
}

/// Before a replacement: Heddle's maps stay, and those that the new policy declares too, if the shape
/// matches; variables are reset.
pub fn keep_common(maps: &mut Maps, object: &Object) {
    let stays =
        |name: &str| name.starts_with("hd_") || object.map(name).is_some_and(|map| !map.is_data());
    maps.retain(|name, _| stays(name));
}

/// The program that decided before a replacement.
struct Old {
    stored: Stored,
    program: Option<Program>,
}

impl Old {
    fn of(state: &State, stored: &Stored) -> Result<Self, Error> {
        let failed = |error| Error::system("cannot look at the policy that decides", &error);
        let program = reuseport::policy(&stored.maps).map_err(failed)?;
        Ok(Self { stored: state.open(stored.attachment.id)?, program })
    }

    /// As far as possible; the caller reports the earlier error.
    fn restore(&self, state: &State) {
        let maps = &self.stored.maps;
        let _ = match &self.program {
            Some(program) => reuseport::put_policy(maps, program),
            None => reuseport::take_policy(maps).map(drop),
        };
        let _ = state.keep(&self.stored);
    }
}

/// Removes the policy.
pub fn evict(stored: &Stored) -> Result<(), Error> {
    let taken = reuseport::take_policy(&stored.maps).map(drop);
    taken.map_err(|error| Error::system("cannot take the policy away", &error))
}

/// Returns the choice to the kernel; given a socket of the group, also detaches the program.
pub fn detach(stored: &Stored, sockets: &[OwnedFd]) -> Result<(), Error> {
    evict(stored)?;
    let ours: Vec<u64> = present(&stored.maps).into_iter().map(|(_, cookie)| cookie).collect();
    let of_group = sockets.iter().find(|socket| ours.contains(&cookie(socket.as_fd())));
    let Some(socket) = of_group.map(|socket| socket.as_fd()) else { return Ok(()) };
    let uid = stored.attachment.uid;
    match run_in_child(uid, &[socket], &mut [], |_| Program::detach_reuseport(socket)) {
        // If another process keeps the socket locked, a root without a policy stays on it, and the kernel
        // chooses.
        Err(error)
            if ![io::ErrorKind::NotFound, io::ErrorKind::TimedOut].contains(&error.kind()) =>
        {
            Err(Error::system("cannot take the program off", &error))
        }
        _ => Ok(()),
    }
}
