//! Unmodified gunicorn, steered from outside. Requires root, BPF and gunicorn (`scripts/setup --steer`).

#[path = "steer/room.rs"]
#[allow(dead_code, reason = "shared with the other tests of steering")]
mod room;

use std::path::PathBuf;
use std::process::Stdio;

use heddle_test_support::{Running, until};
use room::Room;
use rustix::process::Signal;
use serde_json::Value;

const WORKERS: usize = 3;
const APP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gunicorn");

fn installed() -> Option<PathBuf> {
    // The command is in target/debug or target/release, gunicorn in target/gunicorn.
    let target = PathBuf::from(env!("CARGO_BIN_EXE_heddle")).parent()?.parent()?.to_owned();
    let found = [target.join("gunicorn/bin/gunicorn"), "target/gunicorn/bin/gunicorn".into()];
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no gunicorn (scripts/setup --steer)");
    }
    found
}

fn gunicorn(room: &Room, port: &str, more: &[&str]) -> Option<Running> {
    let program = installed()?;
    let (bind, workers) = (format!("127.0.0.1:{port}"), WORKERS.to_string());
    let mut arguments = vec!["--bind", &bind, "--workers", &workers, "--reuse-port"];
    arguments.extend(["--chdir", APP, "--log-level", "error", "--no-control-socket"]);
    arguments.extend(more);
    arguments.push("app:application");
    let mut command = room.command(program.to_str()?, &arguments);
    Some(Running::start(command.stdout(Stdio::null())))
}

fn listening(room: &Room, port: &str) -> usize {
    let filter = format!("sport = :{port}");
    let output = room.command("ss", &["-Hltn", &filter]).output().expect("ss, of iproute2");
    String::from_utf8_lossy(&output.stdout).lines().count()
}

fn follow(room: &Room, server: &Running, port: &str) -> Running {
    let pid = server.pid().to_string();
    let arguments =
        ["steer", "attach", "--pid", &pid, "--port", port, "--policy", "jiq", "--follow"];
    let mut command = room.command(env!("CARGO_BIN_EXE_heddle"), &arguments);
    let following = Running::start(command.stdout(Stdio::null()));
    until("attached", || attachment(room).is_some());
    following
}

fn attachment(room: &Room) -> Option<Value> {
    room.json(&["steer", "ls", "--json"])["attachments"].as_array()?.first().cloned()
}

/// Counts how many of `n` requests are answered, one after another. An ending worker may reset a connection
/// that it was just given, steered or not, and whatever the kernel migrates; the client retries, as browsers
/// and proxies do. A policy that shares evenly lets all workers reach their last request together, and then
/// requests are refused; the client waits until a worker listens.
fn answered(room: &Room, port: &str, n: usize) -> usize {
    let script = format!(
        "import time, urllib.request as u
def listens():
    rows = [row.split() for row in open('/proc/net/tcp')]
    return any(row[1].endswith(':%04X' % {port}) and row[3] == '0A' for row in rows)
def served(tries=3):
    until = time.monotonic() + 60
    while not listens() and time.monotonic() < until:
        time.sleep(0.01)
    try:
        return u.urlopen('http://127.0.0.1:{port}/', timeout=20).status == 200
    except (ConnectionResetError, u.URLError) as error:
        ended = getattr(error, 'reason', error)
        if tries == 1 or not isinstance(ended, (ConnectionResetError, ConnectionRefusedError)):
            raise
        return served(tries - 1)
print(sum(served() for _ in range({n})))"
    );
    let output = room.command("python3", &["-c", &script]).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    text.parse().unwrap_or_else(|_| panic!("{error}"))
}

fn all_served(room: &Room, not: &[Value]) -> bool {
    attachment(room).is_some_and(|one| {
        let executors = one["executors"].as_array().cloned().unwrap_or_default();
        one["present"] == WORKERS && executors.iter().all(|executor| !not.contains(executor))
    })
}

#[test]
fn requests_are_served_through_max_requests_and_a_reload() {
    let Some(room) = Room::new() else { return };
    let port = "8123";
    // An ending worker drops the connections in its accept queue, steered or not; this makes the kernel migrate them to
    // another worker (Linux 5.14).
    let migrate = "echo 1 > /proc/sys/net/ipv4/tcp_migrate_req";
    assert!(room.command("sh", &["-c", migrate]).status().expect("sh").success());
    let Some(server) = gunicorn(&room, port, &["--max-requests", "15"]) else { return };
    until("all workers listen", || listening(&room, port) == WORKERS);
    let following = follow(&room, &server, port);
    let first = attachment(&room).expect("attached")["executors"].clone();
    let first = first.as_array().expect("executors");
    assert_eq!(first.len(), WORKERS);

    assert_eq!(answered(&room, port, 100), 100, "answered through several restarts");
    until("the workers that restarted are executors", || all_served(&room, &[]));
    let second = attachment(&room).expect("attached")["executors"].clone();
    assert_ne!(second.as_array(), Some(first), "some workers restarted");

    server.signal(Signal::HUP);
    let second = second.as_array().expect("executors").clone();
    until("all workers are new and executors", || all_served(&room, &second));
    assert_eq!(answered(&room, port, 10), 10);

    following.signal(Signal::INT);
    until("detached", || attachment(&room).is_none());
    assert_eq!(answered(&room, port, 10), 10);
}

#[test]
fn without_reuse_port_the_option_is_advised() {
    let Some(room) = Room::new() else { return };
    let Some(program) = installed() else { return };
    let arguments = [
        "--bind",
        "127.0.0.1:8124",
        "--workers",
        "2",
        "--chdir",
        APP,
        "--no-control-socket",
        "app:application",
    ];
    let mut command = room.command(program.to_str().expect("text"), &arguments);
    let _server = Running::start_quietly(&mut command);
    until("it listens", || listening(&room, "8124") == 1 && answered(&room, "8124", 1) == 1);
    let error = room.refused(1, &["steer", "attach", "--port", "8124", "--policy", "jiq"]);
    assert!(
        error.contains("share one socket")
            && error.contains("gunicorn 24 or later with --reuse-port"),
        "{error}"
    );
}
