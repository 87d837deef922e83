//! Loom models of waiting: the words combined with the list, as in the runtime's locks.

use super::{LockWord, ReadyWord, RwWord, WaitList, WaitNode, WakerSlot};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::{self, Thread};

/// Three forced switches find every known bug of this kind of protocol, and keep each model to seconds.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Waits if `condition` holds. Loom reports a deadlock if nothing ever wakes the caller.
fn wait_while(list: &WaitList<Thread>, condition: impl FnOnce() -> bool) {
    let node = WaitNode::new(thread::current());
    // SAFETY: the node is left only once it was woken.
    if unsafe { list.join_if(&node, condition) } {
        while !node.is_woken() {
            thread::park();
        }
    }
}

fn wake_one(list: &WaitList<Thread>) {
    if let Some(who) = list.take() {
        who.unpark();
    }
}

fn wake_all(list: &WaitList<Thread>) {
    list.take_all(|who| who.unpark());
}

#[derive(Default)]
struct Mutex {
    word: LockWord,
    list: WaitList<Thread>,
    /// Loaded and stored separately: two holders at once would lose an update.
    count: AtomicU32,
}

impl Mutex {
    fn lock_and_count(&self) {
        if !self.word.try_lock() {
            while !self.word.contend() {
                wait_while(&self.list, || self.word.is_contended());
            }
        }
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.word.unlock() {
            wake_one(&self.list);
        }
    }
}

#[test]
fn a_mutex_lets_one_in_and_loses_no_wake() {
    check(|| {
        let mutex = Arc::new(Mutex::default());
        let count = |mutex: Arc<Mutex>| thread::spawn(move || mutex.lock_and_count());
        let threads = [count(mutex.clone()), count(mutex.clone())];
        mutex.lock_and_count();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(mutex.count.load(Ordering::Relaxed), 3);
    });
}

#[derive(Default)]
struct RwLock {
    word: RwWord,
    list: WaitList<Thread>,
    pair: [AtomicU32; 2],
}

