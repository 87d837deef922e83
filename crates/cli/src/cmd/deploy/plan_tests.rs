//! The plan, from made-up states.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use heddle_steer::hook::Hook;
use heddle_steer::process::{Protocol, Serving};
use heddle_steer::request::{Attachment, Status};

use super::super::file::{DeploymentFile, PolicySource};
use super::super::record::{AgentRecord, Record};
use super::super::service::{ServiceIdentity, ServiceProcesses};
use super::super::state::EnclaveState;
use super::*;
use crate::cmd::steer::find::Group;

const NAMESPACE: u64 = 7;

fn file(text: &str) -> DeploymentFile {
    DeploymentFile::parse(Path::new("/a/kv.toml"), text.into(), &PolicySource::Files).unwrap()
}

fn steer(policy: &str) -> String {
    format!("[[steer]]\nname = \"a\"\nport = 80\npolicy = \"{policy}\"\n")
}

fn agent(policy: &str, more: &str) -> String {
    format!("[service]\npid = 1\n{}[agent]\npolicy = \"{policy}\"\n{more}", steer("hash"))
}

/// Sockets with these inodes at port 80.
fn target(inodes: &[u64]) -> SteerTarget {
    let address = "127.0.0.1:80".parse().unwrap();
    let socket = |inode: &u64| Serving {
        pid: 1,
        fd: 3,
        protocol: Protocol::Tcp,
        address,
        inode: *inode,
        namespace: NAMESPACE,
        holders: BTreeSet::from([1]),
    };
    let sockets = inodes.iter().map(socket).collect();
    let group = Group { protocol: Protocol::Tcp, address, sockets };
    SteerTarget {
        hook: Hook::SocketSelect,
        name: group.name(),
        namespace: NAMESPACE,
        groups: vec![group],
    }
}

fn attachment(id: u32, policy: &str) -> Attachment {
    Attachment {
        id,
        hook: Hook::SocketSelect,
        policy: policy.into(),
        parameters: Vec::new(),
        uid: rustix::process::geteuid().as_raw(),
        pid: 1,
        command: String::new(),
        protocol: "tcp".into(),
        address: "127.0.0.1:80".into(),
        interface: None,
        executors: Vec::new(),
        sockets: Vec::new(),
        namespace: NAMESPACE,
        since_ms: 0,
        status: Status::Active,
        owner: None,
        slot: None,
        map_bytes: 0,
        maps: Vec::new(),
    }
}

/// A service with two sockets, which are the executors of `attachments`.
fn current(attachments: Vec<Attachment>) -> Current {
    let executors = attachments.iter().map(|one| (one.id, BTreeSet::from([11, 12]))).collect();
    Current {
        processes: Ok(ServiceProcesses::default()),
        targets: vec![Ok(vec![target(&[11, 12])])],
        attachments,
        executors,
        owners: BTreeMap::new(),
        enclave: None,
        notes: Vec::new(),
    }
}

/// The record of `file`, whose section has attachment `id`.
fn record(file: &DeploymentFile, id: u32) -> Record {
    Record {
        schema: 1,
        name: file.name.clone(),
        file: file.path.clone(),
        text: file.text.clone(),
        policies: file.policies(),
        service: ServiceIdentity::default(),
        complete: true,
        since_ms: 0,
        attachments: vec![AttachmentRecord {
            section: "a".into(),
            target: "tcp 127.0.0.1:80".into(),
            namespace: NAMESPACE,
            id,
        }],
        agent: file.agent.as_ref().map(|_| AgentRecord {
            enclave: file.name.clone(),
            guardian: 50,
            guardian_began: Some(1),
            class_map: None,
        }),
        problems: BTreeMap::new(),
    }
}

fn enclave(policy: &str) -> EnclaveState {
    EnclaveState { policy: policy.into(), guardian: 50, guardian_began: Some(1), is_active: true }
}

/// The signs and texts of the steps from `old`, which was applied, to `wanted`.
fn steps(wanted: &DeploymentFile, old: Option<&DeploymentFile>, current: &Current) -> Vec<String> {
    let record = old.map(|old| record(old, 3));
    let plan = plan(wanted, current, record.as_ref(), old).unwrap();
    plan.steps.iter().map(|step| format!("{} {}", step.sign(), step.what)).collect()
}

#[test]
fn what_is_missing_is_attached_and_what_is_equal_stays() {
    let wanted = file(&steer("hash"));
    let there = current(vec![attachment(3, "hash")]);
    let attach = ["+ attach hash to 2 sockets at tcp 127.0.0.1:80"];
    assert_eq!(steps(&wanted, None, &current(Vec::new())), attach);
    assert_eq!(steps(&wanted, Some(&wanted), &current(Vec::new())), attach, "it has ended");
    assert!(steps(&wanted, Some(&wanted), &there).is_empty());
}

#[test]
fn another_policy_and_an_evicted_one_are_replaced_under_the_same_number() {
    let (old, wanted) = (file(&steer("hash")), file(&steer("jiq")));
    let there = current(vec![attachment(3, "hash")]);
    let replace = ["~ replace hash by jiq at tcp 127.0.0.1:80, attachment 3"];
    assert_eq!(steps(&wanted, Some(&old), &there), replace);
    // Replaced by hand since.
    let by_hand = current(vec![attachment(3, "round-robin")]);
    let replace = ["~ replace round-robin by hash at tcp 127.0.0.1:80, attachment 3"];
    assert_eq!(steps(&old, Some(&old), &by_hand), replace);
    let evicted = Attachment { status: Status::Evicted("slow".into()), ..attachment(3, "hash") };
    let replace = ["~ replace hash (changed) at tcp 127.0.0.1:80, attachment 3"];
    assert_eq!(steps(&old, Some(&old), &current(vec![evicted])), replace);
}

