//! Unmodified nginx and unbound, steered from outside through reloads and restarts. Requires root, BPF and the servers
//! (`scripts/setup --steer`).

#[path = "steer/room.rs"]
#[allow(dead_code, reason = "shared with the other tests of steering")]
mod room;

use std::path::{Path, PathBuf};

use heddle_test_support::{Running, find_program, until};
use room::Room;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn installed(name: &str) -> Option<PathBuf> {
    find_program(name, "scripts/setup --steer")
}

/// Returns the lines of `ss` for the sockets at `port`.
fn sockets(room: &Room, port: &str) -> Vec<String> {
    let filter = format!("sport = :{port}");
    let output = room.command("ss", &["-Htulnpe", &filter]).output().expect("ss, of iproute2");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn attachment(room: &Room) -> Option<Value> {
    room.json(&["steer", "ls", "--json"])["attachments"].as_array()?.first().cloned()
}

/// Returns the processes in the executors' labels.
fn named(attachment: &Value) -> Vec<String> {
    let labels = attachment["executors"].as_array().expect("executors").iter();
    let pid = |label: &str| label.split(' ').nth(1).map(str::to_owned);
    labels.filter_map(|label| pid(label.as_str()?)).collect()
}

fn start(room: &Room, program: &Path, arguments: &[&str]) -> Running {
    Running::start_quietly(&mut room.command(program.to_str().expect("text"), arguments))
}

struct Nginx {
    running: Running,
    folder: tempfile::TempDir,
    /// Differs between tests: without `--pid`, `heddle steer attach` refuses to choose between two servers, in
    /// any namespaces.
    port: &'static str,
}

impl Nginx {
    fn start(room: &Room, port: &'static str, workers: usize) -> Option<Self> {
        let program = installed("nginx")?;
        let folder = tempfile::tempdir().expect("a folder");
        configure(folder.path(), port, workers);
        let file = folder.path().join("nginx.conf");
        let running = start(room, &program, &["-c", file.to_str().expect("text")]);
        until("it listens", || sockets(room, port).len() == workers);
        Some(Self { running, folder, port })
    }

    fn reload(&self, workers: usize) {
        configure(self.folder.path(), self.port, workers);
        self.running.signal(Signal::HUP);
    }
}

fn configure(folder: &Path, port: &str, workers: usize) {
    let at = folder.display();
    let text = format!(
        "worker_processes {workers};\npid {at}/pid;\nerror_log {at}/log;\ndaemon off;\nevents {{ \
            worker_connections 64; }}\nhttp {{ access_log off; server {{ listen 127.0.0.1:{port} reuseport; \
            return 200 \"ok\"; }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), text).expect("written");
}

/// Counts how many of `n` requests are answered.
fn answered(room: &Room, port: &str, n: usize) -> usize {
    let script = format!(
        "import urllib.request as u
print(sum(u.urlopen('http://127.0.0.1:{port}/', timeout=20).status == 200 for _ in range({n})))"
    );
    let output = room.command("python3", &["-c", &script]).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn nginx_with_fewer_workers_fails_no_select() {
    let Some(room) = Room::new() else { return };
    let Some(nginx) = Nginx::start(&room, "8131", 4) else { return };
    room.ok(&["steer", "attach", "--port", nginx.port, "--policy", "round-robin"]);
    nginx.reload(2);
    until("two sockets are closed", || attachment(&room).is_some_and(|one| one["present"] == 2));
    assert_eq!(answered(&room, nginx.port, 40), 40);
    let one = attachment(&room).expect("attached");
    assert_eq!(
        (&one["failed"], &one["moved"], &one["decisions"]),
        (&0.into(), &20.into(), &40.into()),
        "{one}"
    );
    let text = room.ok(&["steer", "ls"]);
    assert!(text.contains("There is nothing to do") && !text.contains("--follow"), "{text}");

    nginx.reload(3);
    until("there is another", || sockets(&room, nginx.port).len() == 3);
    let text = room.ok(&["steer", "ls"]);
    assert!(text.contains("1 of the server's sockets are not executors"), "{text}");
}

#[test]
fn nginx_is_followed_through_reloads() {
    let Some(room) = Room::new() else { return };
    let Some(nginx) = Nginx::start(&room, "8132", 3) else { return };
    let log = nginx.folder.path().join("followed");
    let arguments =
        ["steer", "attach", "--port", nginx.port, "--policy", "round-robin", "--follow", "--json"];
    let mut command = room.command(env!("CARGO_BIN_EXE_heddle"), &arguments);
    let file = std::fs::File::create(&log).expect("a file");
    let following = Running::start(command.stdout(file));
    until("attached", || attachment(&room).is_some());
    for workers in [2, 4, 4, 1, 3] {
        nginx.reload(workers);
        until("the workers' sockets are executors, and no others", || {
            attachment(&room).is_some_and(|one| one["present"] == workers && one["strangers"] == 0)
        });
        assert_eq!(answered(&room, nginx.port, 12), 12);
    }
    following.signal(Signal::INT);
    until("detached", || attachment(&room).is_none());
    let text = std::fs::read_to_string(&log).expect("readable");
    assert!(!text.contains(r#""event":"failed""#), "{text}");
}

#[test]
fn nginx_executors_are_labelled_with_running_processes() {
    let Some(room) = Room::new() else { return };
    let Some(nginx) = Nginx::start(&room, "8133", 2) else { return };
    room.ok(&["steer", "attach", "--port", nginx.port, "--policy", "round-robin"]);
    let before = named(&attachment(&room).expect("attached"));
    nginx.reload(2);
    until("the workers are others", || {
        let of = |pid: &String| Path::new("/proc").join(pid).exists();
        !before.iter().any(of)
    });
    let one = attachment(&room).expect("attached");
    assert_eq!(one["present"], 2, "the sockets remain");
    let there = sockets(&room, nginx.port).join("\n");
    let after = named(&one);
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|pid| there.contains(&format!("pid={pid},"))), "{one}\n{there}");
    let stats = room.ok(&["steer", "stats", "--port", nginx.port, "--sample", "0"]);
    assert!(after.iter().all(|pid| stats.contains(&format!("pid {pid} "))), "{stats}");
}

/// A worker of nginx that does not go on until it is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: &str) -> Stopped {
        let pid = Pid::from_raw(pid.parse().expect("a number")).expect("a process");
        kill_process(pid, Signal::STOP).expect("stopped");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Whether a process waits in epoll: `epoll_wait` has number 232 on x86-64.
fn waits_in_epoll(pid: &str) -> bool {
    let place = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    place.starts_with("232 ")
}

fn is_stopped(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| text.contains(") T "))
}

#[test]
fn jiq_sends_nothing_to_a_worker_of_nginx_that_does_not_wait() {
    let Some(room) = Room::new() else { return };
    let Some(nginx) = Nginx::start(&room, "8134", 3) else { return };
    room.ok(&["steer", "attach", "--port", nginx.port, "--policy", "jiq"]);
    let workers = named(&attachment(&room).expect("attached"));
    let [busy, idle @ ..] = &workers[..] else { panic!("no workers: {workers:?}") };
    assert_eq!(idle.len(), 2);
    until("all wait", || workers.iter().all(|pid| waits_in_epoll(pid)));
    let _stopped = Stopped::new(busy);
    until("it is stopped", || is_stopped(busy));
    // A request that the stopped worker got would wait forever.
    for _ in 0..12 {
        until("the others wait", || idle.iter().all(|pid| waits_in_epoll(pid)));
        assert_eq!(answered(&room, nginx.port, 1), 1);
    }
    let one = attachment(&room).expect("attached");
    assert_eq!((&one["decisions"], &one["failed"]), (&12.into(), &0.into()), "{one}");
}

#[test]
fn a_restart_of_unbound_ends_its_attachment_and_is_reported() {
    let Some(room) = Room::new() else { return };
    let Some(program) = installed("unbound") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("unbound.conf");
    let text = "server:\n interface: 127.0.0.1@5353\n num-threads: 3\n so-reuseport: yes\n chroot: \"\"\n \
        username: \"\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n do-tcp: no\n";
    std::fs::write(&file, text).expect("written");
    let start = || {
        let running = start(&room, &program, &["-d", "-c", file.to_str().expect("text")]);
        until("it serves", || sockets(&room, "5353").len() == 3);
        running
    };
    let unbound = start();
    room.ok(&["steer", "attach", "--port", "5353", "--policy", "round-robin"]);
    drop(unbound);
    let _unbound = start();
    let text = room.ok(&["steer", "ls"]);
    assert!(
        text.contains("Attachment 1 (round-robin at udp 127.0.0.1:5353) ended ")
            && text.contains("its last socket was closed")
            && text.contains("attach again, and with --follow it keeps up with restarts"),
        "{text}"
    );
    let error = room.refused(1, &["steer", "stats", "1"]);
    assert!(error.contains("its last socket was closed"), "{error}");
}
