//! Unmodified programs that share a CPU, with a broker in this process: as members, killed, stopped, and without it.
//!
//! Real-time where this process may grant it, else as ordinary threads.

use heddle_broker::{Broker, Config, Options, Report, query};
use heddle_sys::scheduling::Class;
use heddle_test_support::c::build_library;
use heddle_test_support::{Running, TempDir, temp_dir, until, workspace_root};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

/// Returns the library that `heddle run` preloads.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    const FILE: &str = "libheddle_pthread.so";
    LIBRARY.get_or_init(|| build_library("heddle-posix", FILE).join(FILE))
}

/// Returns the program `c/share.c`.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let compile = || {
        let folder = temp_dir();
        let output = folder.path().join("share");
        let source = workspace_root().join("crates/posix/tests/c/share.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Werror", "-pthread", "-o"]).args([&output, &source]);
        assert!(compiler.status().expect("a compiler").success());
        (folder, output)
    };
    &PROGRAM.get_or_init(compile).1
}

/// A broker.
struct Share {
    folder: TempDir,
    /// The lines of its file that say which CPUs it shares, and how.
    lines: String,
    broker: Option<(UnixStream, JoinHandle<()>)>,
}

impl Share {
    /// Starts one of the last usable CPU.
    fn new() -> Share {
        let cpu = *heddle_sys::thread::affinity().unwrap().last().unwrap();
        Share::with(format!("cpus = \"{cpu}\""))
    }

    fn with(lines: String) -> Share {
        let mut share = Share { folder: temp_dir(), lines, broker: None };
        share.start();
        share
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("share.sock")
    }

    fn start(&mut self) {
        let text = format!("{}\nsocket = \"{}\"\n", self.lines, self.socket().display());
        let file = self.folder.path().join("cores.toml");
        fs::write(&file, text).unwrap();
        let config = Config::read(&file).unwrap();
        let broker = Broker::start(config, &file, Options::default()).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let _ = broker.run(stopped).unwrap();
        });
        self.broker = Some((stop, thread));
    }

    fn stop(&mut self) {
        if let Some((mut stop, thread)) = self.broker.take() {
            stop.write_all(&[0]).unwrap();
            thread.join().unwrap();
        }
    }

    fn report(&self) -> Report {
        query(&self.socket()).unwrap()
    }

    /// Starts the program as a member of this class and name.
    fn member(&self, name: &str, class: &str, arguments: &[&str]) -> Member {
        let counter = self.folder.path().join(format!("{name}.count"));
        fs::write(&counter, [0; 24]).unwrap();
        let mut command = Command::new(program());
        command.arg(&counter).args(arguments).stdin(Stdio::null());
        command.env("LD_PRELOAD", library()).env("HEDDLE_POLICY", "two-queue:quantum=200us");
        command.env("HEDDLE_SHARE", self.socket());
        command.env("HEDDLE_SHARE_CLASS", class).env("HEDDLE_SHARE_NAME", name);
        Member { running: Running::start(&mut command), counter: File::open(counter).unwrap() }
    }

    fn batch(&self, name: &str) -> Member {
        let batch = self.member(name, "be", &["batch", "2"]);
        until("the batch program computes", || batch.done() > 0);
        batch
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Member {
    running: Running,
    counter: File,
}

impl Member {
    /// Returns how much it has done.
    fn done(&self) -> u64 {
        self.number(0)
    }

    fn number(&self, index: u64) -> u64 {
        let mut number = [0; 8];
        self.counter.read_exact_at(&mut number, 8 * index).unwrap();
        u64::from_ne_bytes(number)
    }

    /// Says for how long it did nothing at most: for who runs the test by hand with many kills.
    fn say_longest_gap(&self, name: &str) {
        let (longest, long_ones) = (self.number(1) / 1000, self.number(2));
        println!("{name}: nothing done for {longest} us at most, {long_ones} times for over 10 ms");
    }

    /// Returns how often its threads have left their CPUs.
    fn switches(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.running.pid())).unwrap();
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap();
        let of = |status: String| -> u64 {
            let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
            lines.map(|(_, number)| number.trim().parse::<u64>().unwrap()).sum()
        };
        tasks.map(|task| of(status(task.unwrap()))).sum()
    }

    /// Waits until it has done more.
    fn goes_on(&self) {
        let before = self.done();
        until("the program goes on", || self.done() > before + 10);
    }

    /// Waits until it ends, and checks that it found nothing wrong.
    fn succeeds(mut self) {
        until("the program ends", || self.running.has_ended());
        assert_eq!(self.running.wait().code(), Some(0));
    }
}

