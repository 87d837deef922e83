//! XDP: packets to CPUs and to AF_XDP sockets, as they arrive at an interface.
//!
//! One root program is on an interface ([`Root`]). It looks up who has claimed the port of a packet
//! ([`Claim`]) and jumps to the slot of that claim's policy; unclaimed packets pass, and so do those of a
//! claim whose slot is empty, or whose sockets have closed ([`Holders`]). So policies come, go and are
//! replaced without disturbing the interface, and the policy of one port sees no packet of another.
//!
//! Each policy has maps of its own; executors are CPUs ([`put_cpu`]) or AF_XDP sockets ([`put_socket`]).
//! Fragments pass: half a datagram is no use to an executor, and the kernel reassembles the whole.

mod claim;
mod executors;
mod interface;
mod offload;
mod policy;
mod root;

pub use claim::{
    Claim, ClaimError, Holders, MAX_HOLDERS, Protocol, claims, has_holders, is_claimed, put_claim,
    put_holders, take_claim, take_claims,
};
pub use executors::{MAX_QUEUES, cpus, online_cpus, put_cpu, put_socket, take_cpu, take_sockets};
pub use interface::{Interface, Mode};
pub(crate) use offload::PASS;
pub use offload::{OffloadRefused, probe_offload};
pub use policy::{
    Executors, MAX_SLOTS, PolicyError, free_slot, load_policy, put_policy, take_policy,
};
pub(crate) use policy::{framed, put_constants, seed};
pub(crate) use root::attach;
pub use root::{AttachError, Root};

use std::io;

use heddle_bpf::Map;

use crate::policy::Maps;

/// The map of the executors.
pub const EXECUTORS: &str = "hd_executor";

pub(crate) fn map<'a>(maps: &'a Maps, name: &str) -> io::Result<&'a Map> {
    maps.get(name).ok_or_else(|| io::Error::other(format!("no map `{name}`")))
}
