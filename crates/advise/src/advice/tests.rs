//! Advice on recordings of services whose behaviour is known, because it is computed here without the simulator.

use heddle_core::{Ns, Rng};
use heddle_observe::{
    Host, Off, Protocol, Recording, Runtime, Service, Socket, Span, ThreadUse, Window,
};

use super::*;

const PORT: u16 = 8000;
const FIRST_PROCESS: u32 = 100;

/// Sync workers that sleep for each request, each with a queue of its own or with one for all.
struct Servers {
    workers: usize,
    shared: bool,
    /// The mean time between arrivals.
    gap: Ns,
    requests: usize,
    /// The demand of a request, by a random number from 0 to 999.
    demand: fn(u64) -> Ns,
}

const SHORT_AND_LONG: Servers = Servers {
    workers: 6,
    shared: false,
    gap: Ns::from_ms(10),
    requests: 6_000,
    demand: |random| if random < 50 { Ns::from_ms(200) } else { Ns::from_ms(10) },
};

impl Servers {
    /// What an observer would see: connections are spread by a hash, each worker serves in order.
    fn recording(&self) -> Recording {
        let rng = Rng::new(5);
        let uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut free = vec![Ns::ZERO; self.workers];
        let mut now = Ns::from_secs(1000);
        let start = now;
        let mut spans = Vec::with_capacity(self.requests);
        for number in 0..self.requests {
            now += Ns((-(1.0 - uniform()).ln() * self.gap.0 as f64) as u64 + 1);
            let worker = match self.shared {
                true => (0..self.workers).min_by_key(|&worker| free[worker]).unwrap(),
                false => (rng.next_u64() % self.workers as u64) as usize,
            };
            let received = now.max(free[worker]) + Ns::from_us(20);
            let demand = (self.demand)(rng.next_u64() % 1000);
            free[worker] = received + demand;
            let process = FIRST_PROCESS + worker as u32;
            let mut span = Span {
                connection: number as u64 + 1,
                port: PORT,
                arrived: now,
                ready: now,
                received,
                answered: free[worker],
                cpu: Ns::from_us(200),
                reader: process,
                writer: process,
                process,
                reads: 1,
                writes: 1,
                first: true,
                ..Span::default()
            };
            span.off.sleep = demand - span.cpu;
            spans.push(span);
        }
        let processes: Vec<u32> = (0..self.workers as u32).map(|k| FIRST_PROCESS + k).collect();
        let socket = |owners: Vec<u32>| Socket {
            inode: 7_000 + u64::from(owners[0]),
            protocol: Protocol::Tcp,
            port: PORT,
            owners,
            shares_port: !self.shared,
            ..Socket::default()
        };
        let sockets = match self.shared {
            true => vec![socket(processes.clone())],
            false => processes.iter().map(|&process| socket(vec![process])).collect(),
        };
        Recording {
            host: Host { processor: "test".into(), kernel: "6".into(), cpus: 2 },
            service: Service { name: "server".into(), processes, sockets, ..Service::default() },
            windows: vec![Window { from: start, to: now }],
            spans,
            ..Recording::default()
        }
    }

    fn advice(&self) -> Advice {
        ask(&self.recording(), "p90 < 20ms")
    }
}

fn ask(recording: &Recording, slo: &str) -> Advice {
    let options = Options { slo: Some(slo.parse().unwrap()), ..Options::default() };
    advise(recording, &options, |_, _| {}).unwrap().0
}

#[test]
fn queues_of_their_own_behind_a_hash_want_the_idle_worker() {
    let advice = SHORT_AND_LONG.advice();
    assert_eq!(advice.declined, None);
    let best = advice.best().expect("something helps");
    assert!(
        matches!(&best.change, Change::Steer { policy, .. } if policy == "jiq" || policy == "jsq"),
        "{best:?}"
    );
    assert!(best.ratio.low > 2.0, "{:?}", best.ratio);
    assert_eq!(
        best.apply.as_deref().map(|command| command.starts_with("heddle steer attach --port 8000")),
        Some(true)
    );
    assert!(best.undo.is_some());
    let check = advice.self_check.expect("it was checked");
    assert!(check.passes(), "{check:?}");
}

#[test]
fn a_shared_queue_is_as_good_as_it_gets() {
    let advice = Servers { shared: true, ..SHORT_AND_LONG }.advice();
    assert_eq!(advice.declined, None);
    assert_eq!(advice.best(), None, "{:?}", advice.options.first());
    assert_eq!(advice.options[0].change, Change::Nothing);
    assert!(advice.options.iter().all(|option| !matches!(option.change, Change::Steer { .. })));
}

