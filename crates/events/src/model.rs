//! Loom models of the protocols: the state word (E1), run queues that end (E2), parking (E3).

use crate::schedule::{Caller, Entry, Quota, Schedule, make};
use crate::state::{Next, State, TakeOutcome};
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, Enqueue, Host, Ns, Rng, Topology};
use heddle_sync::IdleSet;
use heddle_sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::Arc;
use loom::thread;

/// An event, and what the models observe of it.
#[derive(Default)]
struct Event {
    state: State,
    generation: u32,
    /// Something happened that no handler has seen.
    pending: AtomicU32,
    running: AtomicU32,
    freed: AtomicU32,
    ended: AtomicU32,
}

impl Event {
    fn new(off: bool) -> Arc<Event> {
        let mut event = Event::default();
        event.generation = event.state.begin(off);
        Arc::new(event)
    }

    /// Activates the event. The thread that must queue it handles it.
    fn happen(&self) {
        self.pending.store(1, Ordering::Relaxed);
        self.follow(self.state.activate(self.generation));
    }

    fn follow(&self, mut next: Next) {
        while next == Next::Enqueue {
            next = self.handle();
        }
        self.count_free(next == Next::Free);
    }

    fn handle(&self) -> Next {
        let had_ended = self.ended.load(Ordering::Acquire) == 1;
        match self.state.take(self.generation, false) {
            TakeOutcome::Mine => {}
            TakeOutcome::Off => return Next::Nothing,
            TakeOutcome::Free => return Next::Free,
        }
        assert!(!had_ended, "delivered after its end");
        assert_eq!(self.running.fetch_add(1, Ordering::Relaxed), 0, "two threads handle one event");
        self.pending.swap(0, Ordering::Relaxed);
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.state.release(self.generation, false)
    }

    fn count_free(&self, is_free: bool) {
        if is_free {
            assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "freed twice");
        }
    }

    fn end(&self) {
        let next = self.state.end(self.generation);
        self.ended.store(1, Ordering::Release);
        self.count_free(next == Some(Next::Free));
    }
}

/// With the usual three preemptions, four threads would take minutes.
fn four_threads(act: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(act);
}

fn spawn(event: &Arc<Event>, act: fn(&Event)) -> thread::JoinHandle<()> {
    let event = Arc::clone(event);
    thread::spawn(move || act(&event))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn no_two_threads_handle_one_event_and_no_activation_is_lost() {
    loom::model(|| {
        let event = Event::new(false);
        join([spawn(&event, Event::happen), spawn(&event, Event::happen)]);
        event.happen();
        assert_eq!(event.pending.load(Ordering::Relaxed), 0, "not delivered");
    });
}

#[test]
fn a_slot_is_freed_once_and_its_event_is_not_delivered_afterwards() {
    four_threads(|| {
        let event = Event::new(false);
        join(
            [spawn(&event, Event::happen), spawn(&event, Event::happen)]
                .into_iter()
                .chain([spawn(&event, Event::end)]),
        );
        assert_eq!(event.freed.load(Ordering::Relaxed), 1);
        assert_eq!(event.state.activate(event.generation), Next::Nothing);
    });
}

#[test]
fn activations_while_off_are_delivered_when_turned_on() {
    four_threads(|| {
        let event = Event::new(false);
        let off_and_on = |event: &Event| {
            assert!(event.state.turn_off(event.generation));
            event.follow(event.state.turn_on(event.generation, false));
        };
        join([
            spawn(&event, Event::happen),
            spawn(&event, off_and_on),
            spawn(&event, Event::happen),
        ]);
        assert_eq!(event.pending.load(Ordering::Relaxed), 0, "not delivered");
    });
}

/// The run queues of a policy that steals.
struct TestQueues {
    infos: Vec<CpuInfo>,
    schedule: Box<dyn Schedule>,
    idle: IdleSet,
    turns: TurnTime,
}

impl Host for TestQueues {
    fn now(&self) -> Ns {
        Ns::ZERO
    }
    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.infos)
    }
    fn queue_len(&self, cpu: CpuId) -> usize {
        self.schedule.waiting(cpu.index())
    }
    fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle.contains(cpu.index())
    }
    fn any_idle(&self) -> bool {
        !self.idle.is_empty()
    }
    fn turns(&self, _: CpuId) -> &TurnTime {
        &self.turns
    }
}

