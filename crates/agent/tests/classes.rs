//! From a line of the steering map to a CPU: threads that work on GETs run strictly before those that work on SCANs
//! (Syrup, section 5.3). The map is a real one of the kernel, so these tests need BPF, and skip with a note without
//! it; the threads are a model's.

use heddle_agent::Backend as _;
use heddle_agent::classes::{ClassMap, Classes, Lines};
use heddle_agent::model::ThreadWord;
use heddle_agent::model::machine::{Machine, ModelEnclave, Spec};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_bpf::{Map, MapKind, MapSpec, MapView};
use heddle_core::{Class, CpuId, Ns, TaskId, line};
use heddle_policies::Priority;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

fn map(value_size: u32) -> Option<Map> {
    let name = "hd_lines".into();
    let (kind, key_size, entries) = (MapKind::Array, 4, line::MOST as u32);
    match Map::create(&MapSpec { name, kind, key_size, value_size, entries, read_only: false }) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("SKIPPED: making BPF maps takes privileges ({error})");
            None
        }
        map => Some(map.expect("made")),
    }
}

/// The program's side: the stores of `hd_executor_bind` and `hd_busy`.
struct Program(MapView);

impl Program {
    fn bind(&self, line: usize, tid: u32) {
        self.0.half(line, line::THREAD).store(tid, Relaxed);
    }

    fn busy(&self, line: usize, work: u32) {
        self.0.half(line, line::CLASS).store(work, Relaxed);
    }
}

fn both(map: &Map, rules: &[&str]) -> (Program, Classes) {
    let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    let program = Program(MapView::new(map).expect("mappable"));
    (program, Classes::new(rules).with_map(Lines::of(map).expect("lines")))
}

fn word(tid: u32, weight: u32) -> ThreadWord {
    ThreadWord { tid, weight, ..ThreadWord::default() }
}

#[test]
fn a_thread_is_of_the_class_of_its_work_and_of_its_own_while_it_has_none() {
    let Some(map) = map(64) else { return };
    let (program, mut classes) = both(&map, &["9=work:5"]);
    let mut class = |weight| classes.class_of(TaskId(0), &word(77, weight));
    assert_eq!((class(100), class(50)), (Class::LC, Class::BE), "no line is its own");
    program.bind(3, 77);
    assert_eq!(class(50), Class::BE, "it does nothing");
    for (work, expected) in
        [(1, 0), (2, 1), (3, 2), (5, 9), (256, 255), (257, 255), (u32::MAX, 255)]
    {
        program.busy(3, work);
        assert_eq!(class(50), Class(expected), "work {work}");
    }
    program.busy(3, line::IDLE);
    assert_eq!((class(50), class(100)), (Class::BE, Class::LC));
}

#[test]
fn a_thread_that_moves_to_another_line_is_found_there() {
    let Some(map) = map(64) else { return };
    let (program, mut classes) = both(&map, &[]);
    program.bind(0, 78);
    program.busy(0, 9);
    program.bind(63, 77);
    program.busy(63, 2);
    let mut class = |tid| classes.class_of(TaskId(0), &word(tid, 100));
    assert_eq!(class(77), Class(1));
    program.bind(63, 0);
    assert_eq!(class(77), Class::LC, "no thread has the line");
    program.bind(1, 77);
    program.busy(1, 4);
    assert_eq!((class(77), class(78)), (Class(3), Class(8)));
}

#[test]
fn a_map_without_lines_is_refused() {
    let Some(map) = map(32) else { return };
    let error = Lines::of(&map).unwrap_err().to_string();
    assert_eq!(error, "map `hd_lines` is not a class map: its values have 32 bytes, lines have 64");
}

#[test]
fn a_map_that_is_not_there_is_named() {
    let error = Lines::open("/sys/fs/bpf/heddle/no-such-map").unwrap_err().to_string();
    assert!(error.starts_with("no class map at /sys/fs/bpf/heddle/no-such-map: "), "{error}");
    let error = Lines::open("4000000000").unwrap_err().to_string();
    assert!(
        error.starts_with("no class map at /sys/fs/bpf/heddle/4000000000/map_hd_lines: "),
        "{error}"
    );
}

const GET: u32 = 1;
const SCAN: u32 = 2;

/// One CPU under `priority`, and two server threads, each with a line.
struct Server {
    machine: Machine,
    enclave: ModelEnclave,
    program: Program,
    threads: [TaskId; 2],
}

impl Server {
    fn new(map: &Map) -> Server {
        let machine = Machine::flat(1);
        let enclave = machine.enclave(Spec::of([CpuId(0)])).expect("an enclave");
        enclave.attach().expect("no other agent is");
        let threads = [0, 1].map(|_| machine.spawn(enclave.id(), false));
        let program = Program(MapView::new(map).expect("mappable"));
        for (at, &thread) in threads.iter().enumerate() {
            program.bind(at, machine.thread(thread).tid);
        }
        Server { machine, enclave, program, threads }
    }

