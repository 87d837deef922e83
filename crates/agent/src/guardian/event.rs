//! What the guardian waits for: signals, its agent, its socket, all through one channel.

use super::control::{Asker, Peer, Request};
use super::talk::Said;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A signal for the program, and whether a terminal sent it, to all of the foreground at once.
    Signal(Signal, bool),
    /// A child ended.
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
}

impl Events {
    /// None yet.
    pub fn new() -> Events {
        let (sender, receiver) = channel();
        Events { sender, receiver, put_off: VecDeque::new() }
    }

    /// For those who tell.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The next one, within `time`.
    pub fn next(&mut self, time: Duration) -> Option<Event> {
        self.put_off.pop_front().or_else(|| self.receiver.recv_timeout(time).ok())
    }

    /// The first that `wanted` makes something of, within `time`; the others stay.
    pub fn wait<T>(
        &mut self,
        time: Duration,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        if let Some(at) = self.put_off.iter().position(|event| wanted(event).is_some()) {
            return self.put_off.remove(at).and_then(|event| wanted(&event));
        }
        let until = Instant::now() + time;
        while let Ok(event) =
            self.receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if let Some(found) = wanted(&event) {
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
        sender.send(Event::Child).unwrap();
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
}
