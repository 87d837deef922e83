//! Failures that must not spread: clients that die, a daemon that is killed, policies that cost too much.
//! After each the server gets its inputs, and nothing is attached that is not listed.

mod common;

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{
    Daemon, EXE, SLOW, able, as_nobody, attach, compiled, copy, deployment, group, passed, shipped,
    steering_of_nobody, traffic, until,
};
use heddle_steer::client::wire::{self, Call, Reply};
use heddle_steer::client::{Connection, Steering};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Answer, ErrorKind, Request, Role, Status};

const SOON: Duration = heddle_test_support::PATIENCE;

#[test]
fn killed_under_load_heddled_loses_no_requests_and_recovers_all_attachments() {
    if !able() {
        return;
    }
    let mut daemon = Daemon::start(&[]);
    let groups = [group(3, "127.0.0.1:0"), group(3, "[::1]:0")];
    let attached: Vec<_> = groups
        .iter()
        .map(|sockets| attach(&daemon.steering(), "round-robin", sockets).expect("attached"))
        .collect();
    let end = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load: Vec<_> = groups
            .iter()
            .map(|sockets| {
                scope.spawn(move || {
                    let mut counts = vec![0; 3];
                    let mut sent = 0;
                    while !end.load(Ordering::Relaxed) || sent == 0 {
                        let more = traffic(sockets, 30);
                        assert_eq!(more, [10, 10, 10]);
                        counts.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
                        sent += 30;
                    }
                    (sent, counts)
                })
            })
            .collect();
        for _ in 0..2 {
            daemon.kill();
            daemon.again();
            assert_eq!(daemon.steering().list().expect("listed"), attached);
        }
        end.store(true, Ordering::Relaxed);
        for load in load {
            let (sent, counts) = load.join().expect("all arrived");
            assert_eq!(counts.iter().sum::<usize>(), sent);
        }
    });
    for (sockets, attachment) in groups.iter().zip(&attached) {
        let id = attachment.id;
        let stats = daemon.steering().stats(id, 0).expect("counts");
        assert!(stats.decisions() > 0 && stats.failed() == 0);
        daemon.steering().replace(id, shipped("hash")).expect("replaced");
        assert_eq!(traffic(sockets, 30).iter().sum::<usize>(), 30);
        daemon.steering().detach(id, vec![copy(&sockets[0])]).expect("detached");
    }
}

#[test]
fn on_sigterm_heddled_keeps_its_policies_and_removes_its_socket() {
    if !able() {
        return;
    }
    let mut daemon = Daemon::start(&[]);
    let sockets = group(3, "127.0.0.1:0");
    let attached = attach(&daemon.steering(), "round-robin", &sockets).expect("attached");
    daemon.stop();
    assert!(!daemon.socket().exists());
    assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
    daemon.again();
    assert_eq!(daemon.steering().list().expect("listed"), [attached]);
}

fn nothing_is_attached(daemon: &Daemon, sockets: &[std::net::UdpSocket]) {
    until("nothing is attached", || daemon.steering().list().expect("listed").is_empty());
    // One flow: only the kernel sends it to one socket.
    assert!(traffic(sockets, 12).contains(&12));
    let attached = attach(&daemon.steering(), "round-robin", sockets).expect("free");
    daemon.steering().detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
}

fn request(sockets: &[std::net::UdpSocket]) -> (Call, Vec<OwnedFd>) {
    let role = |index| Role::Executor { index, label: String::new() };
    let call = Call::Ask(Request::Attach {
        policy: shipped("round-robin"),
        hook: Hook::SocketSelect,
        below: None,
        pid: 1,
        command: String::new(),
        roles: (0..).map(role).take(sockets.len()).collect(),
    });
    (call, sockets.iter().map(copy).collect())
}

