//! Many descriptors, and threads that join, leave and die, under every policy and while it changes: each
//! event is handled once, by one thread at a time, and none is lost.

use heddle_events::{Batch, EventError, EventId, EventOptions, EventQueue, Interest};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const HANG: Duration = Duration::from_secs(60);

/// Returns every policy that event queues accept, without its quantum if necessary.
fn accepted() -> Vec<String> {
    let is_accepted =
        |text: &String| EventQueue::builder().policy(text).capacity(1).build().is_ok();
    let forms = |name: &str| [name.to_string(), format!("{name}:quantum=none")];
    let all: Vec<_> = heddle_policies::names()
        .filter_map(|name| forms(name).into_iter().find(is_accepted))
        .collect();
    println!("{all:?}");
    assert!(all.len() > 6, "{all:?}");
    all.into_iter()
        .chain(["hybrid:affinity=none,choices=2,penalty=1ns,steal=8,retry=50us".into()])
        .collect()
}

/// A counter in the kernel: what is added to it must be read once.
struct Counter {
    fd: OwnedFd,
    added: AtomicU64,
    read: AtomicU64,
    busy: AtomicBool,
}

impl Counter {
    fn new() -> Counter {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        Counter { fd, added: 0.into(), read: 0.into(), busy: false.into() }
    }

    fn add(&self) {
        self.added.fetch_add(1, SeqCst);
        rustix::io::write(&self.fd, &1u64.to_ne_bytes()).unwrap();
    }

    fn read(&self) {
        assert!(!self.busy.swap(true, SeqCst), "two threads at one event");
        let mut bytes = [0; 8];
        if rustix::io::read(&self.fd, &mut bytes).is_ok() {
            self.read.fetch_add(u64::from_ne_bytes(bytes), SeqCst);
        }
        self.busy.store(false, SeqCst);
    }

    fn is_read(&self) -> bool {
        self.added.load(SeqCst) == self.read.load(SeqCst)
    }
}

fn counters(n: usize) -> Vec<Counter> {
    (0..n).map(|_| Counter::new()).collect()
}

/// Waits until everything that was added has been read.
fn await_all(counters: &[Counter], what: &str) {
    let begin = Instant::now();
    while let Some(lost) = counters.iter().position(|counter| !counter.is_read()) {
        assert!(begin.elapsed() < HANG, "{what}: event {lost} of {} is lost", counters.len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn handle(batch: Batch<'_>, counters: &[Counter], turn: u64) {
    for (i, event) in batch.enumerate() {
        counters[event.token() as usize].read();
        if event.token() % 3 == 0 {
            event.drained();
        }
        // Some events are not looked at, and some threads die with what they hold.
        match (turn + i as u64) % 97 {
            11 => return,
            13 => resume_unwind(Box::new("died")),
            _ => {}
        }
    }
}

/// Joins, handles events for a while, and leaves or dies, until the queue is closed.
fn come_and_go(queue: &EventQueue, counters: &[Counter], thread: u64) {
    for life in 0.. {
        let died = catch_unwind(AssertUnwindSafe(|| -> Result<(), EventError> {
            let mut worker = queue.worker()?;
            if thread.is_multiple_of(2) {
                worker.set_batch(1 + life as usize % 9);
            }
            for turn in 0..40 * (thread + 1) {
                handle(worker.wait(Some(Duration::from_millis(20)))?, counters, turn + life);
            }
            Ok(())
        }));
        match died {
            Ok(Err(EventError::Closed)) => return,
            Ok(Err(error)) => panic!("{error}"),
            Ok(Ok(())) => {}
            Err(death)
                if death.is::<&str>() && *death.downcast_ref::<&str>().unwrap() == "died" => {}
            Err(failure) => {
                queue.close();
                resume_unwind(failure);
            }
        }
    }
}

fn options(i: usize) -> EventOptions {
    let options = EventOptions::default();
    match i % 5 {
        // Edge-triggered: reported again if it is not looked at, drained if it is read.
        0 => options.edge(),
        1 => options.high(),
        _ => options,
    }
}

fn register(queue: &EventQueue, counters: &[Counter]) -> Vec<EventId> {
    let one = |(i, counter): (usize, &Counter)| {
        queue.register(&counter.fd, Interest::READ, i as u64, options(i)).unwrap()
    };
    counters.iter().enumerate().map(one).collect()
}

/// Runs rounds of activity over a queue whose threads come and go, calling `disturb` in each.
fn storm(policy: &str, events: usize, rounds: usize, disturb: impl Fn(&EventQueue, usize)) {
    let queue = EventQueue::builder().policy(policy).build().unwrap();
    let counters = counters(events);
    let ids = register(&queue, &counters);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (queue, counters) = (&queue, &counters);
            scope.spawn(move || come_and_go(queue, counters, thread));
        }
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for round in 0..rounds {
                disturb(&queue, round);
                for counter in counters.iter().skip(round % 3) {
                    counter.add();
                }
                if round % 4 == 3 {
                    await_all(&counters, policy);
                }
            }
            await_all(&counters, policy);
        }));
        queue.close();
        ended.unwrap_or_else(|failure| resume_unwind(failure));
    });
    assert_eq!((queue.workers(), queue.len()), (0, events));
    ids.into_iter().for_each(|id| queue.deregister(id).unwrap());
    assert!(queue.is_empty());
}

