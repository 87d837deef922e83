//! Attacks on heddled and on other users by many or unusual requests. Each was carried out.

mod common;

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{
    Daemon, EXE, NOBODY, SLOW, able, as_nobody, attach, compiled, copy, deployment, end, group,
    passed, shipped, start_as_nobody, steering_of_nobody, traffic, until,
};
use heddle_steer::client::wire::{self, Call, MAX_FDS};
use heddle_steer::client::{Connection, Steering};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Attachment, Error, ErrorKind, Policy, Request, Role, Status};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

fn ids(steering: &Steering) -> Vec<u32> {
    steering.list().expect("listed").iter().map(|attachment| attachment.id).collect()
}

#[test]
fn descriptors_in_partial_messages_end_no_policy() {
    if !able() {
        return;
    }
    let daemon = Daemon::under(&["prlimit", "--nofile=1024:1024"], &["--everyone"]);
    let sockets = group(3, "127.0.0.1:0");
    let pid = rustix::process::getpid();
    let me = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let owned =
        deployment(shipped("round-robin"), &sockets).with(Role::Owner, me.expect("a pidfd"));
    let id = daemon.steering().attach(owned).expect("attached").id;
    let attack = start_as_nobody("nobody_sends_half_messages", &daemon, &[]);
    for _ in 0..3 {
        assert_eq!(ids(&daemon.steering()), [id]);
        assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
    }
    end(attack);
    assert_eq!(ids(&daemon.steering()), [id]);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_sends_half_messages() {
    let Some(path) = std::env::var_os(common::SOCKET) else { return };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut held = Vec::new();
    // A few of a thousand descriptors are left, but too few to check all attachments at once.
    for fds in [[MAX_FDS; 10].as_slice(), &[24, 4]].concat() {
        let Ok(client) = UnixStream::connect(&path) else { break };
        let fds = vec![socket.as_fd(); fds];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let half = [std::io::IoSlice::new(b"HDS")];
        // A refused one is closed.
        let _ = sendmsg(&client, &half, &mut control, SendFlags::NOSIGNAL);
        held.push(client);
    }
    std::thread::sleep(Duration::from_millis(200));
    println!("\nnow");
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn a_user_with_busy_sockets_delays_no_other_user() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let attack = start_as_nobody("nobody_adds_busy_sockets", &daemon, &[]);
    let sockets = group(2, "127.0.0.1:0");
    for _ in 0..3 {
        let id = attach(&daemon.steering(), "round-robin", &sockets).expect("attached").id;
        assert!(ids(&daemon.steering()).contains(&id));
        daemon.steering().detach(id, vec![copy(&sockets[0])]).expect("detached");
    }
    end(attack);
}

/// A socket in another process's map is busy as long as the map exists; heddled waits some seconds for it.
#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_adds_busy_sockets() {
    let Some(steering) = steering_of_nobody() else { return };
    let sockets = group(2, "127.0.0.1:0");
    let at = sockets[0].local_addr().expect("bound").to_string();
    let other = group(1, &at);
    let first = attach(&steering, "hash", &sockets).expect("attached").id;
    let second = attach(&steering, "hash", &other).expect("attached").id;
    println!("\nnow");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..15 {
            let (steering, sockets, other, ends) = (&steering, &sockets, &other, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let (id, socket) =
                        if n % 2 == 0 { (first, &other[0]) } else { (second, &sockets[0]) };
                    let _ = steering.add_executor(id, None, "busy".into(), copy(socket));
                }
            });
        }
    });
}

#[test]
fn a_lingering_close_delays_no_other_user() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone", "--max-connections", "2"]);
    let attack = start_as_nobody("nobody_lingers", &daemon, &[]);
    let sockets = group(3, "127.0.0.1:0");
    let id = attach(&daemon.steering(), "round-robin", &sockets).expect("attached").id;
    assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
    daemon.steering().detach(id, vec![copy(&sockets[0])]).expect("detached");
    end(attack);
}