#[test]
fn a_client_that_exits_while_deploying_leaves_nothing() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let sockets = group(3, "127.0.0.1:0");
    // Half a message.
    let mut client = UnixStream::connect(daemon.socket()).expect("connected");
    client.write_all(b"HDS\x02\xff\x00\x00\x00{\"Ask\"").expect("written");
    drop(client);
    nothing_is_attached(&daemon, &sockets);
    // All of it, and gone before the answer.
    let (call, fds) = request(&sockets);
    let client = UnixStream::connect(daemon.socket()).expect("connected");
    wire::send(&client, &call, &fds, SOON).expect("sent");
    drop((client, fds));
    until("it was undone", || daemon.log().contains("undone"));
    nothing_is_attached(&daemon, &sockets);
    // After the answer, without acknowledging it.
    let (call, fds) = request(&sockets);
    let client = UnixStream::connect(daemon.socket()).expect("connected");
    wire::send(&client, &call, &fds, SOON).expect("sent");
    let answer = wire::receive::<Reply>(&client, SOON).expect("received").expect("an answer").0;
    assert!(matches!(answer, Ok(Answer::Attached(_))));
    drop((client, fds));
    until("it was undone", || daemon.log().matches("undone").count() == 2);
    nothing_is_attached(&daemon, &sockets);
}

#[test]
fn a_client_killed_while_deploying_leaves_nothing() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone", "--watch-ms", "20"]);
    for after_ms in [0, 1, 3, 10, 30, 100] {
        let mut child = as_nobody("nobody_deploys", &daemon.socket(), &[]);
        let mut said = Vec::new();
        let out = child.stdout.as_mut().expect("piped");
        while !said.ends_with(b"now\n") {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).expect("readable"), 1, "{said:?}");
            said.push(byte[0]);
        }
        std::thread::sleep(Duration::from_millis(after_ms));
        child.kill().expect("killed");
        child.wait().expect("ended");
        until("it is gone", || daemon.steering().list().expect("listed").is_empty());
    }
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_deploys() {
    let Some(steering) = steering_of_nobody() else { return };
    let sockets = group(3, "127.0.0.1:0");
    println!("now");
    loop {
        let attached = attach(&steering, "jiq", &sockets).expect("attached");
        steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
    }
}

#[test]
fn a_second_policy_is_refused_and_the_first_continues() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let sockets = group(3, "127.0.0.1:0");
    let first = attach(&daemon.steering(), "round-robin", &sockets).expect("attached");
    let second = attach(&daemon.steering(), "hash", &sockets[1..]).expect_err("refused");
    assert!(
        second.kind == ErrorKind::Busy && second.text.contains("heddle steer replace"),
        "{second}"
    );
    assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
    assert_eq!(daemon.steering().list().expect("listed"), [first]);
}

#[test]
fn an_expensive_policy_is_evicted_and_its_server_keeps_serving() {
    if !able() {
        return;
    }
    let limits =
        ["--watch-ms", "30", "--sample-ms", "30", "--evict-ns", "2000", "--evict-share", "0"];
    let daemon = Daemon::start(&limits);
    let (slow, quick) = (group(3, "127.0.0.1:0"), group(2, "[::1]:0"));
    let steering = daemon.steering();
    let heavy = steering.attach(deployment(compiled(SLOW), &slow)).expect("attached");
    let light = attach(&steering, "round-robin", &quick).expect("attached");
    let (mut sent, mut counts) = (0, vec![0; 3]);
    until("it is evicted", || {
        for _ in 0..20 {
            traffic(&slow, 50).iter().zip(&mut counts).for_each(|(n, sum)| *sum += n);
            sent += 50;
        }
        let list = steering.list().expect("listed");
        let of = |id| &list.iter().find(|one| one.id == id).expect("listed").status;
        matches!(of(heavy.id), Status::Evicted(why) if why.contains("ns a decision"))
    });
    assert_eq!(counts.iter().sum::<usize>(), sent);
    let decided = steering.stats(heavy.id, 0).expect("counts").decisions();
    assert_eq!(traffic(&slow, 30).iter().sum::<usize>(), 30);
    assert_eq!(steering.stats(heavy.id, 0).expect("counts").decisions(), decided);
    assert_eq!(traffic(&quick, 10), [5, 5]);
    // Its user may attach a better one.
    steering.replace(heavy.id, shipped("round-robin")).expect("replaced");
    assert_eq!(traffic(&slow, 30), [10, 10, 10]);
    let ids = [heavy.id, light.id];
    let list = steering.list().expect("listed");
    assert!(list.iter().all(|one| ids.contains(&one.id) && one.status == Status::Active));
}