#[test]
fn new_sockets_are_added() {
    let wanted = file(&steer("hash"));
    let mut there = current(vec![attachment(3, "hash")]);
    there.targets = vec![Ok(vec![target(&[11, 13, 14])])];
    let add = ["~ add 2 sockets at tcp 127.0.0.1:80 to attachment 3"];
    assert_eq!(steps(&wanted, Some(&wanted), &there), add);
}

#[test]
fn what_the_file_does_not_have_is_detached_last() {
    let old = file(&steer("hash"));
    let wanted = file(&steer("hash").replace("\"a\"", "\"b\"").replace("80", "81"));
    let mut there = current(vec![attachment(3, "hash")]);
    let mut other = target(&[21, 22]);
    other.name = "tcp 127.0.0.1:81".into();
    other.groups[0].address = "127.0.0.1:81".parse().unwrap();
    there.targets = vec![Ok(vec![other])];
    let expected = [
        "+ attach hash to 2 sockets at tcp 127.0.0.1:81",
        "- detach hash from tcp 127.0.0.1:80, attachment 3",
    ];
    assert_eq!(steps(&wanted, Some(&old), &there), expected);
}

#[test]
fn a_section_keeps_its_attachment_under_another_name() {
    let old = file(&steer("hash"));
    let wanted = file(&steer("hash").replace("\"a\"", "\"b\""));
    let there = current(vec![attachment(3, "hash")]);
    assert!(steps(&wanted, Some(&old), &there).is_empty());
    let record = record(&old, 3);
    let plan = plan(&wanted, &there, Some(&record), Some(&old)).unwrap();
    assert_eq!((plan.kept[0].section.as_str(), plan.kept[0].id), ("b", 3));
}

#[test]
fn attachments_of_others_are_not_taken() {
    let wanted = file(&steer("hash"));
    let refused = |current: &Current| {
        let error = plan(&wanted, current, None, None).unwrap_err();
        error.to_string()
    };
    let mut there = current(vec![attachment(3, "hash")]);
    assert_eq!(steps(&wanted, None, &there).len(), 1, "one that no deployment has is adopted");
    there.owners = BTreeMap::from([(3, "other".into())]);
    assert!(
        refused(&there).contains("/a/kv.toml:1: `a`: attachment 3 at tcp 127.0.0.1:80 belongs")
    );
    let user = Attachment { uid: u32::MAX - 7, ..attachment(3, "hash") };
    assert!(refused(&current(vec![user])).contains("detach it first"));
    // The code of a file cannot be read back, so a failure later could not restore it.
    assert!(refused(&current(vec![attachment(3, "mine")])).contains("could not be restored"));
}

#[test]
fn an_absent_service_leaves_what_is_attached() {
    let wanted = file(&steer("hash"));
    let mut there = current(vec![attachment(3, "hash")]);
    there.targets = vec![Err("no process".into())];
    let record = record(&wanted, 3);
    let plan = plan(&wanted, &there, Some(&record), Some(&wanted)).unwrap();
    assert!(plan.steps.is_empty() && plan.kept.len() == 1);
    assert_eq!(plan.absent, [("a".to_owned(), "no process".to_owned())]);
}

#[test]
fn an_agent_is_started_upgraded_or_restarted() {
    let wanted = file(&agent("fifo", ""));
    let mut there = current(vec![attachment(3, "hash")]);
    let start = ["+ start enclave `kv` with fifo, for process 1"];
    assert_eq!(steps(&wanted, Some(&wanted), &there), start);
    there.enclave = Some(enclave("fifo"));
    assert!(steps(&wanted, Some(&wanted), &there).is_empty());
    let other = file(&agent("priority", ""));
    let upgrade = ["~ replace fifo by priority in enclave `kv`"];
    assert_eq!(steps(&other, Some(&wanted), &there), upgrade);
    let options = file(&agent("fifo", "cpus = \"1\"\n"));
    assert_eq!(steps(&options, Some(&wanted), &there), ["~ restart enclave `kv` with fifo"]);
    let map = file(&agent("fifo", "class-map = \"a\"\n"));
    assert_eq!(steps(&map, Some(&map), &there), ["~ restart enclave `kv` with fifo"], "3 is new");
    there.enclave = Some(EnclaveState { is_active: false, ..enclave("fifo") });
    assert_eq!(steps(&wanted, Some(&wanted), &there), ["~ restart enclave `kv` with fifo"]);
    let none = file(&format!("[service]\npid = 1\n{}", steer("hash")));
    assert_eq!(steps(&none, Some(&wanted), &there), ["- stop enclave `kv`"]);
    // Of the same name, but not the deployment's.
    there.enclave = Some(EnclaveState { guardian: 51, ..enclave("fifo") });
    let record = record(&wanted, 3);
    let error = plan(&wanted, &there, Some(&record), Some(&wanted)).unwrap_err();
    assert!(error.to_string().contains("did not start"), "{error}");
    assert!(steps(&none, Some(&wanted), &there).is_empty(), "another's is not stopped");
}

#[test]
fn removal_takes_away_what_is_there_in_reverse() {
    let wanted = file(&agent("fifo", ""));
    let record = record(&wanted, 3);
    let mut there = current(vec![attachment(3, "hash"), attachment(4, "hash")]);
    there.enclave = Some(enclave("fifo"));
    let whats: Vec<String> =
        removal(&record, &there).steps.into_iter().map(|step| step.what).collect();
    assert_eq!(
        whats,
        ["stop enclave `kv`", "detach hash from tcp 127.0.0.1:80, attachment 3"],
        "4 is not the deployment's"
    );
    assert!(removal(&record, &current(Vec::new())).steps.is_empty());
}
