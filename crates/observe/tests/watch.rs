//! What is lost, refused and noted; windows; names; restarts.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_core::Ns;
use heddle_observe::{
    ObserveError, Options, Recording, SwitchOptions, Switches, Target, Watch, probe,
};
use heddle_test_support::{temp_dir, until};
use support::{Entry, listen, read_request, request, start, watch, write_answer};

/// Which role a copy of this program has, in its environment.
const ROLE: &str = "HEDDLE_OBSERVE_TEST_ROLE";

/// Starts a server of connections that are closed after an answer.
fn serve() -> SocketAddr {
    let (listener, address) = listen();
    std::thread::spawn(move || {
        heddle_sys::thread::set_name(c"a\nb\x1b[2J\xff");
        while let Ok((stream, _)) = listener.accept() {
            let mut entry = Entry::default();
            if read_request(&stream, &mut entry) {
                write_answer(&stream, &mut entry);
            }
        }
    });
    address
}

fn requests(address: SocketAddr, count: u64) {
    (0..count).for_each(|id| request(&TcpStream::connect(address).unwrap(), id));
}

#[test]
fn a_full_ring_is_counted() {
    const REQUESTS: u64 = 200;
    let address = serve();
    let target = Target { processes: vec![std::process::id()], ports: vec![address.port()] };
    let options = Options { ring_bytes: 4096, ..Options::default() };
    let Some(watch) = start(&target, &options) else { return };
    // Nothing is read from the ring meanwhile.
    requests(address, REQUESTS);
    let recording = watch.finish().unwrap();
    assert!(recording.lost.records > 0 && !recording.spans.is_empty());
    assert_eq!(recording.lost.records + recording.spans.len() as u64, REQUESTS);
}

#[test]
fn a_budget_that_is_too_small_makes_windows() {
    let address = serve();
    let options = Options { budget: 1e-6, ..Options::default() };
    let stop = AtomicBool::new(false);
    let target = Target { processes: vec![std::process::id()], ports: vec![address.port()] };
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                requests(address, 1);
            }
        });
        let mut paused = false;
        let progress = |progress: heddle_observe::Progress| {
            if !progress.watching && progress.elapsed > Ns::ZERO {
                paused = true;
                stop.store(true, Ordering::Relaxed);
            }
        };
        let result =
            Watch::for_duration(&target, &options, Duration::from_secs(60), &stop, progress);
        stop.store(true, Ordering::Relaxed);
        result.map(|recording| (recording, paused))
    });
    let (recording, paused) = match result {
        Ok(result) => result,
        Err(error @ (ObserveError::Denied(_) | ObserveError::Kernel { .. })) => {
            return eprintln!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    assert!(paused && recording.windows.len() == 1, "{:?}", recording.windows);
    let window = recording.windows[0];
    assert!(!recording.spans.is_empty() && recording.cost > Ns::ZERO);
    for span in &recording.spans {
        assert!(span.received >= window.from && span.answered <= window.to, "{span:?}");
    }
    assert_eq!(recording.watched(), window.to - window.from);
}

#[test]
fn two_observers_see_the_same() {
    const REQUESTS: u64 = 100;
    let address = serve();
    let target = Target { processes: vec![std::process::id()], ports: vec![address.port()] };
    let Some(first) = start(&target, &Options::default()) else { return };
    let second = start(&target, &Options::default()).unwrap();
    requests(address, REQUESTS);
    let [first, second] = [first, second].map(|watch| watch.finish().unwrap());
    assert_eq!(first.spans.len() as u64, REQUESTS);
    let of = |recording: &Recording| -> Vec<(u64, u32, u32)> {
        recording.spans.iter().map(|span| (span.connection, span.reader, span.writer)).collect()
    };
    assert_eq!(of(&first), of(&second));
}

#[test]
fn threads_are_described_and_names_are_harmless() {
    let address = serve();
    let load = || {
        requests(address, 200);
        // A process of another name that ends meanwhile.
        Command::new("true").status().unwrap();
    };
    let Some(recording) = watch(&[address.port()], &Options::default(), load) else { return };
    let reader = recording.spans[0].reader;
    let thread = recording.threads.iter().find(|one| one.thread == reader).expect("it ran");
    assert_eq!(thread.name, "a\u{fffd}b\u{fffd}[2J\u{fffd}");
    assert_eq!((thread.process, thread.policy), (std::process::id(), 0));
    assert!(thread.switches > 0 && thread.cpu > Ns::ZERO && !thread.cpus.is_empty());
    assert!(thread.preempted <= thread.switches && !thread.bursts.is_empty(), "{thread:?}");
    let ran: Ns = thread.bursts.iter().fold(Ns::ZERO, |sum, burst| sum + burst.ran);
    assert!(ran <= thread.cpu, "{ran} in bursts: {thread:?}");
    assert!(recording.host.cpus > 0 && !recording.service.name.is_empty());
    let folder = temp_dir();
    let path = folder.path().join("recording.json");
    recording.write(&path).unwrap();
    assert_eq!(Recording::read(&path).unwrap(), recording);
}

#[test]
fn every_switch_is_counted_and_recorded() {
    let options = SwitchOptions { events: true, threads: true, bursts: true, ring_bytes: 0 };
    let switches = match Switches::start(options) {
        Ok(switches) => switches,
        Err(error @ ObserveError::Denied(_)) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let own = std::process::id();
    switches.set_group(own, 3);
    let thread = std::thread::spawn(|| {
        (0..50).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
        heddle_sys::thread::id()
    });
    let thread = thread.join().unwrap();
    let (mut to, mut from, mut last) = (0, 0, [Ns::ZERO; 1024]);
    switches.take_events(|event| {
        assert!(event.at >= last[usize::from(event.cpu)], "in order for each CPU");
        last[usize::from(event.cpu)] = event.at;
        to += u32::from(event.to == thread);
        from += u32::from(event.from == thread && event.sleeps());
    });
    assert_eq!(switches.lost_events().iter().sum::<u64>(), 0);
    assert!(from >= 50 && to >= from, "{to} {from}");
    let times = switches.times(3);
    assert!(times.burst.iter().sum::<u64>() >= 50);
    assert_eq!(times.burst.iter().sum::<u64>(), times.run_queue.iter().sum::<u64>());
    assert!(switches.count() >= u64::from(to));
    let used = switches.uses().into_iter().find(|one| one.thread == thread).unwrap();
    assert!(used.process == own && used.ended && used.switches >= 50 && used.bursts >= 50);
    assert_eq!(switches.times(4).burst.iter().sum::<u64>(), 0, "a group without processes");
}

#[test]
fn a_thread_is_charged_for_the_waits_of_a_group_on_its_cpu() {
    let options = SwitchOptions { threads: true, ..SwitchOptions::default() };
    let switches = match Switches::start(options) {
        Ok(switches) => switches,
        Err(error @ ObserveError::Denied(_)) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let cpu = heddle_sys::thread::affinity().unwrap()[0];
    let command = "while :; do :; done";
    let busy = || heddle_test_support::Running::start(Command::new("sh").args(["-c", command]));
    let (mine, neighbour) = (busy(), busy());
    for process in [&mine, &neighbour] {
        heddle_sys::thread::CpuMask::of(&[cpu]).apply_to(process.pid()).unwrap();
    }
    switches.set_group(mine.pid(), 1);
    let of = |process: u32| switches.uses().into_iter().find(|one| one.thread == process);
    until("the neighbour is charged", || {
        of(neighbour.pid()).is_some_and(|neighbour| neighbour.delayed > Ns::ZERO)
    });
    let pids = [mine.pid(), neighbour.pid()];
    drop((mine, neighbour));
    let [mine, neighbour] = pids.map(|pid| of(pid).unwrap());
    assert_eq!(mine.delayed, Ns::ZERO, "the neighbour's waits are not charged");
    assert!(neighbour.delayed <= neighbour.cpu, "{neighbour:?}");
    assert!(neighbour.preempted > 0 && neighbour.ended, "{neighbour:?}");
}

#[test]
fn a_ring_of_switches_that_is_full_is_counted() {
    let options = SwitchOptions { events: true, ring_bytes: 4096, ..SwitchOptions::default() };
    let switches = match Switches::start(options) {
        Ok(switches) => switches,
        Err(error @ ObserveError::Denied(_)) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    until("the rings are full", || {
        std::thread::sleep(Duration::from_micros(50));
        switches.lost_events().iter().sum::<u64>() > 0
    });
    let mut taken = 0;
    switches.take_events(|_| taken += 1);
    assert!(taken > 0);
}

/// Starts a copy of this program that runs the test `child` in a role.
fn copy(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(ROLE, role);
    command
}

/// What copies of this program do; by itself nothing.
#[test]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("unprivileged") => {
            let address = serve();
            let target =
                Target { processes: vec![std::process::id()], ports: vec![address.port()] };
            let error = Watch::start(&target, &Options::default()).unwrap_err();
            println!("error: {error}");
            println!("privileged: {}", probe()[0].available);
        }
        Ok("server") => {
            let address = serve();
            println!("port: {}", address.port());
            until("the parent closes the pipe", || {
                std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes == 0)
            });
        }
        Ok(port) => {
            let listener = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
            println!("port: {port}");
            let (stream, _) = listener.accept().unwrap();
            let mut entry = Entry::default();
            assert!(read_request(&stream, &mut entry));
            write_answer(&stream, &mut entry);
        }
        Err(_) => {}
    }
}