impl TestQueues {
    fn new(queues: usize) -> Arc<TestQueues> {
        let info = |os_id| CpuInfo { os_id, ..CpuInfo::default() };
        let schedule = make("work-stealing:quantum=none", 4, queues)
            .unwrap_or_else(|error| panic!("{error}"))
            .unwrap_or_else(|name| panic!("{name} preempts"));
        let infos: Vec<_> = (0..queues as u32).map(info).collect();
        let turns = TurnTime::default();
        Arc::new(TestQueues { idle: IdleSet::new(infos.len()), infos, schedule, turns })
    }

    fn at<T>(&self, index: usize, ask: impl FnOnce(&Caller<'_>) -> T) -> T {
        let rng = Rng::new(index as u64);
        ask(&Caller { index, host: self, rng: &rng })
    }

    fn put(&self, index: usize, event: u32) -> bool {
        let entry = Entry { event, high: false };
        self.at(index, |caller| self.schedule.enqueue(caller, index, &[entry], Enqueue::Wakeup))
            .is_ok()
    }

    fn take(&self, index: usize, most: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.at(index, |caller| {
            self.schedule.take(caller, Quota { all: most, high: most }, &mut out)
        });
        out
    }

    fn steal(&self, index: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.at(index, |caller| self.schedule.steal(caller, &mut out));
        out
    }

    /// As `WorkerState::wake_another`. Returns whether a worker was woken.
    fn wake_another(&self, index: usize) -> bool {
        fence(Ordering::SeqCst);
        self.schedule.waiting(index) > 0 && self.idle.take_any().is_some()
    }
}

#[test]
fn an_event_is_in_one_queue_while_queues_close_and_thieves_come() {
    loom::model(|| {
        let (old, new) = (TestQueues::new(2), TestQueues::new(1));
        assert!(old.put(0, 0));
        let (thief_of, putter_of) = (old.clone(), (old.clone(), new.clone()));
        let thief = thread::spawn(move || thief_of.steal(1));
        let putter = thread::spawn(move || {
            let (old, new) = putter_of;
            assert!(old.put(0, 1) || new.put(0, 1));
            old.take(0, 1)
        });
        let moved = old.at(0, |caller| old.schedule.close(caller));
        moved.iter().for_each(|entry| assert!(new.put(0, entry.event)));
        let mut all = new.take(0, 4);
        all.extend(thief.join().unwrap());
        all.extend(putter.join().unwrap());
        all.extend(new.take(0, 4));
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
        assert!(old.take(0, 4).is_empty() && !old.put(1, 2));
    });
}

/// The owner of queue 0 has two events, takes one, and stalls. The other worker finds the second event or is
/// woken for it.
#[test]
fn no_worker_sleeps_while_events_wait_behind_a_stalled_one() {
    loom::model(|| {
        let queues = TestQueues::new(2);
        let other = queues.clone();
        let idler = thread::spawn(move || {
            other.idle.mark(1);
            let found = other.steal(1);
            found.is_empty() || !other.idle.unmark(1)
        });
        assert!(queues.put(0, 0) && queues.put(0, 1));
        let mine = queues.take(0, 1).len();
        let woken = queues.wake_another(0);
        let sleeps = idler.join().unwrap();
        let left = queues.schedule.waiting(0);
        assert!(mine <= 1 && (left == 0 || woken || !sleeps), "{left} left, and no worker comes");
    });
}

/// An event enters the queue of a worker that is about to park: the worker sees it or is woken.
#[test]
fn a_parking_worker_is_woken_for_an_event_in_its_queue() {
    loom::model(|| {
        let queues = TestQueues::new(2);
        let other = queues.clone();
        let putter = thread::spawn(move || {
            assert!(other.put(0, 0));
            fence(Ordering::SeqCst);
            other.idle.unmark(0)
        });
        queues.idle.mark(0);
        let sleeps = queues.schedule.waiting(0) == 0 || !queues.idle.unmark(0);
        assert!(putter.join().unwrap() || !sleeps, "asleep with an event in its queue");
    });
}
