//! Permissions, as root and as an unprivileged user.

mod common;

use std::os::fd::{AsFd as _, OwnedFd};

use common::{
    Daemon, NOBODY, able, as_nobody, attach, compiled, copy, deployment, group, passed, shipped,
    steering_of_nobody, traffic,
};
use heddle_bpf::Map;
use heddle_steer::client::{Deployment, Steering};
use heddle_steer::hook::Hook;
use heddle_steer::process::serving;
use heddle_steer::request::{Error, ErrorKind, Request, Role};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.expect_err("refused").kind
}

fn number(name: &str) -> u32 {
    std::env::var(name).expect("given").parse().expect("a number")
}

#[test]
fn an_ordinary_user_steers_its_own_sockets_and_nothing_else() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let sockets = group(2, "127.0.0.1:0");
    let roots = attach(&daemon.steering(), "round-robin", &sockets).expect("attached");
    let given = [("ROOTS", roots.id.to_string()), ("PORT", roots.port().expect("one").to_string())];
    passed(as_nobody("nobody_alone", &daemon.socket(), &given));
    // Refused requests had no effect, and the ended ones left nothing behind.
    assert_eq!(traffic(&sockets, 20), [10, 10]);
    assert_eq!(daemon.steering().list().expect("listed"), [roots]);
    let one = vec![copy(&sockets[0])];
    daemon.steering().detach(number_of_first(&daemon.steering()), one).expect("detached");
    assert!(daemon.steering().list().expect("listed").is_empty());
}

fn number_of_first(steering: &Steering) -> u32 {
    steering.list().expect("listed").first().expect("one").id
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_alone() {
    let Some(steering) = steering_of_nobody() else { return };
    let roots = number("ROOTS");
    assert!(steering.list().expect("listed").is_empty());
    assert_eq!(kind(steering.detach(roots, Vec::new())), ErrorKind::Denied);
    assert_eq!(kind(steering.replace(roots, shipped("hash"))), ErrorKind::Denied);
    assert_eq!(kind(steering.stats(roots, 0)), ErrorKind::Denied);
    assert_eq!(kind(steering.maps(roots)), ErrorKind::Denied);
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let sockets = group(3, at);
        let socket = copy(&sockets[0]);
        let added = steering.add_executor(roots, None, "mine".into(), socket);
        assert_eq!(kind(added), ErrorKind::Denied);
        let attachment = attach(&steering, "jiq", &sockets).expect("attached");
        assert_eq!(attachment.uid, NOBODY);
        assert_eq!(traffic(&sockets, 30).iter().sum::<usize>(), 30);
        steering.replace(attachment.id, shipped("round-robin")).expect("replaced");
        assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
        // Where the kernel finds sockets is off limits: the user could make it read anything (I4 of the
        // engine).
        let maps = steering.maps(attachment.id).expect("maps");
        let names: Vec<&str> = maps.iter().map(|(info, _)| info.name.as_str()).collect();
        assert!(names.contains(&"hd_lines"), "{names:?}");
        let reserved = |name: &&&str| name.starts_with("hd_") && **name != "hd_lines";
        assert_eq!(names.iter().find(reserved), None);
        assert_eq!(kind(attach(&steering, "jiq", &sockets)), ErrorKind::Busy);
        let found = steering.list().expect("listed");
        assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [attachment.id]);
        steering.detach(attachment.id, vec![copy(&sockets[0])]).expect("detached");
    }
    // Another user's process, and a port without a socket of ours.
    let port = u16::try_from(number("PORT")).expect("a port");
    assert_eq!(serving(None, Some(port)).expect("looked"), []);
    // Left for the daemon to find dead.
    attach(&steering, "hash", &group(1, "127.0.0.1:0")).expect("attached");
}

