//! The event queue.

use super::demux::{Demux, EventWorker, Handler, Remainder, Watched};
use heddle_events::{EventOptions, EventQueue, Interest, Worker};
use std::io;
use std::time::Duration;

/// A queue with a policy.
pub(super) struct Queue<'a> {
    queue: EventQueue,
    watched: &'a [Watched<'a>],
}

impl<'a> Queue<'a> {
    pub(super) fn new(policy: &str, watched: &'a [Watched<'a>]) -> io::Result<Queue<'a>> {
        let queue = EventQueue::builder().policy(policy).capacity(watched.len().max(1)).build();
        Ok(Queue { queue: queue.map_err(io::Error::other)?, watched })
    }
}

impl Demux for Queue<'_> {
    fn register(&self, number: usize) -> io::Result<()> {
        let Watched { fd, high } = &self.watched[number];
        let options = EventOptions::default();
        let options = if *high { options.high() } else { options };
        let done = self.queue.register(fd, Interest::READ, number as u64, options);
        done.map(drop).map_err(io::Error::other)
    }

    fn worker(&self, _: usize) -> io::Result<Box<dyn EventWorker + '_>> {
        Ok(Box::new(QueueWorker(self.queue.worker().map_err(io::Error::other)?)))
    }
}

struct QueueWorker(Worker);

impl EventWorker for QueueWorker {
    fn serve(&mut self, patience: Duration, handle: &mut Handler<'_>) -> io::Result<()> {
        for event in self.0.wait(Some(patience)).map_err(io::Error::other)? {
            if handle(event.token() as usize) == Remainder::Nothing {
                event.drained();
            }
        }
        Ok(())
    }
}
