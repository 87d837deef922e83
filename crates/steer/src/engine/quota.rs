//! Per-user limits. The kernel charges the memory of maps to the process that loads them, the daemon.

use std::collections::BTreeMap;
use std::io;

use heddle_bpf::{Map, MapSpec};

use super::remaining_maps::RemainingMaps;
use super::{Caller, State};
use crate::hook::xdp::{Interface, MAX_SLOTS};
use crate::policy::{Maps, Object, map_memory};
use crate::request::{Attachment, CountedMap, Error, ErrorKind};

/// The limits of one user. Root has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Attachments.
    pub attachments: usize,
    /// Executors, of all attachments together.
    pub executors: usize,
    /// Bytes of the maps that policies declare, over all attachments; a shared map counts once, and a map of
    /// which a process holds a descriptor counts as long as it exists.
    pub map_bytes: u64,
    /// Attachments below sockets at one interface.
    pub slots: usize,
    /// Addresses and ports claimed at one interface.
    pub claims: usize,
    /// The interfaces of this process's network namespace whose packets users may steer.
    pub interfaces: Vec<String>,
    /// What all users but root may have together, as a multiple of one user's limit.
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
            executors: 1024,
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
    /// A policy, whose maps are created.
    pub policy: Option<&'a Object>,
    /// Existing maps, which are not created.
    pub shared: Option<&'a Maps>,
    /// The attachment whose maps are released in exchange.
    pub replaces: Option<u32>,
}

impl Quota {
    fn is_free(&self, uid: u32) -> bool {
        uid == 0 || *self == Self::NONE
    }

    /// Checks that `caller` may have `wanted` too.
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
                "user {} has {has} {what}, and may have {most}: end an attachment (`heddle steer ls`), \
                 or have the quota raised (`heddled --help`)",
                caller.uid
            );
            Err(Error::new(ErrorKind::Denied, text))
        };
        let full = |what: &str| {
            let text = format!(
                "all users together have as many {what} as they may: wait until some end, or have the \
                 quota raised (`heddled --help`)"
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
                "of maps (those that a process holds open count too)",
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

    /// Checks that user `uid` may steer packets of an interface of this name.
    pub fn check_interface(&self, uid: u32, name: &str) -> Result<(), Error> {
        if self.is_free(uid) || self.interfaces.iter().any(|allowed| allowed == name) {
            return Ok(());
        }
        let there = match &self.interfaces[..] {
            [] => "none is".to_owned(),
            names => format!("{} are", names.join(", ")),
        };
        let text = format!(
            "interface `{name}` is not open to user {uid} ({there}): root attaches there, or has \
             heddled open it (`heddled --interface {name}`); socket-select needs no interface"
        );
        Err(Error::new(ErrorKind::Denied, text))
    }

    /// Checks that `interface` is in this process's network namespace, to which the names of
    /// [`Self::interfaces`] refer.
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

    /// Checks that user `uid` may have `claims` and one more of `slots` at an interface.
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

    /// Checks that user `uid` may have `claims` at an interface. Also used while they are produced, to bound
    /// them.
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

/// Returns the bytes that a map takes.
pub fn map_bytes(spec: &MapSpec) -> u64 {
    with_notes(map_memory(spec))
}

/// Includes the kernel's bookkeeping for a map, such as a page if it can be mapped. If unknown, this is the
/// largest value: the engine has read beforehand what the computation needs.
fn with_notes(memory: io::Result<u64>) -> u64 {
    const NOTES: u64 = 5 << 10;
    memory.map_or(u64::MAX, |memory| memory.saturating_add(NOTES))
}

/// The maps of attachments, from their records: no map needs to be opened.
#[derive(Debug, Default)]
struct Used {
    /// Bytes by the kernel's map id: attachments may share a map.
    maps: BTreeMap<u32, u64>,
    /// Bytes of attachments whose records, from an older heddled, do not list their maps.
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

/// Returns the maps of a policy, for its attachment's record.
///
/// # Errors
/// If the kernel does not report their ids.
pub fn counted(maps: &Maps) -> io::Result<Vec<CountedMap>> {
    of_users(maps)
        .map(|map| Ok(CountedMap { id: map.id()?, bytes: map_bytes(map.spec()) }))
        .collect()
}

/// Returns those that a policy declares.
fn of_users(maps: &Maps) -> impl Iterator<Item = &Map> {
    maps.iter().filter(|(name, _)| !name.starts_with("hd_")).map(|(_, map)| map)
}

/// Returns the bytes of the maps that a deployment's policy has.
pub fn of_policy(maps: &Maps) -> u64 {
    of_users(maps).map(|map| map_bytes(map.spec())).fold(0, u64::saturating_add)
}

fn made(policy: &Object, shared: Option<&Maps>) -> u64 {
    let new = |name: &str| shared.is_none_or(|maps| !maps.contains_key(name));
    let maps = policy.maps.iter().filter(|map| new(&map.name));
    maps.map(|map| with_notes(map.memory())).fold(0, u64::saturating_add)
}
