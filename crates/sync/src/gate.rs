//! A gate that admits a limited number, for workers that sleep in a poll and not at the gate.
//!
//! A worker that polls was notified of work behind the gate, and the notification consumed the alarm that the poll had
//! set for it. If the gate is full then, re-arming the alarm would fire at once and for nothing, for as long as the
//! gate is full; not re-arming it would leave the work there when the gate opens. So a worker that finds the gate full
//! sets a flag (`OWED`) in the same word that counts those inside, and a worker that leaves takes the flag and sets the
//! alarm.
//!
//! ```text
//! word:   inside (31 bits) | OWED
//! enter:  inside < limit ? inside + 1 : refused
//! settle: inside < limit ? "set the alarm now" : OWED
//! leave:  inside - 1, and takes OWED with it: true means "set the alarm now"
//! ```
//!
//! Count and flag change in one atomic operation. So if a `settle` and a `leave` race, either the first sees the room,
//! or the second sees the flag: one of them sets the alarm.

use super::atomic::{AtomicU32, Ordering};

const OWED: u32 = 1 << 31;

/// See the module docs.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU32,
    limit: u32,
}

impl Gate {
    /// Returns a gate that admits `limit` at a time; 0 counts as 1.
    #[must_use]
    pub fn new(limit: u32) -> Gate {
        Gate { word: AtomicU32::new(0), limit: limit.clamp(1, OWED - 1) }
    }

    /// Enters, if there is room.
    #[inline]
    #[must_use]
    pub fn enter(&self) -> bool {
        let more = |word: u32| (word & !OWED < self.limit).then_some(word + 1);
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Leaves. Returns whether the caller must now set the alarm.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        let less = |word: u32| (word & !OWED).checked_sub(1);
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        before.expect("leaving requires having entered") & OWED != 0
    }

    /// Decides about an alarm that has fired. Returns whether the caller must set it again now, because there is room.
    /// Otherwise the next to leave will be asked to.
    #[must_use]
    pub fn settle(&self) -> bool {
        let owe = |word: u32| (word & !OWED >= self.limit).then_some(word | OWED);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, owe).is_err()
    }

    /// Returns how many are inside; a hint.
    #[must_use]
    pub fn inside(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & !OWED
    }

    /// Returns how many may be inside.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    #[cfg(not(loom))]
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn lets_its_limit_in_and_owes_one_alarm() {
        let gate = Gate::new(2);
        assert!(gate.settle(), "room: the alarm is set at once");
        assert!(gate.enter() && gate.enter() && !gate.enter());
        assert!(!gate.settle() && !gate.settle());
        assert!(gate.leave(), "the first to leave sets it");
        assert!(!gate.leave(), "and only the first");
        assert_eq!((gate.inside(), gate.limit()), (0, 2));
    }

    #[cfg(not(loom))]
    #[test]
    #[should_panic(expected = "leaving requires having entered")]
    fn leaving_without_entering_is_a_mistake() {
        let _ = Gate::new(1).leave();
    }

    /// Workers around one gate, one queue and one alarm, as `heddle_steer::late` combines them. The alarm fires while
    /// it is set and the queue holds something, and firing unsets it. Loom reports a deadlock if work remains and all
    /// sleep.
    #[cfg(loom)]
    mod model {
        use crate::Gate;
        use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
        use loom::sync::{Arc, Condvar, Mutex};
        use loom::thread;

        struct Class {
            gate: Gate,
            /// Queued datagrams, and whether the alarm is set: the state that the kernel keeps under the epoll's lock.
            kernel: Mutex<(u32, bool)>,
            rings: Condvar,
            inside: AtomicU32,
        }

        impl Class {
            fn new(queued: u32, limit: u32) -> Class {
                let kernel = Mutex::new((queued, true));
                Class {
                    gate: Gate::new(limit),
                    kernel,
                    rings: Condvar::new(),
                    inside: AtomicU32::new(0),
                }
            }

            fn arm(&self) {
                self.kernel.lock().unwrap().1 = true;
                self.rings.notify_all();
            }

            fn take(&self) -> bool {
                let mut kernel = self.kernel.lock().unwrap();
                let there = kernel.0 > 0;
                kernel.0 -= u32::from(there);
                there
            }

            fn wait(&self) {
                let mut kernel = self.kernel.lock().unwrap();
                while !(kernel.1 && kernel.0 > 0) {
                    kernel = self.rings.wait(kernel).unwrap();
                }
                kernel.1 = false;
            }

            fn leave(&self) {
                self.inside.fetch_sub(1, SeqCst);
                if self.gate.leave() {
                    self.arm();
                }
            }

            /// Waits for one datagram and serves it.
            fn pull(&self) {
                let mut rung = false;
                loop {
                    let entered = self.gate.enter();
                    if entered {
                        assert!(self.inside.fetch_add(1, SeqCst) < self.gate.limit());
                    }
                    let got = entered && self.take();
                    if entered && !got {
                        self.leave();
                    }
                    if std::mem::take(&mut rung) && self.gate.settle() {
                        self.arm();
                    }
                    if got {
                        return self.leave();
                    }
                    self.wait();
                    rung = true;
                }
            }
        }

        fn check(model: impl Fn() + Send + Sync + 'static) {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(model);
        }

        #[test]
        fn two_workers_get_two_datagrams_one_at_a_time() {
            check(|| {
                let class = Arc::new(Class::new(2, 1));
                let theirs = class.clone();
                let other = thread::spawn(move || theirs.pull());
                class.pull();
                other.join().unwrap();
                assert_eq!(class.kernel.lock().unwrap().0, 0);
            });
        }

        #[test]
        fn what_arrives_while_the_gate_is_full_is_served() {
            check(|| {
                let class = Arc::new(Class::new(1, 1));
                let workers = [0; 2].map(|_| {
                    let class = class.clone();
                    thread::spawn(move || class.pull())
                });
                class.kernel.lock().unwrap().0 += 1;
                class.rings.notify_all();
                workers.into_iter().for_each(|worker| worker.join().unwrap());
            });
        }
    }
}
