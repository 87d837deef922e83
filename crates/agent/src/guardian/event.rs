//! The guardian's events: signals, its agent, its socket, all through one channel.

use super::control::{Peer, Request, Requester};
use super::protocol::AgentReply;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A signal for the program, and whether a terminal sent it, which sends it to the whole foreground at once.
    Signal(Signal, bool),
    /// Children have ended: one or more since the last such event, see [`Children`].
    Child,
    /// A message from an agent process.
    Agent(u32, AgentReply),
    /// The output of an agent process has ended.
    AgentGone(u32),
    /// A request, and the client that waits for the answer.
    Request(Request, Peer, Requester),
}

/// Events, in order of arrival. Some are deferred while the guardian waits for a particular one.
#[derive(Debug)]
pub struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    deferred: VecDeque<Event>,
    children: Children,
}

/// Reports ended children: one event stands for all until it is taken, as a program can have its children end as
/// quickly as it likes.
#[derive(Clone, Debug)]
pub struct Children {
    sender: Sender<Event>,
    is_notified: Arc<AtomicBool>,
}

impl Children {
    /// Reports that a child has ended. Returns false if the receiver is gone.
    pub fn ended(&self) -> bool {
        self.is_notified.swap(true, Ordering::AcqRel) || self.sender.send(Event::Child).is_ok()
    }
}

impl Events {
    /// Creates an empty queue of events.
    pub fn new() -> Events {
        let (sender, receiver) = channel();
        let children = Children { sender: sender.clone(), is_notified: Arc::default() };
        Events { sender, receiver, deferred: VecDeque::new(), children }
    }

    /// Returns the handle that reports children.
    pub fn children(&self) -> &Children {
        &self.children
    }

    /// Returns a sender of events.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Returns the next event within `time`.
    pub fn next(&mut self, time: Duration) -> Option<Event> {
        let event = self.deferred.pop_front().or_else(|| self.receiver.recv_timeout(time).ok())?;
        Some(self.taken(event))
    }

    /// The receiver of the children's event handles all of them; a child that ends from here on causes another.
    fn taken(&self, event: Event) -> Event {
        if matches!(event, Event::Child) {
            self.children.is_notified.store(false, Ordering::Release);
        }
        event
    }

    /// Returns the first event that `wanted` accepts, within `time`; the others stay.
    pub fn wait<T>(
        &mut self,
        time: Duration,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        if let Some(at) = self.deferred.iter().position(|event| wanted(event).is_some()) {
            let event = self.deferred.remove(at).map(|event| self.taken(event))?;
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
            self.deferred.push_back(event);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_events_keep_their_order() {
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
    fn thousands_of_ended_children_are_one_event() {
        let mut events = Events::new();
        let child = |event: &Event| matches!(event, Event::Child).then_some(());
        for _ in 0..3 {
            (0..1000).for_each(|_| assert!(events.children().ended()));
            assert!(matches!(events.next(Duration::ZERO), Some(Event::Child)));
            assert!(events.next(Duration::ZERO).is_none());
            (0..1000).for_each(|_| assert!(events.children().ended()));
            // A wait for another event defers it.
            assert_eq!(events.wait(Duration::ZERO, |_| None::<()>), None);
            (0..1000).for_each(|_| assert!(events.children().ended()));
            assert_eq!(events.wait(Duration::ZERO, child), Some(()));
            assert!(events.next(Duration::ZERO).is_none());
        }
    }
}