impl RwLock {
    fn write(&self) {
        if !self.word.try_write() {
            self.word.writer_waits();
            while !self.word.try_write() {
                wait_while(&self.list, || self.word.is_locked());
            }
            self.word.writer_came();
        }
        for half in &self.pair {
            half.store(half.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.word.end_write();
        wake_all(&self.list);
    }

    fn read(&self) {
        while !self.word.try_read() {
            wait_while(&self.list, || self.word.bars_readers());
        }
        let [a, b] = [0, 1].map(|i| self.pair[i].load(Ordering::Relaxed));
        assert_eq!(a, b, "a writer is in");
        if self.word.end_read() {
            wake_all(&self.list);
        }
    }
}

#[test]
fn a_rwlock_keeps_writers_alone_and_loses_no_wake() {
    check(|| {
        let lock = Arc::new(RwLock::default());
        let (a, b) = (lock.clone(), lock.clone());
        let threads = [thread::spawn(move || a.write()), thread::spawn(move || b.read())];
        lock.write();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(lock.pair[0].load(Ordering::Relaxed), 2);
    });
}

#[derive(Default)]
struct Semaphore {
    permits: AtomicU32,
    list: WaitList<Thread>,
}

impl Semaphore {
    fn acquire(&self) {
        let take = |n: u32| n.checked_sub(1);
        while self.permits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            wait_while(&self.list, || self.permits.load(Ordering::SeqCst) == 0);
        }
    }

    fn release(&self) {
        self.permits.fetch_add(1, Ordering::SeqCst);
        wake_one(&self.list);
    }
}

#[test]
fn a_semaphore_wakes_one_for_each_permit() {
    check(|| {
        let semaphore = Arc::new(Semaphore::default());
        let acquire = |s: Arc<Semaphore>| thread::spawn(move || s.acquire());
        let threads = [acquire(semaphore.clone()), acquire(semaphore.clone())];
        semaphore.release();
        semaphore.release();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(semaphore.permits.load(Ordering::Relaxed), 0);
    });
}

/// Two threads wait; the first one's time is up just as one notification arrives. Either the first gets it, and then it
/// was notified and did not time out, or the second does; never neither, never both.
#[test]
fn a_notification_that_races_with_a_timeout_is_not_lost() {
    check(|| {
        let list = Arc::new(WaitList::new());
        let nodes = Arc::new([1, 2].map(WaitNode::new));
        // SAFETY: the nodes live until the end of the model.
        assert!(nodes.iter().all(|n| unsafe { list.join_if(n, || true) }));
        let (shared, theirs) = (Shared(nodes.clone()), list.clone());
        let timeout = thread::spawn(move || {
            let shared = shared;
            theirs.withdraw(&shared.0[0])
        });
        let notified = list.take();
        let timed_out = timeout.join().unwrap();
        assert_eq!(notified, Some(if timed_out { 2 } else { 1 }));
        assert_eq!(nodes.each_ref().map(|n| n.is_woken()), [!timed_out, timed_out]);
        assert_eq!(list.has_waiters(), !timed_out);
    });
}

/// Nodes that threads share.
struct Shared(Arc<[WaitNode<u32>; 2]>);

// SAFETY: what crosses threads in a node is the list's business, under its lock.
unsafe impl Send for Shared {}

/// Two futures wait and one is dropped just as a wake arrives: what it got and cannot use any more it passes on, so the
/// other one is woken in any case. (Of a wake for all each has its own.)
#[test]
fn a_future_that_is_dropped_passes_its_wake_on() {
    check(|| {
        let list = Arc::new(WaitList::new());
        let nodes = Arc::new([1, 2].map(WaitNode::new));
        // SAFETY: the nodes live until the end of the model.
        assert!(nodes.iter().all(|n| unsafe { list.join_if(n, || true) }));
        let (shared, theirs) = (Shared(nodes.clone()), list.clone());
        let dropped = thread::spawn(move || {
            let shared = shared;
            let node = &shared.0[0];
            let passes_on = !theirs.withdraw(node) && node.is_woken_by_take();
            passes_on.then(|| theirs.take())
        });
        let woken = list.take();
        match dropped.join().unwrap() {
            Some(heir) => assert_eq!((woken, heir), (Some(1), Some(2))),
            None => assert_eq!(woken, Some(2)),
        }
        assert!(nodes[1].is_woken() && !list.has_waiters());
    });
}

/// A future is polled with another waker while it is woken: one of the two wakers is called, and the other comes back.
#[test]
fn a_waker_is_replaced_or_called() {
    check(|| {
        let list = Arc::new(WaitList::new());
        let nodes = Arc::new([1, 2].map(WaitNode::new));
        // SAFETY: the node lives until the end of the model.
        assert!(unsafe { list.join_if(&nodes[0], || true) });
        let (shared, theirs) = (Shared(nodes.clone()), list.clone());
        let poller = thread::spawn(move || {
            let shared = shared;
            let node = &shared.0[0];
            let waits = theirs.wakes(node, |&who| who == 1);
            let back = theirs.replace(node, 3);
            assert!(waits || node.is_woken());
            // Woken before the replacement: the poller sees that, and does not wait for a call.
            assert!(back == 1 || node.is_woken());
            back
        });
        let woken = list.take();
        let back = poller.join().unwrap();
        assert_eq!((woken, back), if back == 1 { (Some(3), 1) } else { (Some(1), 3) });
    });
}

#[derive(Default)]
struct Socket {
    data: AtomicU32,
    ready: ReadyWord,
    list: WaitList<Thread>,
    slot: WakerSlot<Thread>,
}

/// Like `Source::run`: look, try, wait.
fn receive(socket: &Socket) {
    loop {
        let seen = socket.ready.look();
        if socket
            .data
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
            .is_ok()
        {
            if socket.list.has_waiters() && socket.ready.is_ready() {
                wake_one(&socket.list);
            }
            return;
        }
        socket.ready.found_nothing(seen);
        wait_while(&socket.list, || !socket.ready.is_ready());
    }
}

/// Like `Source::poll_io`, by a thread that parks when it is pending.
fn poll_and_park(socket: &Socket) {
    let take = |n: u32| n.checked_sub(1);
    loop {
        if !socket.slot.is_set() || socket.ready.is_ready() {
            let seen = socket.ready.look();
            if socket.data.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok() {
                if socket.list.has_waiters() && socket.ready.is_ready() {
                    wake_one(&socket.list);
                }
                return;
            }
            socket.ready.found_nothing(seen);
        }
        socket.slot.put(thread::current());
        if socket.list.look(|| !socket.ready.is_ready()) {
            thread::park();
        }
    }
}

fn arrive(socket: &Socket) {
    socket.data.fetch_add(1, Ordering::AcqRel);
    socket.ready.report();
    wake_one(&socket.list);
    if let Some(who) = socket.slot.take() {
        who.unpark();
    }
}

#[test]
fn no_edge_is_lost_between_a_look_and_a_wait() {
    check(|| {
        let socket = Arc::new(Socket::default());
        let theirs = socket.clone();
        let receiver = thread::spawn(move || receive(&theirs));
        arrive(&socket);
        receiver.join().unwrap();
    });
}

#[test]
fn two_receivers_get_two_datagrams() {
    check(|| {
        let socket = Arc::new(Socket::default());
        let receive = |s: Arc<Socket>| thread::spawn(move || receive(&s));
        let receivers = [receive(socket.clone()), receive(socket.clone())];
        arrive(&socket);
        arrive(&socket);
        receivers.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn no_edge_is_lost_to_a_future_that_is_polled() {
    check(|| {
        let socket = Arc::new(Socket::default());
        let theirs = socket.clone();
        let poller = thread::spawn(move || poll_and_park(&theirs));
        arrive(&socket);
        poller.join().unwrap();
    });
}

#[test]
fn a_thread_and_a_future_get_two_datagrams() {
    check(|| {
        let socket = Arc::new(Socket::default());
        let (a, b) = (socket.clone(), socket.clone());
        let threads =
            [thread::spawn(move || receive(&a)), thread::spawn(move || poll_and_park(&b))];
        arrive(&socket);
        arrive(&socket);
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}
