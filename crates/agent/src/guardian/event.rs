//! What the guardian waits for: signals, its agent, its socket, all through one channel.

use super::control::{Asker, Peer, Request};
use super::talk::Said;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A signal for the program, and whether a terminal sent it, to all of the foreground at once.
    Signal(Signal, bool),
    /// Children ended: one or more since the last of these, see [`Children`].
    Child,
    /// An agent process said something.
    Agent(u32, Said),
    /// An agent process will say no more.
    AgentGone(u32),
    /// Somebody asks, and waits for the answer.
    Request(Request, Peer, Asker),
}

/// Events, in the order in which they came; some are put off while the guardian waits for a particular one.
#[derive(Debug)]
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    put_off: VecDeque<Event>,
    children: Children,
}

/// Tells that children ended, by one event for all that do until it is taken: a program can have them end as quickly as it likes.
#[derive(Clone, Debug)]
pub struct Children {
    sender: Sender<Event>,
    is_told: Arc<AtomicBool>,
}

impl Children {
    /// One has ended. False if nobody listens any more.
    pub fn ended(&self) -> bool {
        self.is_told.swap(true, Ordering::AcqRel) || self.sender.send(Event::Child).is_ok()
    }
}

impl Events {
    /// None yet.
    pub fn new() -> Events {
        let (sender, receiver) = channel();
        let children = Children { sender: sender.clone(), is_told: Arc::default() };
        Events { sender, receiver, put_off: VecDeque::new(), children }
    }

    /// For those who tell of children.
    pub fn children(&self) -> &Children {
        &self.children
    }

    /// For those who tell.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The next one, within `time`.
    pub fn next(&mut self, time: Duration) -> Option<Event> {
        let event = self.put_off.pop_front().or_else(|| self.receiver.recv_timeout(time).ok())?;
        Some(self.taken(event))
    }

    /// Whoever takes the one of children looks after it: for those who end from here on there is another.
    fn taken(&self, event: Event) -> Event {
        if matches!(event, Event::Child) {
            self.children.is_told.store(false, Ordering::Release);
        }
        event
    }

    /// The first that `wanted` makes something of, within `time`; the others stay.
    pub fn wait<T>(
        &mut self,
        time: Duration,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        if let Some(at) = self.put_off.iter().position(|event| wanted(event).is_some()) {
            let event = self.put_off.remove(at).map(|event| self.taken(event))?;
            return wanted(&event);
        }
        let until = Instant::now() + time;
        while let Ok(event) =
            self.receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if let Some(found) = wanted(&event) {
                self.taken(event);
                return Some(found);
            }
            self.put_off.push_back(event);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_waited_for_keeps_its_order() {
        let mut events = Events::new();
        let sender = events.sender();
        for serial in 1..=3 {
            sender.send(Event::AgentGone(serial)).unwrap();
        }
        assert!(events.children().ended());
        let found = events.wait(Duration::from_secs(9), |event| match event {
            Event::AgentGone(3) => Some(3),
            _ => None,
        });
        assert_eq!(found, Some(3));
        assert!(matches!(events.next(Duration::ZERO), Some(Event::AgentGone(1))));
        assert_eq!(
            events
                .wait(Duration::from_secs(9), |event| matches!(event, Event::Child).then_some(())),
            Some(())
        );
        assert!(matches!(events.next(Duration::ZERO), Some(Event::AgentGone(2))));
        assert!(events.next(Duration::ZERO).is_none());
    }

    #[test]
    fn children_that_end_by_the_thousand_are_one_event() {
        let mut events = Events::new();
        let child = |event: &Event| matches!(event, Event::Child).then_some(());
        for _ in 0..3 {
            (0..1000).for_each(|_| assert!(events.children().ended()));
            assert!(matches!(events.next(Duration::ZERO), Some(Event::Child)));
            assert!(events.next(Duration::ZERO).is_none());
            (0..1000).for_each(|_| assert!(events.children().ended()));
            // Who waits for something else puts it off.
            assert_eq!(events.wait(Duration::ZERO, |_| None::<()>), None);
            (0..1000).for_each(|_| assert!(events.children().ended()));
            assert_eq!(events.wait(Duration::ZERO, child), Some(()));
            assert!(events.next(Duration::ZERO).is_none());
        }
    }
}