/// The same work as computation, by the workers of a runtime that runs each task to its end.
fn in_a_runtime(mut recording: Recording, workers: usize) -> Recording {
    recording.service.runtime =
        Some(Runtime { policy: "fifo".into(), workers, ..Runtime::default() });
    for span in &mut recording.spans {
        (span.process, span.cpu, span.off) =
            (FIRST_PROCESS, span.answered - span.received, Off::default());
    }
    recording
}

#[test]
fn long_tasks_of_a_runtime_want_preemption() {
    let servers = Servers {
        workers: 2,
        shared: true,
        gap: Ns::from_ms(1),
        requests: 20_000,
        demand: |random| if random < 10 { Ns::from_ms(20) } else { Ns::from_us(500) },
    };
    let advice = ask(&in_a_runtime(servers.recording(), 2), "p99(short) < 2ms");
    assert_eq!(advice.declined, None);
    assert_eq!(advice.best(), None, "a runtime's policy needs a restart");
    let more = advice.with_effort().expect("a restart helps");
    let two_queue = Change::RuntimePolicy { from: "fifo".into(), to: "two-queue".into() };
    assert_eq!((&more.change, more.effort), (&two_queue, Effort::Restart));
    assert!(more.ratio.low > 2.0, "{:?}", more.ratio);
    let check = advice.self_check.expect("it was checked");
    assert!(check.passes() && check.cpus == Cpus::Ample, "{check:?}");
}

#[test]
fn a_policy_that_is_named_is_the_runtimes_if_there_is_one() {
    let shared = Servers { shared: true, ..SHORT_AND_LONG };
    let recording = in_a_runtime(shared.recording(), 6);
    let model = extract::model(&recording, None, None);
    let named = options::named(&model, "two-queue:quantum=50us").to_string();
    assert_eq!(named, "HEDDLE_POLICY=two-queue:quantum=50us");
    let options = Options { policies: vec!["no-such".into()], ..Options::default() };
    let error = advise(&recording, &options, |_, _| {}).map(drop).unwrap_err().to_string();
    assert!(error.contains("no-such"), "{error}");
}

#[test]
fn event_loops_of_one_process_could_share_a_queue() {
    let mut recording = SHORT_AND_LONG.recording();
    recording.service.sockets.truncate(1);
    for span in &mut recording.spans {
        // A connection stays with its thread.
        span.connection = u64::from(span.reader);
        (span.first, span.process) = (false, FIRST_PROCESS);
        (span.cpu, span.off) = (span.answered - span.received, Off::default());
    }
    let advice = ask(&recording, "p90 < 20ms");
    assert_eq!(advice.declined, None);
    let options: Vec<String> =
        advice.options.iter().map(|o| format!("{} {:?}", o.change, o.ratio)).collect();
    let more = advice.with_effort().unwrap_or_else(|| panic!("other code helps: {options:?}"));
    assert_eq!((&more.change, more.effort), (&Change::EventQueue, Effort::Code));
    assert!(more.apply.is_none() && more.ratio.low > 2.0, "{more:?}");
    // Its CPUs, replayed, do not explain it; if it waits for them, nothing else does.
    let mut waits = recording.clone();
    let (process, run_queue) = (FIRST_PROCESS, Ns::from_secs(1_000_000));
    waits.threads.push(ThreadUse { process, run_queue, ..ThreadUse::default() });
    let declined = ask(&waits, "p90 < 20ms").declined;
    assert!(matches!(declined, Some(Decline::Unexplained { .. })), "{declined:?}");
    // It has one already.
    let mut shared = recording.clone();
    shared.service.event_queue = Some("hybrid".into());
    assert!(!options::of(&extract::model(&shared, None, None)).contains(&Change::EventQueue));
    // Processes cannot share one.
    recording.spans.iter_mut().for_each(|span| span.process = span.reader);
    assert!(!options::of(&extract::model(&recording, None, None)).contains(&Change::EventQueue));
}

#[test]
fn an_idle_service_needs_nothing() {
    let idle = Servers {
        gap: Ns::from_ms(100),
        demand: |_| Ns::from_ms(10),
        requests: 3_000,
        ..SHORT_AND_LONG
    };
    let advice = idle.advice();
    assert_eq!(advice.declined, None);
    assert_eq!(advice.best(), None, "{:?}", advice.options.first());
}