#[test]
fn sockets_of_another_users_process_cannot_be_copied() {
    if !able() {
        return;
    }
    let sockets = group(1, "127.0.0.1:0");
    let port = sockets[0].local_addr().expect("bound").port();
    let serving = serving(Some(std::process::id()), Some(port)).expect("looked");
    assert_eq!(serving.len(), 1);
    let given = [("PID", serving[0].pid.to_string()), ("FD", serving[0].fd.to_string())];
    passed(as_nobody("nobody_copies", std::path::Path::new("/"), &given));
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_copies() {
    if steering_of_nobody().is_none() {
        return;
    }
    let pid = number("PID");
    let foreign = heddle_steer::process::Serving {
        pid,
        fd: number("FD").cast_signed(),
        protocol: heddle_steer::process::Protocol::Udp,
        address: "127.0.0.1:1".parse().expect("an address"),
        inode: 0,
        namespace: 0,
        holders: std::collections::BTreeSet::new(),
    };
    assert_eq!(kind(foreign.copy()), ErrorKind::Denied);
    assert_eq!(kind(serving(Some(pid), Some(1))), ErrorKind::Denied);
}

#[test]
fn users_are_held_to_their_quota_and_root_is_not() {
    if !able() {
        return;
    }
    let limits = ["--max-attachments", "2", "--max-executors", "3", "--max-map-mib", "1"];
    let daemon = Daemon::start(&[&["--everyone"], limits.as_slice()].concat());
    let groups: Vec<_> = (0..3).map(|_| group(2, "127.0.0.1:0")).collect();
    for sockets in &groups {
        attach(&daemon.steering(), "hash", sockets).expect("root may");
    }
    passed(as_nobody("nobody_wants_more", &daemon.socket(), &[]));
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_wants_more() {
    let Some(steering) = steering_of_nobody() else { return };
    let text = |result: Result<_, Error>| match result {
        Ok(()) => panic!("not refused"),
        Err(error) => (error.kind, error.text),
    };
    let refused = |result: Result<(), Error>, why: &str| {
        let (kind, text) = text(result);
        assert!(kind == ErrorKind::Denied && text.contains(why), "{text}");
    };
    let map = "HD_TABLE(big, u64, 60000);\nstatic u32 schedule(struct hd_in *in) \
        { u64 *n = hd_at(big, in->hash % 60000); return n ? *n : 0; }";
    let big = compiled(&map.replace("60000", "600000"));
    let sockets = group(2, "127.0.0.1:0");
    refused(steering.attach(deployment(big.clone(), &sockets)).map(drop), "MiB of maps");
    let first = steering.attach(deployment(compiled(map), &sockets)).expect("within").id;
    refused(steering.replace(first, big), "MiB of maps");
    steering.replace(first, compiled(map)).expect("the old map goes");
    let more = group(2, "127.0.0.1:0");
    refused(attach(&steering, "hash", &more).map(drop), "2 executors");
    let second = attach(&steering, "hash", &more[..1]).expect("within").id;
    let added = steering.add_executor(second, None, "one more".into(), copy(&more[1]));
    refused(added.map(drop), "3 executors");
    let third = group(1, "127.0.0.1:0");
    refused(attach(&steering, "hash", &third).map(drop), "2 attachments");
    steering.detach(second, Vec::new()).expect("detached");
    attach(&steering, "hash", &third).expect("there is room again");
}

#[test]
fn two_policies_of_a_user_share_a_map() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    passed(as_nobody("nobody_shares", &daemon.socket(), &[]));
}

const CHOICE: &str = "HD_MAP(choice, u32, 1);
static u32 schedule(struct hd_in *in) { u32 *k = hd_at(choice, 0); return k ? *k : HD_PASS; }";

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_shares() {
    let Some(steering) = steering_of_nobody() else { return };
    let (a, b) = (group(3, "127.0.0.1:0"), group(3, "[::1]:0"));
    let first = steering.attach(deployment(compiled(CHOICE), &a)).expect("attached");
    let choice = || steering.map(first.id, "choice").expect("its map").1;
    let second = steering.attach(deployment(compiled(CHOICE), &b).share("choice", choice()));
    let second = second.expect("attached").id;
    let map = Map::from_fd(choice()).expect("a map");
    for k in [2_u32, 1] {
        let mut value = vec![0; 64];
        value[..4].copy_from_slice(&k.to_ne_bytes());
        map.update(&0_u32.to_ne_bytes(), &value).expect("set");
        for sockets in [&a, &b] {
            assert_eq!(traffic(sockets, 5)[k as usize], 5);
        }
    }
    // Also if the map's first attachment is gone, and across a replacement.
    steering.detach(first.id, vec![copy(&a[0])]).expect("detached");
    steering.replace(second, compiled(CHOICE)).expect("replaced");
    assert_eq!(traffic(&b, 5), [0, 5, 0]);
    refuses_other_maps(&steering, &a, choice_of(&steering, second));
}

fn choice_of(steering: &Steering, id: u32) -> OwnedFd {
    steering.map(id, "choice").expect("its map").1
}

fn refuses_other_maps(steering: &Steering, sockets: &[std::net::UdpSocket], choice: OwnedFd) {
    let again = || choice.as_fd().try_clone_to_owned().expect("a copy");
    let refused = |policy, name: &str, fd, why: &str| {
        let given: Deployment = deployment(policy, sockets).share(name, fd);
        let text = steering.attach(given).expect_err("refused").text;
        assert!(text.contains(why), "{text}");
    };
    refused(compiled(CHOICE), "chance", again(), "declares no map `chance`; it has: choice");
    refused(shipped("jiq"), "hd_sockets", again(), "declares no map `hd_sockets`");
    let other = CHOICE.replace("u32, 1", "u32, 2");
    refused(compiled(&other), "choice", again(), "must be alike");
    refused(compiled(CHOICE), "choice", copy(&sockets[0]), "map `choice`");
}

#[test]
fn an_attachment_ends_with_its_owner() {
    if !able() {
        return;
    }
    let mut daemon = Daemon::start(&["--watch-ms", "20"]);
    let sockets = group(2, "127.0.0.1:0");
    let mut owner = std::process::Command::new("sleep").arg("1000").spawn().expect("started");
    let pidfd = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&owner),
        rustix::process::PidfdFlags::empty(),
    );
    let given = deployment(shipped("round-robin"), &sockets).with(Role::Owner, pidfd.expect("one"));
    daemon.steering().attach(given).expect("attached");
    // It is known after a restart too.
    daemon.kill();
    daemon.again();
    assert_eq!(traffic(&sockets, 10), [5, 5]);
    owner.kill().expect("killed");
    owner.wait().expect("ended");
    common::until("it is collected", || {
        daemon.log().contains("has ended: process")
            && daemon.steering().list().expect("listed").is_empty()
    });
    // One flow, and the kernel chooses.
    assert!(traffic(&sockets, 10).contains(&10));
}