#[test]
fn without_privileges_it_says_what_is_missing() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root, so no user to change to");
    }
    let folder = temp_dir();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "child", "--nocapture"]).env(ROLE, "unprivileged");
    let output = command.uid(65534).gid(65534).current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("needs root, or CAP_BPF and CAP_PERFMON"), "{text}");
    assert!(text.contains("privileged: false"), "{text}");
}

/// Starts a server process and returns it with its port.
fn server(role: &str) -> (Child, u16) {
    let mut command = copy(role);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| line.unwrap().split_once("port: ")?.1.trim().parse().ok());
    // Its further output must not end it by a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (child, port.expect("it prints its port"))
}

#[test]
fn a_service_that_restarts_is_followed_and_noted() {
    let (mut before, port) = server("server");
    let target = Target { processes: vec![before.id()], ports: Vec::new() };
    let Some(mut watch) = start(&target, &Options::default()) else {
        before.kill().unwrap();
        before.wait().unwrap();
        return;
    };
    assert_eq!(watch.service().sockets[0].port, port);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    requests(address, 5);
    before.kill().unwrap();
    before.wait().unwrap();
    let (mut after, _) = server(&port.to_string());
    until("the new process is found", || {
        watch.poll().unwrap();
        watch.service().processes.contains(&after.id())
    });
    requests(address, 1);
    after.wait().unwrap();
    let recording = watch.finish().unwrap();
    assert_eq!(recording.spans.len(), 6, "{:?}", recording.lost);
    assert_eq!(recording.spans[5].process, after.id());
    let notes = recording.lost.notes.join("\n");
    assert!(notes.contains(&format!("ended meanwhile: {}", before.id())), "{notes}");
    assert!(notes.contains(&format!("started meanwhile: {}", after.id())), "{notes}");
}
