//! Real programs in a share of one CPU, through the built command: a server beside a compile job, two servers on
//! RocksDB, and a broker that is killed.

#[allow(dead_code, reason = "it serves the tests of `heddle run`, too")]
#[path = "run/sandbox.rs"]
mod sandbox;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heddle_broker::{Report, query};
use heddle_core::Ns;
use heddle_load::{LoadOptions, Op, Pace, Shape, Wire, measure};
use heddle_test_support::c::build_library;
use heddle_test_support::{PATIENCE, Running, TempDir, run, temp_dir, until, workspace_root};
use rustix::process::Signal;

use sandbox::plain;

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

/// What the file of a share says: real-time where the broker may grant it, or ordinary threads.
const REALTIME: [&str; 2] = ["auto", "never"];

/// Keys of a server.
const KEYS: u32 = 5000;

/// A share of the last usable CPU, with its broker.
struct Share {
    folder: TempDir,
    broker: Option<Running>,
}

impl Share {
    fn start(realtime: &str) -> Share {
        let folder = temp_dir();
        let cpu = *heddle_sys::thread::affinity().unwrap().last().unwrap();
        let mut share = Share { folder, broker: None };
        let socket = share.path("share.sock");
        let socket = socket.display();
        let text = format!("cpus = \"{cpu}\"\nrealtime = \"{realtime}\"\nsocket = \"{socket}\"\n");
        fs::write(share.path("cores.toml"), text).unwrap();
        share.serve();
        share
    }

    /// Starts the broker.
    fn serve(&mut self) {
        let mut serve = Command::new(HEDDLE);
        serve.args(["share", "serve"]).arg(self.path("cores.toml"));
        self.broker = Some(Running::start_quietly(&mut serve));
        until("the broker answers", || query(&self.path("share.sock")).is_ok());
    }

    /// Kills the broker.
    fn kill_broker(&mut self) {
        let mut broker = self.broker.take().expect("a broker");
        broker.signal(Signal::KILL);
        broker.wait();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn report(&self) -> Report {
        let mut status = Command::new(HEDDLE);
        let status = status.args(["share", "status", "--json"]).arg(self.path("cores.toml"));
        serde_json::from_str(&run(status)).unwrap()
    }

    /// Starts a key-value server as a member.
    fn server(&self, name: &str, class: &str, options: &[&str]) -> Server {
        let mut serve = Command::new(HEDDLE);
        serve.args(["kv", "serve", "--tcp", "127.0.0.1:0", "--udp", "none"]).args(options);
        serve.args(["--policy", "two-queue:quantum=200us", "--keys", &KEYS.to_string()]);
        serve.env("HEDDLE_SHARE", self.path("share.sock"));
        serve.env("HEDDLE_SHARE_CLASS", class).env("HEDDLE_SHARE_NAME", name);
        let mut running = Running::start(serve.stdin(Stdio::null()).stdout(Stdio::piped()));
        let mut line = String::new();
        let output = running.child().stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.strip_prefix("ready tcp=").and_then(|rest| rest.split(' ').next());
        Server { running, address: address.unwrap_or_else(|| panic!("{line}")).parse().unwrap() }
    }

    /// Starts a batch program as a member: two threads that compute, and count it in the file.
    fn batch(&self) -> (Running, PathBuf) {
        let [program, counter] = ["batch", "batch.count"].map(|name| self.path(name));
        let source = workspace_root().join("crates/posix/tests/c/share.c");
        run(Command::new("cc").args(["-O2", "-pthread", "-o"]).args([&program, &source]));
        fs::write(&counter, [0; 24]).unwrap();
        let file = self.path("cores.toml");
        let mut batch = plain(&["--share", file.to_str().unwrap(), "--class", "be", "--"]);
        batch.arg(&program).arg(&counter).args(["batch", "2"]);
        (Running::start_quietly(&mut batch), counter)
    }

    /// Checks that no member was removed, and that with real time no hand-over broke the Single Binding Rule.
    fn check(&self) {
        let report = self.report();
        let was_removed = report.events.iter().any(|it| it.event == "removed");
        let broke = report.share.realtime && report.apps.iter().any(|app| app.cpus[0].broken > 0);
        assert!(!was_removed && !broke, "{report:?}");
    }
}

struct Server {
    running: Running,
    address: SocketAddr,
}

impl Server {
    /// Sends requests for a second, and checks that each is answered.
    fn load(&self) {
        let options = LoadOptions {
            target: self.address,
            wire: Wire::Resp { connections: 8 },
            mix: "get=75,set=20,scan=5".parse().unwrap(),
            shape: Shape::new(KEYS as usize, 500, 100),
            duration: Ns::from_secs(1),
            warmup: Ns::ZERO,
            timeout: Ns::from_secs(PATIENCE.as_secs()),
            seed: 1,
            pace: Pace::Due,
        };
        let tally = measure(&options, 400.0, Default::default(), |_| true).unwrap().tally;
        for op in [Op::Get, Op::Set, Op::Scan] {
            let of = tally.op(op);
            assert!(of.sent > 0 && (of.unsent, of.lost, of.failed) == (0, 0, 0), "{op}: {of:?}");
        }
    }