    fn agent(&self, map: &Map) -> Scheduler<'_, Priority> {
        let lines = Lines::of(map).expect("lines");
        let classes = Classes::default().with_map(lines);
        let settings = Settings { threads: 8, classes, ..Settings::default() };
        let policy = heddle_policies::build("priority:check=100us").expect("a policy");
        let mut agent = Scheduler::new(policy, &self.enclave, settings);
        agent.adopt();
        agent
    }

    fn wake(&self, thread: usize, work: u32) {
        self.program.busy(thread, work);
        self.machine.wake(self.threads[thread]);
    }

    fn running(&self) -> Option<usize> {
        let running = self.machine.running(CpuId(0))?;
        self.threads.iter().position(|&thread| thread == running)
    }
}

#[test]
fn a_get_that_comes_takes_the_cpu_of_a_scan_at_once() {
    let Some(map) = map(64) else { return };
    let server = Server::new(&map);
    let mut agent = server.agent(&map);
    server.wake(0, SCAN);
    agent.round();
    assert_eq!(server.running(), Some(0));
    server.wake(1, GET);
    agent.round();
    assert_eq!(server.running(), Some(1));
    // The same threads in reverse roles.
    server.machine.block(server.threads[1]);
    agent.round();
    server.program.busy(0, GET);
    server.wake(1, SCAN);
    server.machine.set_time(Ns::from_us(100));
    agent.round();
    assert_eq!(server.running(), Some(0));
}

#[test]
fn a_thread_that_begins_a_scan_while_it_runs_makes_way_for_a_get_at_the_next_check() {
    let Some(map) = map(64) else { return };
    let server = Server::new(&map);
    let mut agent = server.agent(&map);
    server.wake(0, GET);
    agent.round();
    server.wake(1, GET);
    agent.round();
    assert_eq!(server.running(), Some(0), "its like waits");
    // A store of the program: the kernel sends no message.
    server.program.busy(0, SCAN);
    server.machine.set_time(Ns::from_us(200));
    agent.round();
    assert_eq!(server.running(), Some(1));
}

#[test]
fn lines_cost_the_agent_no_system_call() {
    let Some(map) = map(64) else { return };
    let (program, mut classes) = both(&map, &["be=work:3"]);
    program.bind(0, 77);
    // The descriptor is closed: from here on only memory is read.
    drop(map);
    program.busy(0, 3);
    assert_eq!(classes.class_of(TaskId(0), &word(77, 100)), Class::BE);
}

/// Otherwise the owner of a map of lines could make another user's threads wait, in an enclave that has both.
#[test]
fn lines_speak_only_for_the_threads_of_their_own_user() {
    const OTHER: u32 = 65534;
    let Some(map) = map(64) else { return };
    let pin = std::path::PathBuf::from(format!("/sys/fs/bpf/heddle-test-{}", std::process::id()));
    let pinned = map.pin(&pin).and_then(|()| std::os::unix::fs::chown(&pin, Some(OTHER), None));
    if let Err(error) = pinned {
        eprintln!("skipped: no map can be pinned and given away ({error})");
        return;
    }
    let lines = Lines::open(&pin.to_string_lossy());
    std::fs::remove_file(&pin).expect("ours");
    let mut classes = Classes::default().with_map(lines.expect("lines"));
    let program = Program(MapView::new(&map).expect("mappable"));
    let mut command = std::process::Command::new("sleep");
    let mut own = std::os::unix::process::CommandExt::uid(command.arg("1000"), OTHER)
        .spawn()
        .expect("it starts");
    let (mine, his) = (std::process::id(), own.id());
    for (line, pid) in [mine, his].into_iter().enumerate() {
        program.bind(line, pid);
        program.busy(line, SCAN);
    }
    let mut class =
        |slot, pid| classes.class_of(TaskId(slot), &ThreadWord { tgid: pid, ..word(pid, 100) });
    let found = (class(0, mine), class(1, his));
    own.kill().expect("ours");
    own.wait().expect("ours");
    assert_eq!(found, (Class::LC, Class::BE));
}

/// An array of the user's own, as `HD_MAP(work, u32, 64)` declares it, beside the lines.
fn own_map(kind: MapKind, key_size: u32, value_size: u32) -> Option<Map> {
    let spec =
        MapSpec { name: "work".into(), kind, key_size, value_size, entries: 64, read_only: false };
    match Map::create(&spec) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        map => Some(map.expect("made")),
    }
}

