//! One event of any layer, in 32 bytes: hooks record it, processes and the kernel's programs hand it out in rings, and
//! two schedules are compared by it.

use crate::{CpuId, Enqueue, Ns};
use core::fmt;
use core::mem::{offset_of, size_of};

/// Declares an enum of numbered names with their conversions.
macro_rules! numbered {
    ($(#[$doc:meta])* $type:ident { $($(#[$of:meta])* $name:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$of])* $name = $number,)*
        }

        impl $type {
            /// Every value, in the order of their numbers.
            pub const ALL: &[$type] = &[$($type::$name),*];

            /// Returns the value with this number; `None` if there is none.
            pub const fn of(number: u8) -> Option<$type> {
                match number {
                    $($number => Some($type::$name),)*
                    _ => None,
                }
            }

            /// Returns the name in small letters.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$name => $text,)*
                }
            }
        }

        impl fmt::Display for $type {
            /// The name in small letters.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

numbered! {
    /// What happened. No kind has the number 0, so zeroed memory is no event.
    EventKind {
        /// A task was created and queued.
        New = 1, "new";
        /// A task was woken and queued; `by` is who woke it.
        Wakeup = 2, "wakeup";
        /// A task got the CPU.
        Start = 3, "start";
        /// A task was taken off the CPU and queued.
        Preempted = 4, "preempted";
        /// A task gave up the CPU and was queued.
        Yield = 5, "yield";
        /// A task went to sleep.
        Block = 6, "block";
        /// A task ended.
        Exit = 7, "exit";
        /// An input arrived: a packet, a connection, a request.
        Arrive = 16, "arrive";
        /// A policy chose the executor of an input.
        Assign = 17, "assign";
        /// An executor took an input.
        Take = 18, "take";
        /// An executor answered an input.
        Answer = 19, "answer";
        /// An input was given up.
        Drop = 20, "drop";
        /// A task or an input was moved to another queue.
        Migrate = 32, "migrate";
        /// An executor took a task or an input from another's queue.
        Steal = 33, "steal";
        /// A decision took effect.
        Commit = 34, "commit";
        /// A decision came too late or was refused.
        Fail = 35, "fail";
        /// A quantum ended.
        Quantum = 36, "quantum";
        /// A policy was replaced.
        Replace = 48, "replace";
        /// Events are missing here, `arg` of them if that is known: what follows begins anew.
        Lost = 49, "lost";
        /// A mark of the observer or of the program: `by` is the number of its name, `arg` its [`MarkPhase`], `request`
        /// the number of what it belongs to.
        Mark = 50, "mark";
    }
}

numbered! {
    /// The layer in which an event happened.
    Layer {
        /// Not stated.
        Unstated = 0, "unstated";
        /// Packets, datagrams, connections and requests to sockets, CPUs and queues.
        Steer = 1, "steer";
        /// The kernel's own scheduling of threads.
        Kernel = 2, "kernel";
        /// Kernel threads under an agent.
        Agent = 3, "agent";
        /// Tasks of a runtime.
        Runtime = 4, "runtime";
        /// Ready events to threads.
        Events = 5, "events";
        /// Goroutines.
        Go = 6, "go";
        /// The simulator.
        Sim = 7, "sim";
    }
}

numbered! {
    /// What a mark says of what it belongs to.
    MarkPhase {
        /// It happened.
        Moment = 0, "moment";
        /// It began; until its end, what the same task begins is part of it.
        Begin = 1, "begin";
        /// What the same task began last has ended.
        End = 2, "end";
    }
}

impl EventKind {
    /// The event of a task that enters a queue for this reason; `None` for a task that only changes queues.
    #[inline(always)]
    pub const fn queued(why: Enqueue) -> Option<EventKind> {
        match why {
            Enqueue::New => Some(EventKind::New),
            Enqueue::Wakeup => Some(EventKind::Wakeup),
            Enqueue::Yield => Some(EventKind::Yield),
            Enqueue::Preempted => Some(EventKind::Preempted),
            Enqueue::Migrated | Enqueue::CommitFailed => None,
        }
    }
}

/// One event. Its memory is the same everywhere, in the processor's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Event {
    /// When, by the layer's clock: `CLOCK_MONOTONIC` outside of simulations.
    pub at: Ns,
    /// Which task, thread or executor. In schedules tasks are 0, 1, ... in the order of creation.
    pub who: u32,
    /// The waker, policy or queue that caused it, by the kind; [`Event::NONE`].
    pub by: u32,
    /// The request or connection concerned; 0 if there is none.
    pub request: u64,
    /// A number whose meaning depends on the kind; 0.
    pub arg: u32,
    /// On which CPU; if a task was queued, the CPU of the queue (in the central model, the CPU that queued it).
    pub cpu: CpuId,
    /// What happened.
    pub kind: EventKind,
    /// In which layer.
    pub layer: Layer,
}

