//! Sockets and threads together (Syrup, section 5.3): a steering policy writes the class of each request into a map of
//! its own, and an agent gives the CPU to the thread that serves a GET, by that map. Real sockets on loopback, real
//! threads on one CPU, the real commands. Requires root and BPF.

#[allow(dead_code, reason = "the tests of agents share it")]
#[path = "agent/bench.rs"]
mod bench;
#[allow(dead_code, reason = "rooms are for servers, too")]
#[path = "steer/room.rs"]
mod room;
#[path = "cross/server.rs"]
mod server;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bench::{Bench, cpu, until};
use serde_json::Value;

/// Not a test: the server, or the client, of the test below.
#[test]
fn program() {
    server::main();
}

/// Policies of `sched_setscheduler(2)`.
const ORDINARY: u32 = 0;
const FIFO: u32 = 1;
const IDLE: u32 = 5;

/// The server or the client, with its lines.
struct Program {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command, role: &str, folder: &Path) -> Program {
        command.env("CROSS_TEST", role).env("CROSS_TEST_FOLDER", folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (input, out) = (child.stdin.take(), child.stdout.take());
        let lines = BufReader::new(out.expect("piped"));
        Program { child, input: input.expect("piped"), lines }
    }

    /// The next line that begins with `word`, without it. The others are the test harness's.
    fn line(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("readable") > 0, "no `{word}`");
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of three executors on one CPU, with `classify`, an agent and a client.
struct Scene<'a> {
    bench: &'a Bench,
    folder: PathBuf,
    server: Program,
    client: Program,
    attachment: String,
}

impl Scene<'_> {
    fn new(bench: &Bench) -> Scene<'_> {
        let folder = bench.file("released");
        fs::create_dir(&folder).expect("a folder");
        let me = || {
            let words = bench.program();
            let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            bench.other(&words[0], &arguments)
        };
        let mut server = Program::start(me(), "server", &folder);
        let ready = server.line("ready ");
        let (port, attachment) = ready.split_once(' ').expect("a port and an attachment");
        let mut client = Program::start(me(), "client", &folder);
        writeln!(client.input, "{port}").expect("it lives");
        Scene { bench, folder, server, client, attachment: attachment.to_owned() }
    }

    fn ask(&mut self, kind: &str, id: u64) {
        writeln!(self.client.input, "{kind} {id}").expect("it lives");
    }

    /// Lets a request end.
    fn release(&self, id: u64) {
        fs::write(self.folder.join(id.to_string()), "").expect("a file");
    }

    fn answered(&mut self) -> u64 {
        self.client.line("answer ").parse().expect("a number")
    }

    /// The scheduling policy of executor `k`'s thread.
    fn policy_of(&self, k: usize) -> Option<u32> {
        let pid = self.server.child.id();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let named = |task: &fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.trim() == format!("executor-{k}"))
        };
        let stat = fs::read_to_string(tasks.into_iter().find(named)?.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(38)?.parse().ok()
    }

    /// Waits until the executors' threads have these policies.
    #[track_caller]
    fn until_policies(&self, what: &str, wanted: [u32; 3]) {
        let now = || [0, 1, 2].map(|k| self.policy_of(k));
        until(&format!("{what}: {wanted:?}"), || now() == wanted.map(Some));
    }

    /// What executor `k` is at work on, by the policy's map.
    fn works(&self) -> Value {
        let shown = self.bench.heddle(&["steer", "map", &self.attachment, "work", "--json"]);
        serde_json::from_str(&shown).expect("JSON")
    }
}

#[test]
fn a_get_gets_the_cpu_before_scans_by_the_class_that_its_steering_policy_wrote() {
    let Some(bench) = Bench::new() else { return };
    let mut scene = Scene::new(&bench);
    let (map, pid) = (format!("{}:work", scene.attachment), scene.server.child.id().to_string());
    let cpu = cpu();
    let mut words = vec!["run", "--backend", "rt", "--policy", "priority:quantum=none,check=1ms"];
    words.extend(["--cpus", &cpu, "--patience", "0s", "--name", "cross"]);
    words.extend(["--class-map", &map, "--pid", &pid]);
    let agent = bench.start(&words, &[]);
    scene.until_policies("all threads are in the enclave", [IDLE; 3]);

    scene.ask("scan", 1);
    scene.until_policies("a SCAN is best-effort work", [IDLE, ORDINARY, IDLE]);
    scene.ask("scan", 2);
    until("the other SCAN is at the third executor", || works_at(&scene, 2) == Some(2));
    scene.until_policies("it waits", [IDLE, ORDINARY, IDLE]);
    scene.ask("get", 3);
    scene.until_policies("a GET takes the CPU", [FIFO, IDLE, IDLE]);
    assert_eq!([0, 1, 2].map(|k| works_at(&scene, k)), [Some(1), Some(2), Some(2)]);
    // No executor is idle: it waits behind the GET, not behind a SCAN.
    scene.ask("get", 4);
    scene.release(3);
    assert_eq!(scene.answered(), 3);
    scene.until_policies("the next GET keeps the CPU", [FIFO, IDLE, IDLE]);
    // All may end now, and the GET does first: the SCANs get the CPU after it.
    (1..=4).for_each(|id| scene.release(id));
    let mut order = [scene.answered(), scene.answered(), scene.answered()];
    assert_eq!(order[0], 4);
    order[1..].sort_unstable();
    assert_eq!(order[1..], [1, 2]);
    until("all executors are idle", || (0..3).all(|k| works_at(&scene, k).unwrap_or(0) == 0));

    let stats = bench.heddle(&["steer", "stats", &scene.attachment, "--json"]);
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    let executors = stats["executors"].as_array().expect("executors");
    let selected = |k: usize| executors[k]["selected"].as_u64().expect("a number");
    assert_eq!([0, 1, 2].map(selected), [2, 1, 1], "{stats}");
    let enclave = bench.enclave_when("the enclave has an agent", |enclave| !enclave.is_null());
    assert_eq!(enclave["guardian"]["stage"], "active", "{enclave}");
    agent.signal(rustix::process::Signal::INT);
    until("the threads are given back", || {
        [0, 1, 2].map(|k| scene.policy_of(k)) == [Some(ORDINARY); 3]
    });
}

/// The class in the map of executor `k`; none if it is not listed, because it is zero.
fn works_at(scene: &Scene<'_>, k: usize) -> Option<u64> {
    let works = scene.works();
    let entries = works["entries"].as_array()?;
    let entry = entries.iter().find(|entry| entry["key"] == k)?;
    entry["value"].as_u64().or_else(|| entry["value"][0].as_u64())
}
