//! What policies read from the kernel: the executors' sockets, and the offsets of the fields in them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::net::sockopt::socket_cookie;

use heddle_bpf::{KernelTypes, Map, MapKind, MapSpec, ProgramKind, iterate_files};

use crate::policy::{Image, LoadError, Maps, create, frame, link, load};

/// The constants of `bpf/steer/hooks/observe.c`, in its order.
const LAYOUT: &str = "hd_layout_constants";
/// The map of the addresses of the executors' sockets.
pub const SOCKETS: &str = "hd_sockets";
/// The constants of `bpf/steer/hooks/socket_addresses.c`.
const PLACE: &str = "hd_place_constants";
const MEMBERS: [(&str, &str); 9] = [
    ("sock", "sk_receive_queue.qlen"),
    ("udp_sock", "reader_queue.qlen"),
    ("sock", "sk_ack_backlog"),
    ("inet_connection_sock", "icsk_accept_queue.qlen"),
    ("sock", "sk_wq"),
    ("socket_wq", "wait"),
    ("wait_queue_head", "head"),
    ("sock", "__sk_common.skc_cookie"),
    ("sock", "__sk_common.skc_refcnt.refs.counter"),
];

/// The same for what waits on a socket.
const WAITS: &str = "hd_waits_constants";
const WAITS_MEMBERS: [(&str, &str); 7] = [
    ("wait_queue_entry", "entry"),
    ("wait_queue_entry", "private"),
    ("eppoll_entry", "wait"),
    ("eppoll_entry", "whead"),
    ("eppoll_entry", "base"),
    ("epitem", "ep"),
    ("eventpoll", "wq"),
];

/// The same for a socket's group.
const GROUP: &str = "hd_group_constants";
const GROUP_MEMBERS: [(&str, &str); 2] =
    [("sock", "sk_reuseport_cb"), ("sock_reuseport", "num_socks")];

/// A map of the offsets of kernel structure members.
pub(super) fn constants(name: &str, members: &[(&str, &str)]) -> io::Result<Map> {
    let types = KernelTypes::read()?;
    let offset = |(structure, member): &(&str, &str)| types.offset(structure, member);
    let offsets: Vec<u32> = members.iter().map(offset).collect::<io::Result<_>>()?;
    constant_map(name, &offsets)
}

/// A map of one value, which is constant to the verifier.
pub(super) fn constant_map(name: &str, numbers: &[u32]) -> io::Result<Map> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let spec = MapSpec {
        name: name.into(),
        kind: MapKind::Array,
        key_size: 4,
        value_size: u32::try_from(bytes.len()).unwrap_or(0),
        entries: 1,
        read_only: true,
    };
    let map = Map::create(&spec)?;
    map.update(&0_u32.to_ne_bytes(), &bytes)?;
    map.freeze()?;
    Ok(map)
}

/// Fills in the kernel offsets. Call before loading a program that observes sockets.
///
/// # Errors
/// If this kernel does not report them, or its layout is unknown to Heddle.
pub(super) fn prepare(image: &Image, maps: &mut Maps) -> Result<(), LoadError> {
    for (name, members) in
        [(LAYOUT, &MEMBERS[..]), (WAITS, &WAITS_MEMBERS), (GROUP, &GROUP_MEMBERS)]
    {
        let is_used = image.maps.iter().any(|map| map.name == name);
        if is_used && !maps.contains_key(name) {
            let map = constants(name, members)
                .map_err(|error| LoadError::Map { name: name.into(), error })?;
            maps.insert(name.into(), map);
        }
    }
    Ok(())
}

/// The kind of a socket, as numbered in `bpf/steer/hooks/observe.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A socket of datagrams: its receive queue counts.
    Datagrams = 1,
    /// A listening socket: its accept queue counts.
    Connections = 2,
}

/// Records the addresses of the executors' sockets, for this policy and its replacements. The descriptors
/// must be this thread's.
///
/// # Errors
/// If the kernel has no iterator over files (5.8) or does not report its layout, or a socket is not among the
/// results.
pub fn put_sockets(
    maps: &mut Maps,
    sockets: &[(u32, BorrowedFd<'_>, Observed)],
) -> Result<(), LoadError> {
    let failed = |error| LoadError::Map { name: SOCKETS.into(), error };
    if !maps.contains_key(SOCKETS) {
        let observe = frame("observe");
        let decl = observe.map(SOCKETS).ok_or_else(|| failed(io::Error::other("not declared")))?;
        maps.insert(SOCKETS.into(), create(decl).map_err(failed)?);
    }
    let map = &maps[SOCKETS];
    let addresses = addresses()?;
    for (index, socket, kind) in sockets {
        let fd = u64::from(socket.as_raw_fd().cast_unsigned());
        let address = addresses.iter().find(|(of, _)| *of == fd).map(|(_, address)| *address);
        let address = address
            .ok_or_else(|| failed(io::Error::other("a socket that the kernel does not list")))?;
        let cookie = socket_cookie(socket).map_err(|error| failed(error.into()))?;
        let mut value = (address | *kind as u64).to_ne_bytes().to_vec();
        value.extend(cookie.to_ne_bytes());
        map.update(&index.to_ne_bytes(), &value).map_err(failed)?;
    }
    Ok(())
}

/// Clears in `map` ([`SOCKETS`]) the address of an executor whose socket is closed.
///
/// # Errors
/// The kernel's.
pub fn forget_socket(map: &Map, index: u32) -> io::Result<()> {
    map.update(&index.to_ne_bytes(), &vec![0; map.spec().value_size as usize])
}

/// Returns the sockets of this thread: descriptor and address.
pub(super) fn addresses() -> Result<Vec<(u64, u64)>, LoadError> {
    let failed = |error| LoadError::Map { name: PLACE.into(), error };
    let mut maps = Maps::new();
    maps.insert(PLACE.into(), constants(PLACE, &[("socket", "sk")]).map_err(failed)?);
    let function = KernelTypes::read()
        .and_then(|types| types.function("bpf_iter_task_file"))
        .map_err(failed)?;
    let image = link(&[&frame("socket_addresses")])?;
    let program = load("hd_sockets", ProgramKind::Iterator(function), &image, &mut maps)?;
    let printed = iterate_files(&program).map_err(failed)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(printed.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect())
}
