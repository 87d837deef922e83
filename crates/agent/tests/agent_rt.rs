//! A policy agent on the real-time backend, on a CPU of this machine: hogs that never sleep, and a thread that runs
//! briefly but often. Needs root; otherwise the tests skip with a note.

use heddle_agent::agent::{Control, EndReason, Options, Report, SHARE, serve};
use heddle_agent::model::Phase;
use heddle_agent::rt::{Rt, RtError, probe};
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Class};
use heddle_sys::thread;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CPU: u32 = 1;
/// Longer than anything here takes.
const GUARD: Duration = Duration::from_secs(120);

/// Processes that are killed when dropped.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start(count: usize) -> Hogs {
        let hog = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Hogs((0..count).map(hog).collect())
    }

    /// Returns how long each has run, in clock ticks.
    fn ran(&self) -> Vec<u64> {
        let ran = |hog: &Child| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", hog.id())).unwrap();
            let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        self.0.iter().map(ran).collect()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Makes an enclave of [`CPU`]; other tests may have it for a while.
fn enclave() -> Arc<Rt> {
    let start = Instant::now();
    loop {
        let name = format!("test-agent-{}", std::process::id());
        match Rt::create(&EnclaveSpec::new(name, &[CPU])) {
            Err(RtError::Overlap { .. }) if start.elapsed() < GUARD => {
                std::thread::sleep(Duration::from_millis(100));
            }
            made => return Arc::new(made.expect("an enclave")),
        }
    }
}

/// Sleeps 2 ms and works for 50 us, `times` times. Returns each time's delay.
fn periodic(times: usize) -> Vec<Ns> {
    let late = |_| {
        let due = heddle_sys::clock::now() + Ns::from_ms(2);
        thread::sleep(Ns::from_ms(2));
        let now = heddle_sys::clock::now();
        while heddle_sys::clock::now() < now + Ns::from_us(50) {}
        now - due
    };
    let mut late: Vec<_> = (0..times).map(late).collect();
    late.sort();
    late
}

/// Runs an agent that sleeps on any CPU, or only on `agent_cpu`.
fn try_agent(
    policy: &str,
    times: usize,
    agent_cpu: Option<u32>,
) -> Option<(Vec<Ns>, Vec<u64>, Report)> {
    if let Err(missing) = probe() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let hogs = Hogs::start(3);
    let rt = enclave();
    let report = std::env::temp_dir().join(format!("heddle-agent-{}.json", std::process::id()));
    let options = Options { report: Some(report.clone()), ..Options::new(policy) };
    let control = Control::default();
    let late = std::thread::scope(|scope| {
        let stop = Stop(&control);
        let backend: Arc<dyn Backend> = rt.clone();
        let control = &control;
        let agent = scope.spawn(move || {
            agent_cpu.map_or(Ok(()), |cpu| thread::pin(&[cpu])).unwrap();
            serve(backend, options, control)
        });
        let start = Instant::now();
        while rt.enclave().phase != Phase::Active {
            assert!(start.elapsed() < GUARD && !agent.is_finished(), "the agent does not attach");
            std::thread::sleep(Duration::from_millis(1));
        }
        for hog in &hogs.0 {
            rt.join(hog.id()).unwrap();
        }
        let rt = &rt;
        let periodic = scope.spawn(move || {
            rt.join(thread::id()).unwrap();
            let late = periodic(times);
            rt.leave(thread::id()).unwrap();
            late
        });
        let late = periodic.join().unwrap();
        drop(stop);
        assert_eq!(agent.join().unwrap().unwrap().reason, EndReason::Stopped);
        late
    });
    let ran = hogs.ran();
    rt.give_back().unwrap();
    for hog in &hogs.0 {
        assert_eq!(scheduling::of(hog.id()).unwrap().class, Class::Other, "as it was");
    }
    Some((late, ran, read(&report)))
}

fn read(path: &Path) -> Report {
    let report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    report
}

/// Stops the agent even if an assertion fails.
struct Stop<'a>(&'a Control);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn hogs_take_turns_and_a_thread_that_wakes_does_not_wait_for_them() {
    let times = std::env::var("TIMES").map_or(500, |times| times.parse().unwrap());
    let policy = std::env::var("POLICY").unwrap_or("round-robin:quantum=4ms".into());
    let Some((late, ran, report)) = try_agent(&policy, times, None) else { return };
    let at = |share: usize| late[(late.len() - 1) * share / 1000];
    eprintln!("late: p50 {} p90 {} p99 {} max {}", at(500), at(900), at(990), at(1000));
    eprintln!("hogs ran {ran:?} ticks");
    eprintln!("{report:#?}");
    assert!(ran.iter().all(|&ran| ran > 0), "{ran:?}");
    assert!(report.committed as usize > times / 4, "{report:?}");
}

/// An agent on the thread's own CPU keeps the thread from running while it checks its quantum. When it was due
/// again at once, the quantum never ended.
#[test]
fn an_agent_leaves_its_cpu_to_the_thread_whose_time_it_waits_for() {
    let Some((_, _, report)) = try_agent("two-queue:quantum=2ms,long=10ms", 500, Some(CPU)) else {
        return;
    };
    // The messages, and one or two checks for each: the quantum's end, and the rest of the quantum if the thread
    // came late.
    assert!(report.rounds < 20 * report.messages, "{report:#?}");
    assert!(report.agents_cpu_ns > Some(0) && report.share_limit == SHARE, "{report:#?}");
}