/// A service comes and goes. A batch program is preempted and may keep its turn.
fn both_had_the_cpu(share: &Share) -> bool {
    share
        .report()
        .apps
        .iter()
        .all(|app| app.cpus[0].active_ns > 0 && (app.class == "be" || app.cpus[0].switches > 1))
}

#[test]
fn a_service_and_a_batch_program_take_turns() {
    let share = Share::new();
    let batch = share.batch("batch");
    let service = share.member("service", "lc", &["service", "4", "250"]);
    until("both are members", || share.report().apps.len() == 2);
    until("both have had the CPU", || both_had_the_cpu(&share));
    let before = batch.done();
    until("the service is about to end", || service.done() > 900);
    let report = share.report();
    let breaks = report.apps.iter().filter(|app| app.cpus[0].broken > 0);
    assert!(!report.share.realtime || breaks.count() == 0, "{report:?}");
    service.succeeds();
    until("the service is gone", || share.report().apps.len() == 1);
    assert!(batch.done() > before, "the batch program computes beside the service");
    batch.goes_on();
}

/// How many programs are killed, unless `HEDDLE_KILLS` says.
fn kills() -> u64 {
    std::env::var("HEDDLE_KILLS").map_or(10, |kills| kills.parse().expect("a number"))
}

/// Waits for a moment, another one in each round: somewhere between two rounds of a service.
fn some_moment(round: u64) {
    std::thread::sleep(Duration::from_micros(round * 977 % 5000));
}

#[test]
fn the_kill_of_a_batch_program_at_any_moment_loses_no_round_of_a_service() {
    let share = Share::new();
    let rounds = (60 * kills()).to_string();
    let service = share.member("service", "lc", &["service", "4", &rounds]);
    for kill in 0..kills() {
        let batch = share.batch("batch");
        some_moment(kill);
        batch.running.signal(Signal::KILL);
    }
    service.say_longest_gap("service");
    service.succeeds();
}

#[test]
fn the_kill_of_a_service_gives_the_cpu_back() {
    let share = Share::new();
    let batch = share.batch("batch");
    for kill in 0..kills() {
        let service = share.member("service", "lc", &["service", "2", "100000"]);
        until("the service has begun", || service.done() > 5);
        some_moment(kill);
        service.running.signal(Signal::KILL);
        batch.goes_on();
    }
    batch.say_longest_gap("batch");
}

#[test]
fn idle_members_never_run() {
    let share = Share::new();
    let idle = ["lc", "be"].map(|class| share.member(class, class, &["idle", "3"]));
    until("their threads wait", || idle.iter().all(|it| it.done() == 3));
    let switches = || idle.iter().map(Member::switches).sum::<u64>();
    until("none of their threads runs for a while", || {
        let before = switches();
        std::thread::sleep(Duration::from_millis(300));
        switches() == before
    });
}