const _: () = {
    assert!(size_of::<Event>() == 32 && offset_of!(Event, who) == 8 && offset_of!(Event, by) == 12);
    assert!(offset_of!(Event, request) == 16 && offset_of!(Event, arg) == 24);
    assert!(offset_of!(Event, cpu) == 28 && offset_of!(Event, kind) == 30);
    assert!(offset_of!(Event, layer) == 31);
};

impl Event {
    /// The value of [`Event::by`] where none is stated.
    pub const NONE: u32 = u32::MAX;

    /// Returns the event of a task, with nothing else stated.
    #[inline(always)]
    pub const fn task(at: Ns, cpu: CpuId, task: u32, kind: EventKind) -> Event {
        let (by, layer) = (Event::NONE, Layer::Unstated);
        Event { at, who: task, by, request: 0, arg: 0, cpu, kind, layer }
    }

    /// Returns the event as one of `layer`.
    #[must_use]
    #[inline(always)]
    pub const fn of(self, layer: Layer) -> Event {
        Event { layer, ..self }
    }
}

impl From<Event> for [u64; 4] {
    /// The event's memory as words, on a machine of little-endian byte order.
    #[inline(always)]
    fn from(event: Event) -> [u64; 4] {
        let who = u64::from(event.who) | u64::from(event.by) << 32;
        let what = u64::from(event.kind as u8) << 48 | u64::from(event.layer as u8) << 56;
        let last = u64::from(event.arg) | u64::from(event.cpu.0) << 32 | what;
        [event.at.0, who, event.request, last]
    }
}

/// Words that are no event: of a newer version, or not written by Heddle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The number that should be that of an [`EventKind`].
    pub kind: u8,
    /// The number that should be that of a [`Layer`].
    pub layer: u8,
}

impl fmt::Display for UnknownEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown event: kind {}, layer {}", self.kind, self.layer)
    }
}

impl core::error::Error for UnknownEvent {}

impl TryFrom<[u64; 4]> for Event {
    type Error = UnknownEvent;

    /// Reads words that anybody may have written.
    fn try_from([at, who, request, last]: [u64; 4]) -> Result<Event, UnknownEvent> {
        let (kind, layer) = ((last >> 48) as u8, (last >> 56) as u8);
        let (Some(kind), Some(layer)) = (EventKind::of(kind), Layer::of(layer)) else {
            return Err(UnknownEvent { kind, layer });
        };
        Ok(Event {
            at: Ns(at),
            who: who as u32,
            by: (who >> 32) as u32,
            request,
            arg: last as u32,
            cpu: CpuId((last >> 32) as u16),
            kind,
            layer,
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_the_memory_of_an_event() {
        let event = Event {
            at: Ns(0x0102_0304_0506_0708),
            who: 0x1112_1314,
            by: 0x2122_2324,
            request: 0x3132_3334_3536_3738,
            arg: 0x4142_4344,
            cpu: CpuId(0x5152),
            kind: EventKind::Mark,
            layer: Layer::Sim,
        };
        let last = 0x0732_5152_4142_4344;
        let words = [0x0102_0304_0506_0708, 0x2122_2324_1112_1314, 0x3132_3334_3536_3738, last];
        assert_eq!(<[u64; 4]>::from(event), words);
        assert_eq!(Event::try_from(words), Ok(event));
    }

    #[test]
    fn names_and_numbers_are_unique_and_zeroed_memory_is_no_event() {
        let names: std::collections::HashSet<_> = EventKind::ALL.iter().map(|k| k.name()).collect();
        assert_eq!(names.len(), EventKind::ALL.len());
        assert!(EventKind::ALL.iter().all(|&kind| EventKind::of(kind as u8) == Some(kind)));
        assert!(Layer::ALL.iter().all(|&layer| Layer::of(layer as u8) == Some(layer)));
        assert_eq!(Event::try_from([0; 4]), Err(UnknownEvent { kind: 0, layer: 0 }));
    }

    proptest! {
        #[test]
        fn any_words_are_an_event_or_an_error(words in any::<[u64; 4]>(), kind in 0..60u8, layer in 0..10u8) {
            let last = words[3] & u64::MAX >> 16 | u64::from(kind) << 48 | u64::from(layer) << 56;
            let words = [words[0], words[1], words[2], last];
            match Event::try_from(words) {
                Ok(event) => prop_assert_eq!(<[u64; 4]>::from(event), words),
                Err(error) => prop_assert_eq!(error, UnknownEvent { kind, layer }),
            }
        }
    }
}