    /// Ends it.
    fn ends(mut self) {
        self.running.signal(Signal::TERM);
        assert_eq!(self.running.exit_code(), 0);
    }
}

/// Returns the compile job of `share/job`, into `out`.
fn make(mut make: Command, out: &Path) -> Command {
    fs::create_dir(out).unwrap();
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/share/job");
    make.args(["make", "-s", "-j2", "-C"]).arg(job).arg(format!("OUT={}", out.display()));
    // Not rustup's, which would be a program more.
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    make.arg(format!("RUSTC={}", rustc.display()));
    // Perhaps these tests run under a make.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    make
}

/// Returns the files that a job has made, by name.
fn made(out: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let files = fs::read_dir(out).unwrap().map(|file| file.unwrap());
    files.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect()
}

/// Counts the processes that were started as members.
fn processes(share: &Share) -> usize {
    let socket = share.path("share.sock");
    let socket = socket.as_os_str().as_bytes();
    let environments = fs::read_dir("/proc").unwrap().flatten();
    let environments = environments.filter_map(|it| fs::read(it.path().join("environ")).ok());
    environments.filter(|it| it.windows(socket.len()).any(|part| part == socket)).count()
}

fn a_server_serves_beside_a_compile_job(realtime: &str) {
    build_library("heddle-posix", "libheddle_pthread.so");
    let share = Share::start(realtime);
    let server = share.server("server", "lc", &[]);
    let [alone, shared] = ["alone", "shared"].map(|name| share.path(name));
    run(&mut make(Command::new("env"), &alone));

    let file = share.path("cores.toml");
    let heddle = plain(&["--share", file.to_str().unwrap(), "--class", "be", "--"]);
    let mut job = Running::start_logged(&mut make(heddle, &shared));
    until("the job ends", || {
        server.load();
        job.has_ended()
    });
    assert_eq!((job.exit_code(), job.stderr()), (0, String::new()));
    let report = share.report();
    let joined = report.events.iter().filter(|it| it.event == "joined" && it.name == "make");
    assert!(joined.count() >= 2, "both rustc were members: {report:?}");
    assert!(made(&alone) == made(&shared), "it makes the same files");
    assert_eq!(run(&mut Command::new(shared.join("program"))), "396\n");
    assert_eq!(run(Command::new(shared.join("tool")).args(["b", "a"])), "a b\n");
    assert_eq!(processes(&share), 1, "the job has left none");
    share.check();
    server.ends();
}

#[test]
fn a_server_serves_beside_a_compile_job_in_real_time() {
    a_server_serves_beside_a_compile_job(REALTIME[0]);
}

#[test]
fn a_server_serves_beside_a_compile_job_as_ordinary_threads() {
    a_server_serves_beside_a_compile_job(REALTIME[1]);
}

#[test]
fn the_kill_of_a_broker_stops_no_program() {
    build_library("heddle-posix", "libheddle_pthread.so");
    let mut share = Share::start(REALTIME[0]);
    let server = share.server("server", "lc", &[]);
    let (_batch, counter) = share.batch();
    let done = || u64::from_ne_bytes(fs::read(&counter).unwrap()[..8].try_into().unwrap());
    let goes_on = || {
        let before = done();
        until("the batch program computes", || done() > before + 10);
    };
    goes_on();
    share.kill_broker();
    server.load();
    goes_on();
    share.serve();
    until("both are members of the next", || share.report().apps.len() == 2);
    server.load();
    goes_on();
    share.check();
    server.ends();
}

#[cfg(feature = "rocksdb")]
fn two_servers_on_rocksdb_answer_all(realtime: &str, classes: [&str; 2]) {
    let share = Share::start(realtime);
    let servers = ["one", "two"].map(|name| {
        let folder = share.path(name);
        let class = classes[usize::from(name == "two")];
        share.server(name, class, &["--store", "rocksdb", "--dir", folder.to_str().unwrap()])
    });
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| (0..2).for_each(|_| server.load()));
        }
        until("both have had the CPU", || {
            let apps = share.report().apps;
            apps.iter().filter(|app| app.cpus[0].switches > 10).count() == 2
        });
    });
    let apps = share.report().apps;
    let apps: Vec<_> = apps.iter().map(|app| (app.name.as_str(), app.class.as_str())).collect();
    assert_eq!(apps, [("one", classes[0]), ("two", classes[1])]);
    share.check();
    servers.into_iter().for_each(Server::ends);
    until("none is a member", || share.report().apps.is_empty());
}

#[cfg(feature = "rocksdb")]
#[test]
fn two_servers_on_rocksdb_take_turns() {
    for realtime in REALTIME {
        two_servers_on_rocksdb_answer_all(realtime, ["lc", "lc"]);
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_server_on_rocksdb_preempts_another() {
    for realtime in REALTIME {
        two_servers_on_rocksdb_answer_all(realtime, ["lc", "be"]);
    }
}
