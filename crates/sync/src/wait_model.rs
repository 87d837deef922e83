//! Loom models of waiting: the words combined with the list, as in the runtime's locks.

use super::{LockWord, ReadyWord, RwWord, WaitList, WaitNode};
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
        struct Shared(Arc<[WaitNode<u32>; 2]>);
        // SAFETY: what crosses threads in a node is the list's business, under its lock.
        unsafe impl Send for Shared {}
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

#[derive(Default)]
struct Socket {
    data: AtomicU32,
    ready: ReadyWord,
    list: WaitList<Thread>,
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

fn arrive(socket: &Socket) {
    socket.data.fetch_add(1, Ordering::AcqRel);
    socket.ready.report();
    wake_one(&socket.list);
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
