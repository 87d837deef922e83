//! Loom's models of the protocols: the state word (E1), lanes that end (E2), the park (E3).

use crate::schedule::{At, Entry, Quota, Schedule, make};
use crate::state::{Next, State, Taken};
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, Enqueue, Host, Ns, Rng, Topology};
use heddle_sync::IdleSet;
use heddle_sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::Arc;
use loom::thread;

/// An event, and what the models watch.
#[derive(Default)]
struct Event {
    state: State,
    generation: u32,
    /// What happened and was not seen by a handler.
    unseen: AtomicU32,
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

    /// Something happens; the thread that has to put it into a lane handles it.
    fn happen(&self) {
        self.unseen.store(1, Ordering::Relaxed);
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
            Taken::Mine => {}
            Taken::Off => return Next::Nothing,
            Taken::Free => return Next::Free,
        }
        assert!(!had_ended, "given to a thread after its end");
        assert_eq!(self.running.fetch_add(1, Ordering::Relaxed), 0, "two threads at one event");
        self.unseen.swap(0, Ordering::Relaxed);
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.state.release(self.generation, false)
    }

    fn count_free(&self, is_free: bool) {
        if is_free {
            assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "given back twice");
        }
    }

    fn end(&self) {
        let next = self.state.end(self.generation);
        self.ended.store(1, Ordering::Release);
        self.count_free(next == Some(Next::Free));
    }
}

/// With three preemptions at most four threads take minutes.
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
fn no_two_threads_are_at_one_event_and_nothing_that_happens_is_lost() {
    loom::model(|| {
        let event = Event::new(false);
        join([spawn(&event, Event::happen), spawn(&event, Event::happen)]);
        event.happen();
        assert_eq!(event.unseen.load(Ordering::Relaxed), 0, "not told");
    });
}

#[test]
fn a_slot_is_given_back_once_and_its_event_told_to_nobody_then() {
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
fn what_happens_while_an_event_is_off_is_told_when_it_is_on() {
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
        assert_eq!(event.unseen.load(Ordering::Relaxed), 0, "not told");
    });
}

/// Two lanes of a policy that steals.
struct Room {
    infos: Vec<CpuInfo>,
    schedule: Box<dyn Schedule>,
    idle: IdleSet,
    turns: TurnTime,
}

impl Host for Room {
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

impl Room {
    fn new(lanes: usize) -> Arc<Room> {
        let info = |os_id| CpuInfo { os_id, ..CpuInfo::default() };
        let schedule = make("work-stealing:quantum=none", 4, lanes)
            .unwrap_or_else(|error| panic!("{error}"))
            .unwrap_or_else(|name| panic!("{name} preempts"));
        let infos: Vec<_> = (0..lanes as u32).map(info).collect();
        let turns = TurnTime::default();
        Arc::new(Room { idle: IdleSet::new(infos.len()), infos, schedule, turns })
    }

    fn at<T>(&self, lane: usize, ask: impl FnOnce(&At<'_>) -> T) -> T {
        let rng = Rng::new(lane as u64);
        ask(&At { lane, host: self, rng: &rng })
    }

    fn put(&self, lane: usize, event: u32) -> bool {
        let entry = Entry { event, high: false };
        self.at(lane, |at| self.schedule.enqueue(at, lane, &[entry], Enqueue::Wakeup)).is_ok()
    }

    fn take(&self, lane: usize, most: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.at(lane, |at| self.schedule.take(at, Quota { all: most, high: most }, &mut out));
        out
    }

    fn steal(&self, lane: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.at(lane, |at| self.schedule.steal(at, &mut out));
        out
    }

    /// As `Seat::pass_on`: whether somebody was woken.
    fn pass_on(&self, lane: usize) -> bool {
        fence(Ordering::SeqCst);
        self.schedule.waiting(lane) > 0 && self.idle.take_any().is_some()
    }
}

#[test]
fn an_event_is_in_one_place_while_lanes_end_and_thieves_come() {
    loom::model(|| {
        let (old, new) = (Room::new(2), Room::new(1));
        assert!(old.put(0, 0));
        let (thief_of, putter_of) = (old.clone(), (old.clone(), new.clone()));
        let thief = thread::spawn(move || thief_of.steal(1));
        let putter = thread::spawn(move || {
            let (old, new) = putter_of;
            assert!(old.put(0, 1) || new.put(0, 1));
            old.take(0, 1)
        });
        let moved = old.at(0, |at| old.schedule.close(at));
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

/// The owner of lane 0 has two events, takes one, and stalls. The other thread finds the second one, or is woken for it.
#[test]
fn nobody_sleeps_while_something_waits_behind_a_thread_that_stalls() {
    loom::model(|| {
        let room = Room::new(2);
        let other = room.clone();
        let idler = thread::spawn(move || {
            other.idle.mark(1);
            let found = other.steal(1);
            found.is_empty() || !other.idle.unmark(1)
        });
        assert!(room.put(0, 0) && room.put(0, 1));
        let mine = room.take(0, 1).len();
        let woken = room.pass_on(0);
        let sleeps = idler.join().unwrap();
        let left = room.schedule.waiting(0);
        assert!(mine <= 1 && (left == 0 || woken || !sleeps), "{left} left, and nobody comes");
    });
}

/// What is put into the lane of a thread that is about to park: it sees that, or is woken.
#[test]
fn a_thread_that_parks_is_woken_for_what_comes_into_its_lane() {
    loom::model(|| {
        let room = Room::new(2);
        let other = room.clone();
        let putter = thread::spawn(move || {
            assert!(other.put(0, 0));
            fence(Ordering::SeqCst);
            other.idle.unmark(0)
        });
        room.idle.mark(0);
        let sleeps = room.schedule.waiting(0) == 0 || !room.idle.unmark(0);
        assert!(putter.join().unwrap() || !sleeps, "asleep with an event in its lane");
    });
}