#[test]
fn one_user_cannot_take_all_connections() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone", "--max-connections", "3"]);
    passed(as_nobody("nobody_connects", &daemon.socket(), &[]));
    daemon.steering().list().expect("root is served");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_connects() {
    let Some(path) = std::env::var_os(common::SOCKET) else { return };
    let path = std::path::PathBuf::from(path);
    let open = || Connection::open(&path).expect("connected");
    let held: Vec<_> = (0..3).map(|_| open()).collect();
    for connection in &held {
        connection.call(Request::List { after: 0 }, &[]).expect("served");
    }
    let error = open().call(Request::List { after: 0 }, &[]).expect_err("one too many");
    assert!(error.kind == ErrorKind::Busy && error.text.contains("too many"), "{error}");
    drop(held);
    until("there is room again", || open().call(Request::List { after: 0 }, &[]).is_ok());
}

#[test]
fn a_second_daemon_is_refused() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let folder = daemon.socket();
    let folder = folder.parent().expect("a folder");
    let second = Command::new(EXE)
        .args(["--socket", &folder.join("other").display().to_string()])
        .args(["--state", &folder.join("run").display().to_string()])
        .args(["--pins", &format!("/sys/fs/bpf/{}", folder.file_name().expect("one").display())])
        .output()
        .expect("it ran");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another heddled"), "{said}");
    daemon.steering().list().expect("the first serves on");
    // No other user can take its lock, or the state's.
    for lock in ["heddled.lock", "lock"] {
        let mode = std::fs::metadata(folder.join("run").join(lock)).expect("there").mode();
        assert_eq!(mode & 0o077, 0, "{lock}");
    }
}

#[test]
fn systemd_passes_the_socket_and_is_notified_of_readiness() {
    if !able() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let listener = UnixListener::bind(path("given")).expect("bound");
    let notified = std::os::unix::net::UnixDatagram::bind(path("notify")).expect("bound");
    notified.set_read_timeout(Some(SOON)).expect("a limit");
    let pins = format!("/sys/fs/bpf/heddled-test-{}-systemd", std::process::id());
    let script = "exec 3<&0; exec env LISTEN_PID=$$ LISTEN_FDS=1 \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, EXE, "--pins", &pins, "--state"]).arg(path("run"));
    command.arg("--socket").arg(path("unused")).env("NOTIFY_SOCKET", path("notify"));
    command.stdin(OwnedFd::from(listener)).process_group(0);
    let mut child = command.spawn().expect("started");
    let said = || {
        let mut text = [0; 64];
        let n = notified.recv(&mut text).expect("systemd is told");
        String::from_utf8_lossy(&text[..n]).into_owned()
    };
    assert_eq!(said(), "READY=1");
    assert!(!path("unused").exists());
    assert!(Steering::at(path("given")).list().expect("served").is_empty());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
    assert_eq!(said(), "STOPPING=1");
    assert!(child.wait().expect("ended").success());
    // The socket is systemd's, and stays.
    assert!(path("given").exists());
    let _ = std::fs::remove_dir(pins);
}

#[test]
fn heddled_works_without_locked_memory() {
    if !able() {
        return;
    }
    let daemon = Daemon::under(&["prlimit", "--memlock=0"], &[]);
    let sockets = group(3, "127.0.0.1:0");
    let attached = attach(&daemon.steering(), "round-robin", &sockets).expect("attached");
    assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
    daemon.steering().detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
}
