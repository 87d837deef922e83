//! How much of the machine one user may have. Memory of maps is charged to whoever loads them, which is the daemon.

use std::collections::BTreeMap;

use heddle_sys::bpf::MapSpec;

use super::{Caller, State};
use crate::policy::{Maps, Object};
use crate::request::{Attachment, Error, ErrorKind};

/// The most that one user may have. Root may have any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Attachments.
    pub attachments: usize,
    /// Executors, of all attachments together.
    pub executors: usize,
    /// Bytes of the maps that policies declare, of all attachments together; a shared map counts once.
    pub map_bytes: u64,
}

impl Quota {
    /// No limits.
    pub const NONE: Self =
        Self { attachments: usize::MAX, executors: usize::MAX, map_bytes: u64::MAX };
}

impl Default for Quota {
    fn default() -> Self {
        Self { attachments: 16, executors: 256, map_bytes: 128 << 20 }
    }
}

/// What a request would add.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
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
    /// Whether `caller` may have `wanted` too.
    pub fn check(self, state: &State, caller: Caller, wanted: Wanted<'_>) -> Result<(), Error> {
        if caller.uid == 0 || self == Self::NONE {
            return Ok(());
        }
        let mut own = state.list()?;
        own.retain(|attachment| attachment.uid == caller.uid);
        let refuse = |what: &str, has: String, most: String| {
            let text = format!(
                "user {} has {has} {what}, and may have {most}: end an attachment (`heddle ls`), or have the quota raised (`heddled --help`)",
                caller.uid
            );
            Err(Error::new(ErrorKind::Denied, text))
        };
        if wanted.attachment && own.len() >= self.attachments {
            return refuse("attachments", own.len().to_string(), self.attachments.to_string());
        }
        let executors: usize = own.iter().map(|attachment| attachment.executors.len()).sum();
        if wanted.executors > 0 && executors + wanted.executors > self.executors {
            return refuse("executors", executors.to_string(), self.executors.to_string());
        }
        let Some(policy) = wanted.policy else { return Ok(()) };
        let bytes = used(state, &own, wanted.replaces);
        if bytes.saturating_add(made(policy, wanted.shared)) > self.map_bytes {
            let mib = |bytes: u64| format!("{:.1} MiB", bytes.div_ceil(1 << 10) as f64 / 1024.0);
            return refuse("of maps", mib(bytes), mib(self.map_bytes));
        }
        Ok(())
    }
}

/// A hash keeps its key and some 64 bytes with each value; that an array does not is not worth telling apart.
fn bytes(key_size: u32, value_size: u32, entries: u32) -> u64 {
    (u64::from(value_size).next_multiple_of(8) + u64::from(key_size) + 64)
        .saturating_mul(entries.into())
}

fn used(state: &State, own: &[Attachment], except: Option<u32>) -> u64 {
    let mut maps: BTreeMap<u32, u64> = BTreeMap::new();
    for attachment in own.iter().filter(|attachment| Some(attachment.id) != except) {
        let Ok(stored) = state.open(attachment.id) else { continue };
        for (_, map) in stored.maps.iter().filter(|(name, _)| !name.starts_with("hd_")) {
            let MapSpec { key_size, value_size, entries, .. } = *map.spec();
            maps.insert(map.id().unwrap_or(0), bytes(key_size, value_size, entries));
        }
    }
    maps.values().sum()
}

fn made(policy: &Object, shared: Option<&Maps>) -> u64 {
    let new = |name: &str| shared.is_none_or(|maps| !maps.contains_key(name));
    let maps = policy.maps.iter().filter(|map| new(&map.name));
    maps.map(|map| bytes(map.key_size, map.value_size, map.entries)).fold(0, u64::saturating_add)
}