#[test]
fn an_ended_attachment_is_reported_whichever_process_noticed() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--watch-ms", "500"]);
    let sockets = group(2, "127.0.0.1:0");
    let address = sockets[0].local_addr().expect("bound").to_string();
    let id = daemon.steering().attach(deployment(shipped("round-robin"), &sockets));
    let id = id.expect("attached").id;
    drop(sockets);
    // A list removes dead attachments before the daemon's check.
    common::until("it is dead", || daemon.steering().list().expect("listed").is_empty());
    let ended = daemon.steering().ended().expect("told");
    assert_eq!(ended.iter().map(|ended| ended.attachment.id).collect::<Vec<_>>(), [id]);
    let line = format!(
        "attachment {id} (round-robin at udp {address}) has ended: its last socket was closed"
    );
    common::until("the daemon says so", || daemon.log().contains(&line));
}

#[test]
fn only_permitted_users_can_connect() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    passed(as_nobody("nobody_is_kept_out", &daemon.socket(), &[]));
    let daemon = Daemon::start(&["--group", "65534"]);
    passed(as_nobody("nobody_lists", &daemon.socket(), &[]));
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_is_kept_out() {
    let Some(steering) = steering_of_nobody() else { return };
    let error = steering.list().expect_err("kept out");
    assert!(error.kind == ErrorKind::Denied && error.text.contains("join the group"), "{error}");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_lists() {
    let Some(steering) = steering_of_nobody() else { return };
    assert!(steering.list().expect("let in").is_empty());
}

#[test]
fn malformed_requests_are_refused() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let steering = daemon.steering();
    assert_eq!(kind(steering.detach(7, Vec::new())), ErrorKind::NotFound);
    let none = Deployment::new(shipped("hash"), Hook::SocketSelect);
    assert_eq!(kind(steering.attach(none)), ErrorKind::Invalid);
    let sockets = group(1, "127.0.0.1:0");
    let unknown = steering.attach(deployment(shipped("chance"), &sockets));
    assert_eq!(kind(unknown), ErrorKind::NotFound);
    let request = Request::Attach {
        policy: shipped("hash"),
        hook: Hook::SocketSelect,
        below: None,
        pid: 1,
        command: "\u{1b}[2J".into(),
        roles: vec![Role::Claim],
    };
    assert_eq!(kind(steering.serve(request, Vec::new())), ErrorKind::Invalid);
}
