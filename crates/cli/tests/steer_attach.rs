//! One command for several ports, addresses and both protocols, as for a DNS server, also through heddled; and
//! the advice for servers that give a policy nothing to choose among. Requires root, BPF and python3.

#[path = "steer/room.rs"]
#[allow(dead_code, reason = "shared with the other tests of steering")]
mod room;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use heddle_test_support::{Running, until};
use room::{Room, Server};
use serde_json::Value;
use tempfile::TempDir;

const BOTH: &str = "127.0.0.1,::1";

/// Servers of UDP and TCP on one port and of TCP on another, at both addresses, with two workers each.
struct Dns {
    servers: Vec<Server>,
    port: String,
    tls: String,
}

impl Dns {
    fn start(room: &Room) -> Self {
        let udp = room.server("udp", "127.0.0.1", 0, 2, "own");
        let tls = room.server("tcp", "127.0.0.1", 0, 2, "own");
        let (port, of_tls) = (udp.at.port(), tls.at.port());
        let more = [
            ("tcp", "127.0.0.1", port),
            ("udp", "::1", port),
            ("tcp", "::1", port),
            ("tcp", "::1", of_tls),
        ];
        let mut servers = vec![udp, tls];
        servers.extend(more.map(|(protocol, at, port)| room.server(protocol, at, port, 2, "own")));
        Self { servers, port: port.to_string(), tls: of_tls.to_string() }
    }

    fn ports(&self) -> String {
        format!("{},{}", self.port, self.tls)
    }

    /// Whether each server's workers are served in turn.
    fn takes_turns(&self, room: &Room) -> Vec<bool> {
        let turns =
            |server| room.ask(server, 10).iter().filter(|worker| **worker == 0).count() == 5;
        self.servers.iter().map(turns).collect()
    }
}

fn listed(room: &Room) -> Vec<Value> {
    room.json(&["steer", "ls", "--json"])["attachments"].as_array().expect("a list").clone()
}

/// What `heddle steer stats --json` prints: an object for each attachment.
fn stats(room: &Room, arguments: &[&str]) -> Vec<Value> {
    let text = room.ok(&[&["steer", "stats", "--json", "--sample", "0"], arguments].concat());
    let objects = serde_json::Deserializer::from_str(&text).into_iter();
    objects.collect::<Result<_, _>>().expect("objects")
}

fn attach<'a>(ports: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["steer", "attach", "--policy", "round-robin", "--port", ports], more].concat()
}

#[test]
fn one_command_accepts_ports_addresses_and_both_protocols() {
    let Some(room) = Room::new() else { return };
    let dns = Dns::start(&room);
    let ports = dns.ports();
    let selection = ["--protocol", "udp,tcp", "--address", BOTH];
    let output = room.heddle(&attach(&ports, &selection));
    let (text, notes) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}");
    assert_eq!(text.lines().filter(|line| line.starts_with("Attachment ")).count(), 6, "{text}");
    assert!(text.contains("Undo: heddle steer detach 1 2 3 4 5 6."), "{text}");
    // A named combination that does not exist.
    let tls = &dns.tls;
    assert!(notes.contains(&format!("no process serves udp port {tls} at 127.0.0.1")), "{notes}");
    assert_eq!(dns.takes_turns(&room), [true; 6]);

    // The other commands accept the same selection.
    assert_eq!(stats(&room, &["--port", &ports]).len(), 6);
    assert_eq!(stats(&room, &["--port", &dns.port, "--protocol", "udp"]).len(), 2);
    assert_eq!(stats(&room, &["1", "3"]).len(), 2);
    let of_tls = room.json(&["steer", "ls", "--json", "--port", tls]);
    assert_eq!(of_tls["attachments"].as_array().map(Vec::len), Some(2));
    let replaced =
        ["steer", "replace", "--policy", "hash", "--json", "--port", &dns.port, "--address", "::1"];
    assert_eq!(room.json(&replaced)["replaced"].as_array().map(Vec::len), Some(2));
    let error = room.refused(1, &["steer", "stats", "--port", &format!("{tls},1")]);
    assert!(error.contains("nothing is attached to port 1; there are: 1 at"), "{error}");
    let error = room.refused(1, &["steer", "detach", "5", "77"]);
    assert!(error.contains("there is no attachment 77"), "{error}");
    room.ok(&["steer", "detach", "--protocol", "udp"]);
    assert_eq!(listed(&room).len(), 4);
    room.ok(&["steer", "detach", "--port", &ports]);

    let json = room.json(&[&attach(&ports, &selection)[..], &["--json"]].concat());
    assert_eq!(json["attachments"].as_array().map(Vec::len), Some(6));
}

#[test]
fn statistics_of_a_dual_stack_server_need_no_attachment_number() {
    let Some(room) = Room::new() else { return };
    let four = room.server("udp", "127.0.0.1", 0, 2, "own");
    let six = room.server("udp", "::1", four.at.port(), 2, "own");
    room.ok(&attach(&four.port(), &[]));
    room.ask(&four, 6);
    room.ask(&six, 4);
    let both = stats(&room, &["--port", &four.port()]);
    let decisions: Vec<&Value> = both.iter().map(|one| &one["decisions"]).collect();
    assert_eq!(decisions, [6, 4]);
    let text = room.ok(&["steer", "stats", "--port", &four.port(), "--sample", "0"]);
    assert!(text.contains("Attachment 1: ") && text.contains("Attachment 2: "), "{text}");
}