#[test]
fn a_custom_array_gives_the_class_of_the_executor_that_the_lines_say_a_thread_serves() {
    let (Some(lines), Some(work)) = (map(64), own_map(MapKind::Array, 4, 64)) else { return };
    let program = Program(MapView::new(&lines).expect("mappable"));
    let own = MapView::new(&work).expect("mappable");
    let custom = ClassMap::of(&work, Lines::of(&lines).expect("lines")).expect("a class map");
    let mut classes = Classes::new(vec!["7=work:3".parse().unwrap()]).with_map(custom);
    drop(work);
    let mut class = |tid| classes.class_of(TaskId(0), &word(tid, 100));
    own.half(5, 0).store(SCAN, Relaxed);
    assert_eq!(class(77), Class::LC, "no line names the thread");
    program.bind(5, 77);
    assert_eq!(class(77), Class::BE);
    program.busy(5, GET);
    assert_eq!(class(77), Class::BE, "the line's own class does not count");
    own.half(5, 0).store(3, Relaxed);
    assert_eq!(class(77), Class(7), "rules about work apply");
    own.half(5, 0).store(line::IDLE, Relaxed);
    assert_eq!(class(77), Class::LC);
}

#[test]
fn a_custom_hash_gives_the_class_of_a_thread_without_any_lines() {
    let Some(work) = own_map(MapKind::Hash, 4, 8) else { return };
    let lines = map(64).expect("maps can be made");
    let custom = ClassMap::of(&work, Lines::of(&lines).expect("lines")).expect("a class map");
    let mut classes = Classes::default().with_map(custom);
    let mut class = |tid| classes.class_of(TaskId(0), &word(tid, 100));
    let set = |tid: u32, class: u64| {
        work.update(&tid.to_ne_bytes(), &class.to_ne_bytes()).expect("there is room");
    };
    set(77, SCAN.into());
    assert_eq!((class(77), class(78)), (Class::BE, Class::LC));
    set(77, GET.into());
    set(78, 9);
    assert_eq!((class(77), class(78)), (Class::LC, Class(8)));
    work.remove(&78_u32.to_ne_bytes()).expect("it is there");
    assert_eq!(class(78), Class::LC);
}

#[test]
fn maps_of_another_kind_are_refused() {
    for (kind, key, value) in
        [(MapKind::PerCpuArray, 4, 8), (MapKind::Hash, 8, 8), (MapKind::Hash, 4, 2)]
    {
        let Some(work) = own_map(kind, key, value) else { return };
        let lines = Lines::of(&map(64).expect("maps can be made")).expect("lines");
        let error = ClassMap::of(&work, lines).unwrap_err().to_string();
        let begin =
            "map `work` is not a class map: it must be an array by executor or a hash by thread";
        assert!(error.starts_with(begin), "{error}");
    }
    let error = ClassMap::open("4000000000:work").unwrap_err().to_string();
    assert!(error.contains("/sys/fs/bpf/heddle/4000000000/map_hd_lines"), "{error}");
}

/// A service needs no steering for its class map: it pins a hash, and the agent is told its path.
#[test]
fn a_pinned_hash_is_a_class_map_of_its_owner() {
    let Some(work) = own_map(MapKind::Hash, 4, 4) else { return };
    let pin = std::path::PathBuf::from(format!("/sys/fs/bpf/heddle-own-{}", std::process::id()));
    if let Err(error) = work.pin(&pin) {
        eprintln!("skipped: no map can be pinned ({error})");
        return;
    }
    let custom = ClassMap::open(&pin.to_string_lossy());
    std::fs::remove_file(&pin).expect("ours");
    let mut classes = Classes::default().with_map(custom.expect("a class map"));
    work.update(&77_u32.to_ne_bytes(), &SCAN.to_ne_bytes()).expect("there is room");
    assert_eq!(classes.class_of(TaskId(0), &word(77, 100)), Class::BE);
}

/// The policy in the kernel has marked the executor before its thread wakes: no check is needed, and no message.
#[test]
fn a_thread_whose_executor_is_marked_before_it_wakes_is_of_that_class_at_once() {
    let (Some(lines), Some(work)) = (map(64), own_map(MapKind::Array, 4, 64)) else { return };
    let server = Server::new(&lines);
    let own = MapView::new(&work).expect("mappable");
    let custom = ClassMap::of(&work, Lines::of(&lines).expect("lines")).expect("a class map");
    let settings = Settings {
        threads: 8,
        classes: Classes::default().with_map(custom),
        ..Settings::default()
    };
    let policy: Priority = heddle_policies::build("priority:check=100us").expect("a policy");
    let mut agent = Scheduler::new(policy, &server.enclave, settings);
    agent.adopt();
    let wake = |thread: usize, class| {
        own.half(thread, 0).store(class, Relaxed);
        server.machine.wake(server.threads[thread]);
    };
    wake(0, SCAN);
    agent.round();
    wake(1, SCAN);
    agent.round();
    assert_eq!(server.running(), Some(0), "its like waits");
    server.machine.block(server.threads[0]);
    agent.round();
    assert_eq!(server.running(), Some(1));
    wake(0, GET);
    agent.round();
    assert_eq!(server.running(), Some(0), "a GET takes the CPU of a SCAN");
}
