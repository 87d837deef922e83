//! How much of the machine one user may have. Memory of maps is charged to whoever loads them, which is the daemon.

use std::collections::BTreeMap;
use std::io;

use heddle_bpf::{Map, MapSpec};

use super::remaining_maps::RemainingMaps;
use super::{Caller, State};
use crate::hook::xdp::{Interface, MAX_SLOTS};
use crate::policy::{Maps, Object, map_memory};
use crate::request::{Attachment, CountedMap, Error, ErrorKind};

/// The most that one user may have. Root may have any number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Attachments.
    pub attachments: usize,
    /// Executors, of all attachments together.
    pub executors: usize,
    /// Bytes of the maps that policies declare, of all attachments together; a shared map counts once, and one that somebody
    /// has a descriptor of for as long as it is there.
    pub map_bytes: u64,
    /// Attachments below sockets at one interface.
    pub slots: usize,
    /// Addresses and ports that are claimed at one interface.
    pub claims: usize,
    /// The interfaces of this process's network namespace at whose packets they may be.
    pub interfaces: Vec<String>,
    /// What all users but root may have together, as many times as one.
    pub users: usize,
}

impl Quota {
    /// No limits.
    pub const NONE: Self = Self {
        attachments: usize::MAX,
        executors: usize::MAX,
        map_bytes: u64::MAX,
        slots: usize::MAX,
        claims: usize::MAX,
        interfaces: Vec::new(),
        users: usize::MAX,
    };
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            attachments: 16,
            executors: 256,
            map_bytes: 128 << 20,
            slots: 8,
            claims: 64,
            interfaces: Vec::new(),
            users: 16,
        }
    }
}

/// What a request would add.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand<'a> {
    /// A new attachment.
    pub attachment: bool,
    /// New executors.
    pub executors: usize,
    /// A policy, whose maps are made.
    pub policy: Option<&'a Object>,
    /// Maps that are there and are not made.
    pub shared: Option<&'a Maps>,
    /// The attachment whose maps go in exchange.
    pub replaces: Option<u32>,
}

impl Quota {
    fn is_free(&self, uid: u32) -> bool {
        uid == 0 || *self == Self::NONE
    }

    /// Whether `caller` may have `wanted` too.
    pub fn check(
        &self,
        state: &State,
        left: &RemainingMaps,
        caller: Caller,
        wanted: Demand<'_>,
    ) -> Result<(), Error> {
        if self.is_free(caller.uid) {
            return Ok(());
        }
        let mut all = state.list()?;
        all.retain(|attachment| attachment.uid != 0);
        let own: Vec<&Attachment> =
            all.iter().filter(|attachment| attachment.uid == caller.uid).collect();
        let refuse = |what: &str, has: String, most: String| {
            let text = format!(
                "user {} has {has} {what}, and may have {most}: end an attachment (`heddle steer ls`), or have the quota raised (`heddled --help`)",
                caller.uid
            );
            Err(Error::new(ErrorKind::Denied, text))
        };
        let full = |what: &str| {
            let text = format!(
                "all users together have as many {what} as they may: wait until some end, or have the quota raised (`heddled --help`)"
            );
            Err(Error::new(ErrorKind::Busy, text))
        };
        if wanted.attachment && own.len() >= self.attachments {
            return refuse("attachments", own.len().to_string(), self.attachments.to_string());
        }
        if wanted.attachment && all.len() >= self.attachments.saturating_mul(self.users) {
            return full("attachments");
        }
        let executors: usize = own.iter().map(|attachment| attachment.executors.len()).sum();
        if wanted.executors > 0 && executors + wanted.executors > self.executors {
            return refuse("executors", executors.to_string(), self.executors.to_string());
        }
        let Some(policy) = wanted.policy else { return Ok(()) };
        let stays = |attachment: &&Attachment| Some(attachment.id) != wanted.replaces;
        let maps = Used::by(own.into_iter().filter(stays));
        let maps_together = Used::by(all.iter().filter(stays));
        let (left, left_together) = left.bytes(
            caller.uid,
            |id| maps.maps.contains_key(&id),
            |id| maps_together.maps.contains_key(&id),
        )?;
        let bytes = maps.bytes().saturating_add(left);
        let new = made(policy, wanted.shared);
        if bytes.saturating_add(new) > self.map_bytes {
            let mib = |bytes: u64| format!("{:.1} MiB", bytes.div_ceil(1 << 10) as f64 / 1024.0);
            return refuse(
                "of maps (those that somebody has open count too)",
                mib(bytes),
                mib(self.map_bytes),
            );
        }
        let together = maps_together.bytes().saturating_add(left_together).saturating_add(new);
        if together > self.map_bytes.saturating_mul(self.users as u64) {
            return full("maps");
        }
        Ok(())
    }

