//! Loom models of parking: the runtime's code, with loom's futex and the model's own poll. Loom reports a deadlock if a
//! thread is parked and nothing will unpark it.

use super::{Driver, Parking, PollLock};
use heddle_core::Ns;
use loom::sync::atomic::{AtomicU32, Ordering::*};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Three forced switches find every known bug of this kind of protocol; with two workers a third takes minutes.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// The state that the kernel keeps under the epoll's lock.
#[derive(Default)]
struct Epoll {
    bell: bool,
    /// Tasks for which a socket has data.
    data: u32,
}

/// The parts of a runtime that matter for parking: tasks are numbers, and a worker ends when it has one.
struct World {
    parking: Parking,
    poll: PollLock,
    epoll: Mutex<Epoll>,
    ready: Condvar,
    /// Tasks in the queue.
    queue: AtomicU32,
    /// 1 if a timer is due.
    timer: AtomicU32,
}

impl World {
    fn new(cpus: usize, has_dispatcher: bool) -> Arc<World> {
        Arc::new(World {
            parking: Parking::new(cpus, has_dispatcher),
            poll: PollLock::default(),
            epoll: Mutex::default(),
            ready: Condvar::new(),
            queue: AtomicU32::new(0),
            timer: AtomicU32::new(0),
        })
    }

    fn take(of: &AtomicU32) -> bool {
        of.fetch_update(AcqRel, Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    fn is_work(&self) -> bool {
        self.queue.load(Relaxed) != 0 || self.timer.load(Relaxed) != 0
    }

    /// Moves tasks with data to the queue. The caller holds the poll.
    fn report(&self, epoll: &mut Epoll) -> bool {
        let data = std::mem::take(&mut epoll.data);
        self.queue.fetch_add(data, AcqRel);
        data != 0
    }

    /// Polls without sleeping; also hears the bell.
    fn look(&self) -> bool {
        let look = || {
            let mut epoll = self.epoll.lock().unwrap();
            epoll.bell = false;
            self.report(&mut epoll)
        };
        let found = self.poll.try_poll(look) == Some(true);
        // A running worker announces what it finds like any task; what a poll brings to a sleeping worker is its own.
        if found {
            self.parking.unpark_any(self);
        }
        found
    }

    /// The loop of a worker, until it has a task or a timer has fired.
    fn work(&self, cpu: usize) {
        while !World::take(&self.queue) && !World::take(&self.timer) {
            if self.look() {
                continue;
            }
            if !self.parking.park(self, cpu, Ns::MAX, || self.is_work()) {
                // The value may be stale: loom shows it again and again unless the thread yields.
                thread::yield_now();
            }
            if self.is_work() {
                self.parking.works(self, cpu);
            }
        }
        self.parking.works(self, cpu);
    }

    fn enqueue(&self) {
        self.queue.fetch_add(1, Relaxed);
        self.parking.unpark_any(self);
    }

    fn arrive(&self, data: u32) {
        self.epoll.lock().unwrap().data += data;
        self.ready.notify_all();
    }
}

impl Driver for World {
    fn attend(&self, wanted: impl FnOnce() -> bool, _: Ns) -> bool {
        self.poll.attend(wanted, || {
            // The timeout is computed first, as for a system call.
            if self.timer.load(Relaxed) != 0 {
                return;
            }
            let mut epoll = self.epoll.lock().unwrap();
            while !epoll.bell && epoll.data == 0 {
                epoll = self.ready.wait(epoll).unwrap();
            }
            epoll.bell = false;
            self.report(&mut epoll);
        })
    }

    fn is_attended(&self) -> bool {
        self.poll.is_attended()
    }

    fn ring(&self) {
        self.epoll.lock().unwrap().bell = true;
        self.ready.notify_all();
    }
}

fn worker(world: &Arc<World>, cpu: usize) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || world.work(cpu))
}

#[test]
fn a_worker_that_parks_while_a_task_comes_gets_it() {
    check(3, || {
        let world = World::new(1, false);
        let worker = worker(&world, 0);
        world.enqueue();
        worker.join().unwrap();
    });
}