#[test]
fn nothing_is_lost_or_repeated_while_threads_come_go_and_die() {
    for policy in accepted() {
        storm(&policy, 40, 120, |_, _| {});
    }
}

#[test]
fn nothing_is_lost_or_repeated_while_the_policy_changes_too() {
    let policies = accepted();
    storm("hybrid", 40, 300, |queue, round| {
        queue.set_policy(&policies[round % policies.len()]).unwrap();
    });
}

/// Registrations end, begin, turn off and on and change their interest all the time. The last registration of
/// each descriptor loses nothing.
#[test]
fn nothing_is_lost_while_registrations_change() {
    let queue = EventQueue::builder().capacity(20_000).build().unwrap();
    let counters = counters(32);
    let ids = Mutex::new(register(&queue, &counters));
    let change = |i: usize, round: usize| {
        let mut ids = ids.lock().unwrap();
        match (i + round) % 4 {
            0 => {
                queue.deregister(ids[i]).unwrap();
                // Its slot may still be held or queued, and another one be taken: there is room.
                let fd = &counters[i].fd;
                ids[i] = queue.register(fd, Interest::READ, i as u64, options(round)).unwrap();
            }
            1 => queue.turn_off(ids[i]).and_then(|()| queue.turn_on(ids[i])).unwrap(),
            2 => queue.set_interest(ids[i], Interest::READ).unwrap(),
            _ => {
                let second =
                    queue.register_second(ids[i], Interest::READ, i as u64, options(0).off());
                queue.deregister(second.unwrap()).unwrap();
            }
        }
    };
    let handlers = Mutex::new(vec![0; counters.len()]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut worker = queue.worker().unwrap();
                while let Ok(batch) = worker.wait(None) {
                    for event in batch {
                        // The handler of an ended registration may still be at work when the next one is
                        // delivered.
                        let i = event.token() as usize;
                        let mut bytes = [0; 8];
                        if rustix::io::read(&counters[i].fd, &mut bytes).is_ok() {
                            counters[i].read.fetch_add(u64::from_ne_bytes(bytes), SeqCst);
                        }
                        handlers.lock().unwrap()[i] += 1;
                    }
                }
            });
        }
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for round in 0..200 {
                for (i, counter) in counters.iter().enumerate() {
                    counter.add();
                    change(i, round);
                }
            }
            await_all(&counters, "changes");
        }));
        queue.close();
        ended.unwrap_or_else(|failure| resume_unwind(failure));
    });
}

/// A gate at which a handler waits.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.lock().unwrap();
        let waited = self.1.wait_timeout_while(open, HANG, |open| !*open).unwrap();
        assert!(!waited.1.timed_out(), "the gate stays closed");
    }
}

/// A handler stalls until all other events are handled: other workers have to take what is queued behind it.
#[test]
fn other_workers_take_events_behind_a_stalled_handler() {
    for policy in ["hybrid", "work-stealing", "fifo"] {
        let queue = EventQueue::builder().policy(policy).build().unwrap();
        let (stalls, rest) = (Counter::new(), counters(100));
        queue.register(&stalls.fd, Interest::READ, 1000, EventOptions::default()).unwrap();
        register(&queue, &rest);
        let gate = Arc::new(Gate::default());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut worker = queue.worker().unwrap();
                    worker.set_batch(1);
                    while let Ok(batch) = worker.wait(None) {
                        for event in batch {
                            match event.token() {
                                1000 => {
                                    stalls.read();
                                    gate.pass();
                                }
                                i => rest[i as usize].read(),
                            }
                        }
                    }
                });
            }
            let ended = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..20 {
                    stalls.add();
                    rest.iter().for_each(Counter::add);
                    await_all(&rest, policy);
                }
            }));
            gate.open();
            let stalled = catch_unwind(AssertUnwindSafe(|| {
                await_all(std::slice::from_ref(&stalls), policy);
            }));
            queue.close();
            ended.and(stalled).unwrap_or_else(|failure| resume_unwind(failure));
        });
    }
}

/// Raises the limit on descriptors as far as possible. Returns the limit.
fn descriptors() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Including the hard limit, if this user may raise it.
    let enough = Some(60_000.max(maximum.unwrap_or(0)));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: enough, maximum: enough });
    raised.or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })).unwrap();
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[test]
fn fifty_thousand_descriptors_are_all_delivered() {
    const MANY: usize = 50_000;
    if descriptors() < MANY as u64 + 1_000 {
        println!("skipped: {MANY} descriptors are more than this user may open (RLIMIT_NOFILE)");
        return;
    }
    let queue = EventQueue::new().unwrap();
    let counters = counters(MANY);
    let ids = register(&queue, &counters);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut worker = queue.worker().unwrap();
                while let Ok(batch) = worker.wait(None) {
                    batch.for_each(|event| counters[event.token() as usize].read());
                }
            });
        }
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..2 {
                counters.iter().for_each(Counter::add);
                await_all(&counters, "many");
            }
            // A worker joins and leaves: all homes are checked.
            drop(queue.worker().unwrap());
            counters.iter().step_by(7).for_each(Counter::add);
            await_all(&counters, "many, after a change");
        }));
        queue.close();
        ended.unwrap_or_else(|failure| resume_unwind(failure));
    });
    ids.into_iter().for_each(|id| queue.deregister(id).unwrap());
    assert!(queue.is_empty());
}