    /// Whether user `uid` may be at the packets of an interface of this name.
    pub fn check_interface(&self, uid: u32, name: &str) -> Result<(), Error> {
        if self.is_free(uid) || self.interfaces.iter().any(|allowed| allowed == name) {
            return Ok(());
        }
        let there = match &self.interfaces[..] {
            [] => "none is".to_owned(),
            names => format!("{} are", names.join(", ")),
        };
        let text = format!(
            "interface `{name}` is not open to user {uid} ({there}): root attaches there, or has heddled open it (`heddled --interface {name}`); socket-select needs no interface"
        );
        Err(Error::new(ErrorKind::Denied, text))
    }

    /// Whether `interface` is where the names of [`Self::interfaces`] are: in this process's network namespace.
    pub fn check_namespace(&self, uid: u32, interface: &Interface) -> Result<(), Error> {
        if self.is_free(uid) {
            return Ok(());
        }
        let failed = |error| Error::system("cannot look at the network namespace", &error);
        let here = Interface::by_index(interface.index(), None).and_then(|here| here.key());
        let there = interface.key().map_err(failed)?;
        if here.is_ok_and(|here| here == there) {
            return Ok(());
        }
        let text = "the claims are of another network namespace than heddled's: only root attaches to interfaces there";
        Err(Error::new(ErrorKind::Denied, text))
    }

    /// Whether user `uid` may have `claims` and one more of `slots` at an interface.
    pub fn check_slots(
        &self,
        uid: u32,
        interface: &str,
        slots: usize,
        claims: usize,
    ) -> Result<(), Error> {
        if self.is_free(uid) {
            return Ok(());
        }
        if slots >= self.slots.min(MAX_SLOTS as usize) {
            let text = format!(
                "user {uid} has {slots} policies at {interface}, and may have {}",
                self.slots
            );
            return Err(Error::new(ErrorKind::Denied, text));
        }
        self.check_claims(uid, interface, claims)
    }

    /// Whether user `uid` may have `claims` at an interface. Also while they are being made, so that they do not become
    /// more.
    pub fn check_claims(&self, uid: u32, interface: &str, claims: usize) -> Result<(), Error> {
        if self.is_free(uid) || claims <= self.claims {
            return Ok(());
        }
        let text = format!(
            "user {uid} would have at least {claims} addresses and ports at {interface}, and may have {}",
            self.claims
        );
        Err(Error::new(ErrorKind::Denied, text))
    }
}

/// Bytes that a map takes.
pub fn map_bytes(spec: &MapSpec) -> u64 {
    with_notes(map_memory(spec))
}

/// With what the kernel notes of a map, a page of what can be mapped among it. What is not known is as much as there can be: the
/// engine has read beforehand what it takes to know.
fn with_notes(memory: io::Result<u64>) -> u64 {
    const NOTES: u64 = 5 << 10;
    memory.map_or(u64::MAX, |memory| memory.saturating_add(NOTES))
}

/// What attachments have of maps, as their records say: no map has to be opened.
#[derive(Debug, Default)]
struct Used {
    /// Bytes by the kernel's number: attachments may share a map.
    maps: BTreeMap<u32, u64>,
    /// Of attachments whose records, of an older heddled, do not tell their maps apart.
    other: u64,
}

impl Used {
    fn by<'a>(attachments: impl Iterator<Item = &'a Attachment>) -> Self {
        let mut used = Self::default();
        for attachment in attachments {
            used.maps.extend(attachment.maps.iter().map(|map| (map.id, map.bytes)));
            if attachment.maps.is_empty() {
                used.other = used.other.saturating_add(attachment.map_bytes);
            }
        }
        used
    }

    fn bytes(&self) -> u64 {
        self.maps.values().fold(self.other, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The maps of a policy, for its attachment's record.
///
/// # Errors
/// If the kernel does not tell their numbers.
pub fn counted(maps: &Maps) -> io::Result<Vec<CountedMap>> {
    of_users(maps)
        .map(|map| Ok(CountedMap { id: map.id()?, bytes: map_bytes(map.spec()) }))
        .collect()
}

/// Those that a policy declares.
fn of_users(maps: &Maps) -> impl Iterator<Item = &Map> {
    maps.iter().filter(|(name, _)| !name.starts_with("hd_")).map(|(_, map)| map)
}

/// Bytes of the maps of a policy that a deployment has.
pub fn of_policy(maps: &Maps) -> u64 {
    of_users(maps).map(|map| map_bytes(map.spec())).fold(0, u64::saturating_add)
}

fn made(policy: &Object, shared: Option<&Maps>) -> u64 {
    let new = |name: &str| shared.is_none_or(|maps| !maps.contains_key(name));
    let maps = policy.maps.iter().filter(|map| new(&map.name));
    maps.map(|map| with_notes(map.memory())).fold(0, u64::saturating_add)
}