/// The second form of unparking: of the worker that owns the queue.
#[test]
fn a_worker_that_parks_while_it_is_named_wakes_up() {
    check(3, || {
        let world = World::new(1, false);
        let worker = worker(&world, 0);
        world.queue.fetch_add(1, Relaxed);
        world.parking.unpark(&*world, 0);
        worker.join().unwrap();
    });
}

#[test]
fn of_two_workers_in_poll_and_futex_each_gets_one_of_two_tasks() {
    check(2, || {
        let world = World::new(2, false);
        let workers = [worker(&world, 0), worker(&world, 1)];
        world.enqueue();
        world.enqueue();
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// The bell is heard by a thread that only checks the poll and for which it did not ring.
#[test]
fn a_notification_is_seen_although_another_thread_heard_the_bell() {
    check(3, || {
        let world = World::new(1, false);
        let (worker, other) = (worker(&world, 0), world.clone());
        let other = thread::spawn(move || other.look());
        world.enqueue();
        worker.join().unwrap();
        other.join().unwrap();
    });
}

/// Two pieces of data arrive at once and only the poll reports them: the worker that finds them unparks the other.
#[test]
fn a_worker_that_finds_more_than_it_takes_passes_the_wake_on() {
    check(2, || {
        let world = World::new(2, false);
        let workers = [worker(&world, 0), worker(&world, 1)];
        world.arrive(2);
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// One of two workers leaves with a task, perhaps from the poll, while a timer is set; the other must fire it.
#[test]
fn a_timer_that_is_set_while_a_worker_enters_or_leaves_the_poll_fires() {
    check(2, || {
        let world = World::new(2, false);
        let workers = [worker(&world, 0), worker(&world, 1)];
        world.enqueue();
        world.timer.fetch_add(1, Relaxed);
        world.parking.timer_is_earlier(&*world);
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

#[test]
fn a_lone_worker_that_enters_the_poll_sees_a_timer_or_hears_of_it() {
    check(3, || {
        let world = World::new(1, false);
        let worker = worker(&world, 0);
        world.timer.fetch_add(1, Relaxed);
        world.parking.timer_is_earlier(&*world);
        worker.join().unwrap();
    });
}

#[test]
fn a_source_that_is_registered_while_a_worker_enters_or_leaves_the_poll_is_polled() {
    check(2, || {
        let world = World::new(2, false);
        let workers = [worker(&world, 0), worker(&world, 1)];
        world.enqueue();
        world.arrive(1);
        world.parking.source_is_new(&*world);
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// The worker runs until the ticker has seen it.
#[test]
fn the_ticker_does_not_stay_parked_while_a_worker_runs() {
    check(3, || {
        let world = World::new(1, false);
        let seen = Arc::new(loom::sync::Notify::new());
        let (theirs, sees) = (world.clone(), seen.clone());
        let ticker = thread::spawn(move || {
            while theirs.parking.idle().contains(0) {
                theirs.parking.park_ticker(|| false);
            }
            sees.notify();
        });
        let other = world.clone();
        let producer = thread::spawn(move || other.enqueue());
        world.work(0);
        seen.wait();
        ticker.join().unwrap();
        producer.join().unwrap();
    });
}

/// A worker waits for mail, a task is queued, and the dispatcher brings them together.
#[test]
fn a_dispatcher_that_parks_sees_the_task_and_the_worker_that_waits() {
    check(3, || {
        let world = World::new(1, true);
        let waits = Arc::new(AtomicU32::new(0));
        let mail = Arc::new(AtomicU32::new(0));
        let (w, seen, sent) = (world.clone(), waits.clone(), mail.clone());
        let dispatcher = thread::spawn(move || {
            let due = || w.queue.load(Relaxed) != 0 && seen.load(Relaxed) != 0;
            while !due() {
                w.parking.park_dispatcher(&*w, due);
            }
            sent.swap(1, AcqRel);
            w.parking.unpark(&*w, 0);
        });
        let w = world.clone();
        let worker = thread::spawn(move || {
            waits.swap(1, AcqRel);
            while mail.load(Relaxed) == 0 {
                w.parking.park(&*w, 0, Ns::MAX, || mail.load(Relaxed) != 0);
            }
        });
        world.queue.fetch_add(1, Relaxed);
        world.parking.unpark_dispatcher(&*world);
        worker.join().unwrap();
        dispatcher.join().unwrap();
    });
}