#[test]
fn everything_is_attached_or_nothing() {
    let Some(room) = Room::new() else { return };
    let dns = Dns::start(&room);
    let ports = dns.ports();
    let there = room.json(&[&attach(&dns.tls, &["--address", "::1"])[..], &["--json"]].concat());
    let there = &there["attachments"][0]["attachment"]["id"];

    // The last of six is attached already.
    let error = room.refused(1, &attach(&ports, &["--protocol", "udp,tcp"]));
    assert!(error.contains(&format!("is attached already: {there}")), "{error}");
    let left = listed(&room);
    assert_eq!(left.iter().map(|one| &one["id"]).collect::<Vec<_>>(), [there]);

    // Something named does not exist: refused before anything is attached.
    let error = room.refused(1, &attach(&format!("{ports},1"), &["--protocol", "udp,tcp"]));
    assert!(error.contains("no process serves udp or tcp port 1"), "{error}");
    let error = room.refused(1, &attach(&ports, &["--protocol", "tcp", "--address", "::1,::2"]));
    assert!(error.contains("at ::2; it serves tcp"), "{error}");
    assert_eq!(listed(&room).len(), 1);
}

#[test]
fn named_groups_must_be_eligible_and_others_are_left_alone() {
    let Some(room) = Room::new() else { return };
    let udp = room.server("udp", "127.0.0.1", 0, 2, "own");
    let port = udp.port();
    let _tcp = room.server("tcp", "127.0.0.1", udp.at.port(), 2, "shared");
    let error = room.refused(1, &attach(&port, &["--protocol", "udp,tcp"]));
    assert!(error.contains("share one socket at tcp 127.0.0.1"), "{error}");
    assert!(listed(&room).is_empty());

    let _six = room.server("udp", "::1", udp.at.port(), 1, "own");
    let output = room.heddle(&attach(&port, &["--protocol", "udp"]));
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && note.contains("udp [::1]:"), "{note}");
    assert!(note.contains("is left alone: process"), "{note}");
    assert_eq!(listed(&room).len(), 1);
}

#[test]
fn attachment_numbers_are_not_reused() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    for id in ["1", "2", "3"] {
        let text = room.ok(&attach(&server.port(), &[]));
        assert!(text.starts_with(&format!("Attachment {id}: ")), "{text}");
        room.ok(&["steer", "detach", id]);
    }
    assert!(room.refused(1, &["steer", "detach", "1"]).contains("there are no attachments"));
}

#[test]
fn packets_of_several_ports_are_claimed_by_one_command_or_none() {
    let Some(room) = Room::new() else { return };
    let run = |arguments: &[&str]| room.command("ip", arguments).status().expect("ip, of iproute2");
    if !run(&["link", "add", "va", "type", "veth", "peer", "name", "vb"]).success() {
        eprintln!("skipped: no veth here");
        return;
    }
    run(&["addr", "add", "10.99.0.1/24", "dev", "va"]);
    run(&["link", "set", "va", "up"]);
    let udp = room.server("udp", "10.99.0.1", 0, 1, "own");
    let tls = room.server("tcp", "10.99.0.1", 0, 1, "own");
    let _tcp = room.server("tcp", "10.99.0.1", udp.at.port(), 1, "own");
    let (ports, tls) = (format!("{},{}", udp.port(), tls.port()), tls.port());
    let below = ["--hook", "cpu-redirect", "--interface", "va", "--cpus", "0", "--protocol"];
    let on = |ports, protocol| [&attach(ports, &below)[..], &[protocol]].concat();

    let output = room.heddle(&on(&ports, "udp,tcp"));
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && notes.contains(&format!("udp port {tls}")), "{notes}");
    assert_eq!(listed(&room).len(), 3);
    room.ok(&["steer", "detach", "--port", &ports]);

    room.ok(&on(&tls, "tcp"));
    let error = room.refused(1, &on(&ports, "tcp"));
    assert!(error.contains("is claimed already"), "{error}");
    assert_eq!(listed(&room).len(), 1);
}