#[test]
fn two_classes_are_named_and_can_be_asked_for() {
    let recording = SHORT_AND_LONG.recording();
    let advice = ask(&recording, "p90(long) < 1s");
    assert_eq!((advice.class.as_str(), advice.declined), ("long", None));
    let wrong = Options { slo: Some("p90(medium) < 1s".parse().unwrap()), ..Options::default() };
    let error = advise(&recording, &wrong, |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("medium") && error.contains("short, long"), "{error}");
}

#[test]
fn a_model_that_does_not_explain_the_present_is_not_used() {
    let mut recording = SHORT_AND_LONG.recording();
    // Requests wait although their workers are idle: for something that is not seen.
    for span in &mut recording.spans {
        span.arrived -= Ns::from_ms(300);
    }
    recording.spans.iter_mut().step_by(3).for_each(|span| span.arrived -= Ns::from_ms(500));
    recording.windows[0].from -= Ns::from_secs(1);
    let advice = ask(&recording, "p90 < 20ms");
    assert!(advice.declined.is_some(), "{advice:?}");
    assert!(advice.options.is_empty());
}

#[test]
fn it_declines_what_it_cannot_know() {
    let good = SHORT_AND_LONG.recording();
    let declined = |change: &dyn Fn(&mut Recording)| {
        let mut recording = good.clone();
        change(&mut recording);
        ask(&recording, "p90 < 20ms").declined
    };
    assert_eq!(declined(&|_| {}), None);
    assert_eq!(declined(&|r| r.spans.clear()), Some(Decline::NoRequests));
    assert!(matches!(declined(&|r| r.lost.records = 100), Some(Decline::Lost { .. })));
    assert!(matches!(declined(&|r| r.lost.unanswered = 100), Some(Decline::Unanswered { .. })));
    let pipelined =
        |r: &mut Recording| r.spans.iter_mut().step_by(10).for_each(|span| span.pipelined = true);
    assert!(matches!(declined(&pipelined), Some(Decline::Entangled { .. })));
    let unconfirmed =
        |r: &mut Recording| r.spans.iter_mut().step_by(10).for_each(|span| span.unconfirmed = true);
    assert!(matches!(declined(&unconfirmed), Some(Decline::Entangled { .. })));
    assert!(matches!(
        declined(&|r| r.service.throttled = Ns::from_secs(100)),
        Some(Decline::Throttled { .. })
    ));
    let half = |r: &mut Recording| {
        let mut number = 0;
        let middle = r.spans[r.spans.len() / 2].arrived;
        r.spans.retain(|span| {
            number += 1;
            span.arrived < middle || number % 2 == 0
        });
    };
    assert!(matches!(declined(&half), Some(Decline::Unsteady { .. })));
    assert!(matches!(
        declined(&|r| r.spans.truncate(50)),
        Some(Decline::TooFew { .. } | Decline::Unsteady { .. })
    ));
}

#[test]
fn with_few_requests_it_speaks_of_a_lower_quantile() {
    let advice = ask(&SHORT_AND_LONG.recording(), "p99.9 < 1s");
    assert!(
        (advice.quantile - 0.95).abs() < 1e-9 || (advice.quantile - 0.9).abs() < 1e-9,
        "{}",
        advice.quantile
    );
    assert!(advice.notes.iter().any(|note| note.contains("p99.9")), "{:?}", advice.notes);
}

#[test]
fn a_noisy_neighbour_is_named() {
    let mut recording = SHORT_AND_LONG.recording();
    recording.threads.push(ThreadUse {
        thread: 900,
        process: 900,
        name: "noisy\u{1b}[31m".into(),
        cpu: Ns(recording.watched().0 / 2),
        delayed_service: Ns::from_secs(1),
        bursts: vec![heddle_observe::Burst { slept: Ns::from_ms(2), ran: Ns::from_ms(2) }; 100],
        ..ThreadUse::default()
    });
    let model = extract::model(&recording, None, None);
    assert_eq!(model.neighbours[0].process, 900);
    let changes = options::of(&model);
    let nice = changes
        .iter()
        .find(|change| matches!(change, Change::Nice { .. }))
        .expect("it is an option");
    assert!(!nice.to_string().contains('\u{1b}'), "{nice}");
    assert_eq!(nice.undo().as_deref(), Some("renice -n 0 -p $(ls /proc/900/task)"));
}
