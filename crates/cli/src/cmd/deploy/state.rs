//! What there is now: the service's processes and sockets, attachments, and the enclave.

use std::collections::{BTreeMap, BTreeSet};

use heddle_agent::guardian::{Enclaves, Stage};
use heddle_steer::client::Steering;
use heddle_steer::hook::Hook;
use heddle_steer::process::Serving;
use heddle_steer::request::Attachment;

use super::file::{DeploymentFile, SteerSection};
use super::record::Record;
use super::service::{ServiceIdentity, ServiceProcesses};
use crate::cmd::steer::find::{self, Group};
use crate::cmd::steer::packets;
use crate::cmd::steer::selector::Selector;

/// What one attachment steers.
#[derive(Clone, Debug)]
pub struct SteerTarget {
    pub hook: Hook,
    /// `udp 127.0.0.1:8000`, or `udp port 8000 from eth0`.
    pub name: String,
    pub namespace: u64,
    /// One group of sockets; below sockets, all with the protocol and port.
    pub groups: Vec<Group>,
}

impl SteerTarget {
    /// Returns its sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Serving> {
        self.groups.iter().flat_map(|group| &group.sockets)
    }
}

/// The enclave with the deployment's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclaveState {
    pub policy: String,
    pub guardian: u32,
    pub guardian_began: Option<u64>,
    /// Whether an agent schedules; otherwise the threads were given back.
    pub is_active: bool,
}

/// What there is now.
pub struct Current {
    /// The service's processes, or why there are none.
    pub processes: Result<ServiceProcesses, String>,
    /// For each section its targets, or why there are none.
    pub targets: Vec<Result<Vec<SteerTarget>, String>>,
    pub attachments: Vec<Attachment>,
    /// The inodes of executors' open sockets, by attachment.
    pub executors: BTreeMap<u32, BTreeSet<u64>>,
    /// The other deployments that have attachments.
    pub owners: BTreeMap<u32, String>,
    pub enclave: Option<EnclaveState>,
    /// What else `heddle steer attach` would say.
    pub notes: Vec<String>,
}

impl Current {
    /// Looks at the machine. `others` are the other deployments' records.
    pub fn of(
        steering: &Steering,
        wanted: &DeploymentFile,
        identity: ServiceIdentity,
        others: &[Record],
    ) -> anyhow::Result<Self> {
        let processes = wanted.service.processes(&wanted.steer, identity);
        let mut notes = Vec::new();
        let mut section = |section: &SteerSection| match &processes {
            Ok(processes) => targets(section, processes, &mut notes),
            Err(why) => Err(why.clone()),
        };
        let targets = wanted.steer.iter().map(&mut section).collect();
        let attachments = steering.list().map_err(super::refused)?;
        let owners = others
            .iter()
            .flat_map(|record| record.attachments.iter().map(|one| (one.id, record.name.clone())));
        let executors = executors(steering, &attachments);
        let (owners, enclave) = (owners.collect(), enclave(&wanted.name));
        Ok(Self { processes, targets, attachments, executors, owners, enclave, notes })
    }

    /// Returns the attachment with a number.
    pub fn attachment(&self, id: u32) -> Option<&Attachment> {
        self.attachments.iter().find(|one| one.id == id)
    }

    /// Returns the attachment at the sockets of `target`, which may be anyone's.
    pub fn at_sockets(&self, target: &SteerTarget) -> Option<&Attachment> {
        let [group] = &target.groups[..] else { return None };
        if target.hook != Hook::SocketSelect {
            return None;
        }
        self.attachments.iter().find(|one| {
            one.hook == Hook::SocketSelect
                && one.protocol == group.protocol.name()
                && one.address == group.address.to_string()
                && one.namespace == target.namespace
        })
    }
}

fn executors(steering: &Steering, attachments: &[Attachment]) -> BTreeMap<u32, BTreeSet<u64>> {
    let of = |attachment: &Attachment| {
        // It may have ended meanwhile.
        let stats = steering.stats(attachment.id, 0).ok()?;
        let open = stats.executors.iter().filter(|one| one.present).map(|one| one.socket);
        Some((attachment.id, open.collect()))
    };
    let at_sockets = attachments.iter().filter(|one| one.hook == Hook::SocketSelect);
    at_sockets.filter_map(of).collect()
}

/// Returns the targets of a section.
pub fn targets(
    section: &SteerSection,
    processes: &ServiceProcesses,
    notes: &mut Vec<String>,
) -> Result<Vec<SteerTarget>, String> {
    let selector = Selector { processes: processes.all.clone(), ..section.selector.clone() };
    let failed = |error: anyhow::Error| format!("{error:#}");
    if let Some(packets) = &section.packets {
        let (targets, more) = packets::targets(&selector).map_err(failed)?;
        notes.extend(more);
        let target = |groups: Vec<Group>| {
            let (protocol, port) = (groups[0].protocol.name(), groups[0].address.port());
            let name = format!("{protocol} port {port} from {}", packets.interface);
            SteerTarget { hook: section.hook(), name, namespace: groups[0].namespace(), groups }
        };
        return Ok(targets.into_iter().map(target).collect());
    }
    let find::Eligible { groups, notes: more } = find::eligible(&selector).map_err(failed)?;
    notes.extend(more);
    let target = |group: Group| SteerTarget {
        hook: section.hook(),
        name: group.name(),
        namespace: group.namespace(),
        groups: vec![group],
    };
    Ok(groups.into_iter().map(target).collect())
}

/// Returns the enclave called `name`, unless its guardian has ended.
pub fn enclave(name: &str) -> Option<EnclaveState> {
    let entries = Enclaves::here().list();
    let entry = entries.into_iter().find(|entry| entry.record.name == name && !entry.dead)?;
    let record = entry.record;
    Some(EnclaveState {
        policy: record.policy,
        guardian: record.guardian,
        guardian_began: record.guardian_began,
        is_active: record.stage != Stage::GivenBack,
    })
}