/// Returns how many real-time workers the program has. Helpers have a higher priority, and none of them computes.
fn realtime_workers(program: &Member) -> usize {
    let folder = format!("/proc/{}/task", program.running.pid());
    let tasks = fs::read_dir(folder).unwrap().map(|task| task.unwrap().path());
    let is_worker = |task: &PathBuf| {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let number = name.trim().strip_prefix("heddle-");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let tid = |task: PathBuf| task.file_name()?.to_str()?.parse::<u32>().ok();
    let class = |tid| heddle_sys::scheduling::of(tid).map(|it| it.class);
    let tids = tasks.filter(is_worker).filter_map(tid);
    tids.filter(|&tid| class(tid).is_ok_and(|class| class == Class::Fifo)).count()
}

/// Real time orders equals, and would keep other programs from the CPU.
#[test]
fn a_batch_program_is_real_time_only_while_it_has_equals() {
    let share = Share::new();
    if !share.report().share.realtime {
        eprintln!("skipped: no right to make threads real-time");
        return;
    }
    let batch = share.batch("batch");
    let service = share.member("service", "lc", &["service", "2", "100000"]);
    service.goes_on();
    until("one alone is not", || realtime_workers(&batch) == 0);
    assert_eq!(realtime_workers(&service), 1);
    let equal = share.batch("equal");
    until("two are", || realtime_workers(&batch) == 1 && realtime_workers(&equal) == 1);
    equal.running.signal(Signal::KILL);
    until("one that is left is not", || realtime_workers(&batch) == 0);
    service.goes_on();
    batch.goes_on();
}

#[test]
fn one_that_is_stopped_does_not_stop_the_other() {
    let share = Share::new();
    let batch = share.batch("batch");
    let service = share.member("service", "lc", &["service", "2", "100000"]);
    service.goes_on();
    batch.running.signal(Signal::STOP);
    service.goes_on();
    batch.running.signal(Signal::CONT);
    batch.goes_on();
    service.running.signal(Signal::STOP);
    batch.goes_on();
    service.running.signal(Signal::CONT);
    service.goes_on();
    batch.goes_on();
}

#[test]
fn members_go_on_without_a_broker_and_find_the_next() {
    let mut share = Share::new();
    let batch = share.batch("batch");
    let service = share.member("service", "lc", &["service", "2", "100000"]);
    service.goes_on();
    share.stop();
    for _ in 0..3 {
        service.goes_on();
        batch.goes_on();
    }
    share.start();
    until("both are members again", || share.report().apps.len() == 2);
    service.goes_on();
    batch.goes_on();
    until("both have had the CPU", || both_had_the_cpu(&share));
}

#[test]
fn all_cpus_are_shared_by_ordinary_threads() {
    let cpus = heddle_sys::thread::affinity().unwrap();
    let cpus = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let share = Share::with(format!("cpus = \"{cpus}\"\nrealtime = \"never\""));
    let batch = share.member("batch", "be", &["batch", "5"]);
    until("the batch program computes", || batch.done() > 0);
    let services = ["one", "two"].map(|name| share.member(name, "lc", &["service", "5", "100"]));
    services.into_iter().for_each(Member::succeeds);
    batch.goes_on();
}

#[test]
fn a_member_forks_and_its_children_execute_members() {
    let share = Share::new();
    let batch = share.batch("batch");
    let parent = share.member("parent", "lc", &["forks", "2"]);
    parent.succeeds();
    batch.goes_on();
}

#[test]
fn ten_programs_share_one_cpu() {
    let share = Share::new();
    let batches: Vec<Member> = (0..5).map(|n| share.batch(&format!("batch{n}"))).collect();
    let names: Vec<String> = (0..5).map(|n| format!("service{n}")).collect();
    let services: Vec<Member> =
        names.iter().map(|name| share.member(name, "lc", &["service", "3", "50"])).collect();
    services.into_iter().for_each(Member::succeeds);
    batches.iter().for_each(Member::goes_on);
}

#[test]
fn a_program_that_finds_no_broker_says_so_and_does_not_start() {
    let folder = temp_dir();
    let mut command = Command::new(program());
    let counter = folder.path().join("count");
    fs::write(&counter, [0; 24]).unwrap();
    command.arg(&counter).args(["service", "1", "1"]);
    command.env("LD_PRELOAD", library()).env("HEDDLE_SHARE", folder.path().join("none.sock"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no broker answers") && said.contains("heddle share serve"), "{said}");
}
