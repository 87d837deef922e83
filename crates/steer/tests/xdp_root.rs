//! The root of an interface: attaching, recovering and removing it.

#[path = "common/net.rs"]
mod common;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{deploy, near, network, policy, udp, until};
use heddle_bpf::{Program, ProgramKind, ProgramSpec, XdpPrograms, xdp_programs};
use heddle_netns::{NEAR, NEAR4, Pair};
use heddle_steer::hook::xdp::{
    AttachError, ClaimError, Executors, Holders, Mode, OffloadRefused, PolicyError, Root, claims,
    free_slot, load_policy, probe_offload, put_claim, put_policy, take_claims, take_policy,
};
use heddle_steer::policy::{LinkError, LoadError, Maps};

fn programs(net: &Pair) -> XdpPrograms {
    let interface = near(net);
    interface.run(|| xdp_programs(interface.index())).unwrap()
}

fn is_bare(net: &Pair) -> bool {
    let there = programs(net);
    there.native.is_none() && there.generic.is_none() && there.offloaded.is_none()
}

const RUN: &str = "/run/heddle-test-xdp";

/// A temporary folder on a BPF file system.
struct Pins(PathBuf);

impl Pins {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from("/sys/fs/bpf");
        heddle_steer::engine::State::at(RUN, folder.join("heddle-test-xdp")).prepare().unwrap();
        Self(folder.join("heddle-test-xdp").join(format!("{name}-{}", std::process::id())))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = Root::unpin(&self.0);
        // Removes the folders, if no other test uses them.
        for folder in self.0.ancestors().take(2).chain([std::path::Path::new(RUN)]) {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A private BPF file system.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("bpf", folder.path(), "bpf", flags, None).unwrap();
        Self(folder)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_root_is_removed_with_its_last_owner() {
    let Some(net) = network(1) else { return };
    for mode in [Mode::Native, Mode::Generic] {
        let root = Root::attach(&near(&net), Some(mode)).unwrap();
        assert_eq!(root.mode(&near(&net)).unwrap(), Some(mode));
        drop(root);
        until("an interface without a program", || is_bare(&net));
    }
}

#[test]
fn a_second_program_is_refused_naming_the_first() {
    let Some(net) = network(1) else { return };
    // Another user's, attached as is usual: without a link.
    let pass = [0x0000_0002_0000_00b7, 0x95];
    let spec = ProgramSpec {
        name: "their_filter",
        kind: ProgramKind::Xdp,
        instructions: &pass,
        functions: &[],
    };
    let theirs = Program::load(&spec).unwrap();
    // `ip -n` has another /sys, without the pins in it.
    let mounted = Mounted::new();
    let file = mounted.0.path().join("theirs");
    theirs.pin(&file).unwrap();
    for (kind, mode) in [("xdpdrv", Mode::Native), ("xdpgeneric", Mode::Generic)] {
        net.near.ip(&format!("link set dev {NEAR} {kind} pinned {}", file.display())).unwrap();
        for wanted in [None, Some(Mode::Native), Some(Mode::Generic)] {
            let error = Root::attach(&near(&net), wanted).unwrap_err();
            let AttachError::Taken { name, id, mode: found, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((name.as_str(), *found), ("their_filter", mode));
            let text = error.to_string();
            let advice = format!("ip link set dev {NEAR} {kind} off");
            assert!(text.contains(&id.to_string()) && text.contains(&advice), "{text}");
        }
        let there = programs(&net);
        assert!(there.native.or(there.generic).is_some(), "theirs is still there");
        net.near.ip(&format!("link set dev {NEAR} {kind} off")).unwrap();
    }
    let ours = Root::attach(&near(&net), Some(Mode::Generic)).unwrap();
    let second = Root::attach(&near(&net), None).unwrap_err();
    assert!(second.to_string().contains("hd_root"), "{second}");
    drop(ours);
}

#[test]
fn a_pinned_root_is_recovered_whole_and_removed_without_a_trace() {
    let Some(net) = network(1) else { return };
    let pins = Pins::new("again");
    let folder = pins.0.join(near(&net).key().unwrap());
    assert!(Root::open(&folder).unwrap().is_none());
    {
        let root = Root::attach(&near(&net), None).unwrap();
        root.pin(&folder).unwrap();
        let (program, _) = deploy("hash", Executors::Sockets, 1);
        put_policy(&root.maps, 5, &program).unwrap();
        put_claim(&root.maps, &udp(NEAR4, 80), 5, Holders::default()).unwrap();
    }
    let root = Root::open(&folder).unwrap().unwrap();
    assert_eq!(root.mode(&near(&net)).unwrap(), Some(Mode::Native));
    assert_eq!(claims(&root.maps).unwrap(), [(udp(NEAR4, 80), 5)]);
    assert!(take_policy(&root.maps, 5).unwrap(), "the policy outlived who put it there");

    // It is on the interface as long as the root is held or pinned.
    Root::unpin(&folder).unwrap();
    assert!(!is_bare(&net) && !folder.exists());
    drop(root);
    until("an interface without a program", || is_bare(&net));

    // A root that is detached, or whose interface is gone, is not recovered.
    let root = Root::attach(&near(&net), None).unwrap();
    root.pin(&folder).unwrap();
    root.detach().unwrap();
    assert!(is_bare(&net) && Root::open(&folder).unwrap().is_none() && !folder.exists());
    Root::attach(&near(&net), None).unwrap().pin(&folder).unwrap();
    net.near.ip(&format!("link del {NEAR}")).unwrap();
    assert!(Root::open(&folder).unwrap().is_none() && !folder.exists());
}

/// The other half of the test below, in a separate process.
#[test]
#[ignore = "a part of another test"]
fn holds_a_root_until_killed() {
    let file = std::env::var_os("HEDDLE_TEST_NETNS").expect("the namespace's file");
    let namespace = heddle_steer::hook::xdp::Interface::namespace(file.as_ref()).unwrap();
    let interface = heddle_steer::hook::xdp::Interface::by_name(NEAR, Some(namespace)).unwrap();
    let _root = Root::attach(&interface, None).unwrap();
    loop {
        // It may return spuriously.
        std::thread::park();
    }
}

#[test]
fn a_root_dies_with_its_process_unless_pinned() {
    let Some(net) = network(1) else { return };
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "holds_a_root_until_killed"])
        .env("HEDDLE_TEST_NETNS", net.near.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the other process's root", || !is_bare(&net));
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("an interface without a program", || is_bare(&net));
}

#[test]
fn a_port_has_one_owner() {
    let Some(net) = network(1) else { return };
    let root = Root::attach(&near(&net), None).unwrap();
    put_claim(&root.maps, &udp(NEAR4, 80), 1, Holders::default()).unwrap();
    for wanted in [udp(NEAR4, 80), udp([0; 4], 80)] {
        let refused = put_claim(&root.maps, &wanted, 2, Holders::default()).unwrap_err();
        assert!(matches!(refused, ClaimError::Taken { .. }), "{refused}");
    }
    put_claim(&root.maps, &udp([10, 77, 0, 9], 80), 2, Holders::default()).unwrap();
    put_claim(&root.maps, &udp([0; 16], 80), 0, Holders::default()).unwrap();
    assert_eq!(free_slot(&root.maps, &[]).unwrap(), Some(3));
    take_claims(&root.maps, 1).unwrap();
    assert_eq!(free_slot(&root.maps, &[]).unwrap(), Some(1));
    assert_eq!(free_slot(&root.maps, &[1]).unwrap(), Some(3));
    put_claim(&root.maps, &udp(NEAR4, 80), 7, Holders::default()).unwrap();
    let mut there = claims(&root.maps).unwrap();
    there.sort_by_key(|(_, slot)| *slot);
    assert_eq!(there, [(udp([0; 16], 80), 0), (udp([10, 77, 0, 9], 80), 2), (udp(NEAR4, 80), 7)]);
}

fn asks_sockets(policy: &str) -> bool {
    let source = heddle_steer::policy::shipped_source(policy).unwrap();
    source.contains("hd_idle(") || source.contains("hd_qlen(")
}

#[test]
fn every_policy_loads_here_or_says_why_not() {
    if heddle_netns::missing_privilege().is_some() {
        eprintln!("SKIPPED: needs root");
        return;
    }
    for name in heddle_steer::policy::shipped_names() {
        for executors in [Executors::Cpus, Executors::Sockets] {
            match load_policy(name, (executors, Mode::Native), &policy(name), &mut Maps::new()) {
                Ok(_) => assert!(!asks_sockets(name), "{name}"),
                Err(PolicyError::Load(LoadError::Link(LinkError::NoSockets(_)))) => {
                    assert!(asks_sockets(name))
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

#[test]
fn offload_is_refused_with_an_alternative() {
    let Some(net) = network(1) else { return };
    let refused = probe_offload(&near(&net)).unwrap_err();
    assert!(matches!(refused, OffloadRefused::NoSuchCard { .. }), "{refused}");
    assert!(refused.to_string().contains("xdp-drv"), "{refused}");
    assert!(is_bare(&net));
}