/// A socket that takes a quarter of an hour to close: its last bytes are never read. The listener keeps the
/// other end.
fn lingering(listener: &TcpListener) -> OwnedFd {
    let address = listener.local_addr().expect("bound");
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_nonblocking(true).expect("non-blocking");
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).expect("blocking");
    set_socket_linger(&stream, Some(Duration::from_secs(900))).expect("lingers");
    stream.into()
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_lingers() {
    let Some(path) = std::env::var_os(common::SOCKET) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let send = |client: &UnixStream, fd: OwnedFd| {
        let call = Call::Ask(Request::Attach {
            policy: shipped("round-robin"),
            hook: Hook::SocketSelect,
            below: None,
            pid: 1,
            command: String::new(),
            roles: vec![Role::Executor { index: 0, label: String::new() }],
        });
        let fds = [fd];
        let _ = wire::send(client, &call, &fds, Duration::from_secs(5));
        // If heddled did not receive it, it lingers here.
        std::thread::spawn(move || drop(fds));
    };
    // One that is refused after it was read, and then many that are refused on arrival.
    let mut held = vec![UnixStream::connect(&path).expect("connected")];
    send(&held[0], lingering(&listener));
    for _ in 0..20 {
        let fd = lingering(&listener);
        if let Ok(client) = UnixStream::connect(&path) {
            send(&client, fd);
            held.push(client);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    println!("\nnow");
    std::thread::sleep(Duration::from_secs(90));
}

#[test]
fn a_slow_policy_is_evicted_however_rarely_it_decides() {
    if !able() {
        return;
    }
    let limits =
        ["--watch-ms", "20", "--sample-ms", "20", "--evict-ns", "1500", "--evict-share", "0"];
    let daemon = Daemon::start(&limits);
    let sockets = group(3, "127.0.0.1:0");
    let steering = daemon.steering();
    let id = steering.attach(deployment(compiled(SLOW), &sockets)).expect("attached").id;
    // Hardly ever more than one decision per sample.
    until("it is evicted", || {
        traffic(&sockets, 1);
        std::thread::sleep(Duration::from_millis(20));
        let list = steering.list().expect("listed");
        list.iter().any(|one| one.id == id && matches!(one.status, Status::Evicted(_)))
    });
}

#[test]
fn a_users_slow_policy_cannot_hide_between_checks_or_behind_a_fast_one() {
    if !able() {
        return;
    }
    // A sample would catch one decision in a thousand.
    let limits = ["--everyone", "--watch-ms", "1000", "--sample-ms", "1", "--evict-ns", "1500"];
    let daemon = Daemon::start(&[&limits[..], &["--evict-share", "0"]].concat());
    passed(as_nobody("nobody_is_slow_now_and_then", &daemon.socket(), &[]));
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_is_slow_now_and_then() {
    let Some(steering) = steering_of_nobody() else { return };
    let (slow, quick) = (group(2, "127.0.0.1:0"), group(2, "127.0.0.1:0"));
    attach(&steering, "round-robin", &quick).expect("attached");
    let id = steering.attach(deployment(compiled(SLOW), &slow)).expect("attached").id;
    until("it is evicted", || {
        traffic(&slow, 1);
        traffic(&quick, 10);
        std::thread::sleep(Duration::from_millis(50));
        let list = steering.list().expect("listed");
        list.iter().any(|one| one.id == id && matches!(one.status, Status::Evicted(_)))
    });
}

#[test]
fn a_slow_policy_that_detaches_before_each_check_bars_its_user_for_a_while() {
    if !able() {
        return;
    }
    let limits = ["--everyone", "--watch-ms", "1000", "--evict-ns", "1500", "--evict-share", "0"];
    let daemon = Daemon::start(&limits);
    passed(as_nobody("nobody_is_slow_and_gone", &daemon.socket(), &[]));
    // No other user is.
    let sockets = group(2, "127.0.0.1:0");
    attach(&daemon.steering(), "round-robin", &sockets).expect("attached");
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_is_slow_and_gone() {
    let Some(steering) = steering_of_nobody() else { return };
    let (policy, sockets) = (compiled(SLOW), group(2, "127.0.0.1:0"));
    until("nothing more may be attached", || {
        match steering.attach(deployment(policy.clone(), &sockets)) {
            Ok(attached) => {
                traffic(&sockets, 10);
                steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
                false
            }
            Err(error) => {
                assert!(error.text.contains("ended before it could be taken away"), "{error}");
                true
            }
        }
    });
}

#[test]
fn a_map_counts_while_any_process_holds_it() {
    if !able() {
        return;
    }
    let mut daemon = Daemon::start(&["--everyone", "--max-map-mib", "10"]);
    passed(as_nobody("nobody_keeps_maps", &daemon.socket(), &[]));
    let attack = start_as_nobody("nobody_keeps_maps_for_long", &daemon, &[]);
    // A restarted heddled knows of them too.
    daemon.kill();
    daemon.again();
    passed(as_nobody("nobody_has_no_room", &daemon.socket(), &[]));
    end(attack);
    let room = || as_nobody("nobody_keeps_maps", &daemon.socket(), &[]);
    until("the maps are gone", || room().wait_with_output().expect("ended").status.success());
}

const BIG: &str = "HD_TABLE(big, u64, 524288);\nstatic u32 schedule(struct hd_in *in) \
    { u64 *n = hd_at(big, in->hash % 524288); return n ? *n : 0; }";

/// Maps of policies that were attached and detached, one after the other until one is refused.
fn keep_maps(steering: &Steering) -> (Vec<OwnedFd>, Error) {
    let (sockets, big) = (group(1, "127.0.0.1:0"), compiled(BIG));
    let mut kept = Vec::new();
    for _ in 0..20 {
        match steering.attach(deployment(big.clone(), &sockets)) {
            Ok(attached) => {
                kept.push(steering.map(attached.id, "big").expect("a map").1);
                steering.detach(attached.id, vec![copy(&sockets[0])]).expect("detached");
            }
            Err(error) => return (kept, error),
        }
    }
    panic!("{} maps of 4 MiB, and no end", kept.len());
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_keeps_maps() {
    let Some(steering) = steering_of_nobody() else { return };
    let (kept, error) = keep_maps(&steering);
    assert!(error.kind == ErrorKind::Denied && error.text.contains("MiB of maps"), "{error}");
    assert_eq!(kept.len(), 2);
    drop(kept);
    until("there is room again", || {
        let sockets = group(1, "127.0.0.1:0");
        steering.attach(deployment(compiled(BIG), &sockets)).is_ok()
    });
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_keeps_maps_for_long() {
    let Some(steering) = steering_of_nobody() else { return };
    let _kept = keep_maps(&steering);
    println!("\nnow");
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_has_no_room() {
    let Some(steering) = steering_of_nobody() else { return };
    let sockets = group(1, "127.0.0.1:0");
    let error = steering.attach(deployment(compiled(BIG), &sockets)).expect_err("no room");
    assert!(error.text.contains("MiB of maps"), "{error}");
}

#[test]
fn users_of_another_user_namespace_are_refused() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "/proc/self/fd/0", "--exact"]);
    command.args(["another_user_connects", "--ignored", "--nocapture", "--test-threads=1"]);
    command.stdin(fs::File::open("/proc/self/exe").expect("this program"));
    command.env(common::SOCKET, daemon.socket()).stdout(Stdio::piped());
    let out = command.output().expect("unshare");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "a part of another test"]
fn another_user_connects() {
    let Some(path) = std::env::var_os(common::SOCKET) else { return };
    let connection = Connection::open(path.as_ref()).expect("connected");
    let error = connection.call(Request::List { after: 0 }, &[]).expect_err("refused");
    assert!(error.kind == ErrorKind::Denied && error.text.contains("user namespace"), "{error}");
}

#[test]
fn a_parameter_with_many_digits_is_stored_as_its_value() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    let child = start_as_nobody("nobody_writes_much", &daemon, &[]);
    let list = daemon.steering().list().expect("listed");
    assert_eq!(list.len(), 4);
    let scan = [("scan".to_owned(), "2".to_owned())];
    assert!(list.iter().all(|attachment| attachment.parameters == scan));
    end(child);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_writes_much() {
    let Some(steering) = steering_of_nobody() else { return };
    let groups: Vec<_> = (0..4).map(|_| group(1, "127.0.0.1:0")).collect();
    for sockets in &groups {
        let policy = |zeros| {
            let parameters = vec![("scan".into(), format!("{}2", "0".repeat(zeros)))];
            Policy { parameters, ..shipped("sita") }
        };
        let error = steering.attach(deployment(policy(1_000_000), sockets)).expect_err("too long");
        assert!(error.text.contains("4096 bytes"), "{error}");
        steering.attach(deployment(policy(4000), sockets)).expect("attached");
    }
    println!("\nnow");
    std::thread::sleep(Duration::from_secs(30));
}

/// An attachment with the longest possible record.
fn long(like: &Attachment, id: u32) -> Attachment {
    let text = "\u{1f9f5}".repeat(256);
    let (command, executors) = (text.clone(), vec![text; 64]);
    Attachment { id, command, executors, ..like.clone() }
}

#[test]
fn long_lists_are_delivered_whole() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let sockets = group(1, "127.0.0.1:0");
    let one = attach(&daemon.steering(), "hash", &sockets).expect("attached");
    // No process checks for dead attachments while the state is locked.
    let lock = daemon.state().lock().expect("locked");
    for id in 2..=100 {
        daemon.state().write(&long(&one, id)).expect("written");
    }
    assert_eq!(ids(&daemon.steering()), (1..=100).collect::<Vec<_>>());
    drop(lock);
    until("those without programs are gone", || ids(&daemon.steering()) == [one.id]);
}

#[test]
fn an_attachment_that_cannot_be_removed_blocks_no_other() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--watch-ms", "20"]);
    let (stuck, sockets) = (group(1, "127.0.0.1:0"), group(3, "127.0.0.1:0"));
    let id = attach(&daemon.steering(), "hash", &stuck).expect("attached").id;
    let inside = daemon.pins().join(id.to_string()).join("inside");
    fs::create_dir(&inside).expect("a folder");
    drop(stuck);
    until("it was tried", || daemon.log().contains("cannot remove"));
    let other = attach(&daemon.steering(), "round-robin", &sockets).expect("attached").id;
    assert_ne!(other, id);
    assert_eq!(traffic(&sockets, 30), [10, 10, 10]);
    fs::remove_dir(&inside).expect("removed");
    until("it is gone", || !daemon.pins().join(id.to_string()).exists());
    assert_eq!(ids(&daemon.steering()), [other]);
}

#[test]
fn a_folder_owned_by_another_user_is_refused() {
    if !able() {
        return;
    }
    let refused = |daemon: &mut Daemon, why: &str| {
        daemon.spawn();
        assert!(!daemon.ended() && daemon.log().contains(why), "{}", daemon.log());
    };
    // Created before heddled's first start.
    let mut daemon = Daemon::new(&[]);
    fs::create_dir(daemon.pins()).expect("a folder");
    chown(daemon.pins(), Some(NOBODY), None).expect("his");
    refused(&mut daemon, "user 65534's");
    fs::remove_dir(daemon.pins()).expect("removed");
    fs::remove_dir(daemon.run()).expect("empty");
    fs::create_dir(daemon.run()).expect("a folder");
    chown(daemon.run(), Some(NOBODY), None).expect("his");
    refused(&mut daemon, "user 65534's");
    fs::remove_dir(daemon.run()).expect("removed");
    daemon.again();
    for (folder, mode) in [(daemon.pins().to_owned(), 0o700), (daemon.run(), 0o755)] {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(folder).expect("there").mode() & 0o7777, mode);
    }
}

/// A small temporary file system in memory.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: std::path::PathBuf) -> Self {
        fs::create_dir(&at).expect("a folder");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &at, "tmpfs", flags, Some(c"size=128k,mode=0755"))
            .expect("mounted");
        Self(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn an_eviction_is_reported_despite_a_full_disk_and_recorded_later() {
    if !able() {
        return;
    }
    let limits =
        ["--watch-ms", "20", "--sample-ms", "20", "--evict-ns", "1500", "--evict-share", "0"];
    let mut daemon = Daemon::new(&limits);
    let small = Small::mount(daemon.run());
    daemon.again();
    let sockets = group(3, "127.0.0.1:0");
    let steering = daemon.steering();
    // Nothing decides before the disk is full.
    let id = steering.attach(deployment(compiled(SLOW), &sockets)).expect("attached").id;
    let filler = small.0.join("filler");
    let mut file = fs::File::create(&filler).expect("a file");
    while file.write_all(&[0; 512]).is_ok() {}
    let is_evicted = |list: &[Attachment]| {
        list.iter().any(|one| one.id == id && matches!(one.status, Status::Evicted(_)))
    };
    until("it is told", || {
        traffic(&sockets, 20);
        is_evicted(&steering.list().expect("listed"))
    });
    assert!(!is_evicted(&daemon.state().list().expect("records")), "there was room");
    drop(file);
    fs::remove_file(&filler).expect("removed");
    until("it is written down", || is_evicted(&daemon.state().list().expect("records")));
}

#[test]
fn children_do_not_inherit_the_socket_from_systemd() {
    if !able() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let listener = UnixListener::bind(path("given")).expect("bound");
    let pins = format!("/sys/fs/bpf/heddled-test-{}-handed", std::process::id());
    let script = "exec 3<&0; exec env LISTEN_PID=$$ LISTEN_FDS=1 \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, EXE, "--pins", &pins, "--state"]).arg(path("run"));
    command.stdin(OwnedFd::from(listener));
    let child = command.spawn().expect("started");
    until("it answers", || Steering::at(path("given")).list().is_ok());
    let info = fs::read_to_string(format!("/proc/{}/fdinfo/3", child.id()));
    end(child);
    let _ = fs::remove_dir(pins);
    let info = info.expect("its number is still there");
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
    let flags = u32::from_str_radix(flags.trim(), 8).expect("a number");
    assert_ne!(flags & rustix::fs::OFlags::CLOEXEC.bits(), 0, "{info}");
}