#[test]
fn every_attachment_is_followed() {
    let Some(room) = Room::new() else { return };
    let udp = room.server("udp", "127.0.0.1", 0, 2, "own");
    let mut tcp = room.server("tcp", "127.0.0.1", udp.at.port(), 2, "own");
    let port = udp.port();
    let arguments = attach(&port, &["--protocol", "udp,tcp", "--follow", "--json"]);
    let mut command = room.command(env!("CARGO_BIN_EXE_heddle"), &arguments);
    let mut following = Running::start(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(following.child().stdout.take().expect("piped")).lines();
    let mut event = || -> Value {
        let line = lines.next().expect("an event").expect("text");
        serde_json::from_str(&line).expect("an object")
    };
    let attached: Vec<Value> = (0..2).map(|_| event()["attachment"].clone()).collect();
    let of_tcp = attached.iter().find(|one| one["protocol"] == "tcp").expect("one of TCP");
    tcp.order("restart 1");
    let added = event();
    assert_eq!((&added["event"], &added["id"]), (&"executor".into(), &of_tcp["id"]), "{added}");
}

/// heddled in a room, for all users.
fn heddled(room: &Room, limits: &[&str]) -> Option<Running> {
    let program = Path::new(env!("CARGO_BIN_EXE_heddle")).with_file_name("heddled");
    if !program.exists() {
        eprintln!("skipped: no heddled beside heddle (cargo build -p heddled)");
        return None;
    }
    let mut command = room.command(program.to_str()?, &[&["--everyone"], limits].concat());
    let daemon = Running::start(command.stderr(Stdio::null()));
    let listens = || room.command("test", &["-S", "/run/heddle/heddled.sock"]).status();
    until("heddled listens", || listens().is_ok_and(|status| status.success()));
    Some(daemon)
}

/// Copies a program under another name to where unprivileged users can start it.
fn renamed(program: &Path, name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("open to all");
    let path = folder.path().join(name);
    fs::copy(program, &path).expect("copied");
    (folder, path)
}

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/steer/server.py");
const OVERFLOW_UID: &str = "65534";

fn run_unprivileged(room: &Room, heddle: &Path, arguments: &[&str]) -> Output {
    let heddle = heddle.to_str().expect("a path");
    let user = ["--reuid", OVERFLOW_UID, "--regid", OVERFLOW_UID, "--clear-groups", heddle];
    room.command("setpriv", &[&user, arguments].concat()).output().expect("setpriv, of util-linux")
}

#[test]
fn a_user_attaches_several_through_heddled_within_the_quota() {
    let Some(room) = Room::new() else { return };
    let Some(_daemon) = heddled(&room, &["--max-attachments", "2"]) else { return };
    let (_folder, heddle) = renamed(Path::new(env!("CARGO_BIN_EXE_heddle")), "heddle");
    let user = format!("SERVER_UID={OVERFLOW_UID}");
    let program = ["env", &user, "python3", SERVER];
    let udp = room.server_by(&program, "udp", "127.0.0.1", 0, 2, "own");
    let at =
        |protocol, address| room.server_by(&program, protocol, address, udp.at.port(), 2, "own");
    let _others = (at("tcp", "127.0.0.1"), at("udp", "::1"));
    let port = udp.port();
    let unprivileged = |arguments: &[&str]| run_unprivileged(&room, &heddle, arguments);

    // Three are one too many: none remains.
    let output = unprivileged(&attach(&port, &["--protocol", "udp,tcp"]));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("has 2 attachments, and may have 2"), "{error}");
    assert!(listed(&room).is_empty());

    let output = unprivileged(&attach(
        &port,
        &["--protocol", "udp,tcp", "--address", "127.0.0.1", "--json"],
    ));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(json["attachments"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(listed(&room).iter().filter(|one| one["uid"] == 65534).count(), 2);
    let output = unprivileged(&["steer", "detach", "--port", &port]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(listed(&room).is_empty());
}

/// Returns the error of `heddle steer attach` for a server whose program has this name.
fn advice(room: &Room, name: &str, how: &str, workers: usize) -> String {
    let python = room.command("python3", &["-c", "import sys; print(sys.executable)"]).output();
    let python = String::from_utf8(python.expect("python3").stdout).expect("a path");
    let python = fs::canonicalize(python.trim_end()).expect("a file");
    let (_folder, program) = renamed(&python, name);
    let program = [program.to_str().expect("a path"), SERVER];
    let server = room.server_by(&program, "tcp", "127.0.0.1", 0, workers, how);
    room.refused(1, &attach(&server.port(), &[]))
}

#[test]
fn a_server_with_one_socket_gets_advice_by_its_name() {
    let Some(room) = Room::new() else { return };
    for (name, how, says) in [
        ("memcached", "shared", "memcached cannot have more"),
        ("redis-server", "shared", "Redis cannot have more"),
        ("postgres", "shared", "several PgBouncers with `so_reuseport = 1`"),
        ("gunicorn", "shared", "Start gunicorn 24 or later with --reuse-port"),
        ("gunicorn", "marked", "Before version 24 (such as 20.1"),
        ("nginx", "shared", "Write `listen ... reuseport`"),
        ("unheard-of", "shared", "with its option for SO_REUSEPORT, if it has one"),
    ] {
        let error = advice(&room, name, how, 3);
        assert!(
            error.contains("so there is nothing to choose among") && error.contains(says),
            "{name}: {error}"
        );
        let cannot = error.contains("cannot have more");
        assert_eq!(cannot, ["memcached", "redis-server", "postgres"].contains(&name), "{error}");
        assert!(!cannot || error.contains("heddle agent run --pid "), "{error}");
    }
    let error = advice(&room, "haproxy", "own", 1);
    assert!(error.contains("with one socket") && error.contains("shards by-thread"), "{error}");
    assert!(error.contains("use --pid to name the process"), "{error}");
}
