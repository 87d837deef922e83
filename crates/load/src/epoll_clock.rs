//! The clock of a load that waits for its connections with epoll.

use std::rc::Rc;
use std::time::Instant;

use heddle_core::Ns;
use heddle_sys::epoll::Epoll;

use super::engine::Clock;

/// Time since creation; sleeps until something is due or an answer arrives.
#[derive(Debug)]
pub struct EpollClock {
    start: Instant,
    epoll: Rc<Epoll>,
}

impl EpollClock {
    /// Starts now; wakes on the events of `epoll`.
    pub fn new(epoll: Rc<Epoll>) -> Self {
        Self { start: Instant::now(), epoll }
    }
}

impl Clock for EpollClock {
    fn now(&mut self) -> Ns {
        self.start.elapsed().into()
    }

    fn pause(&mut self, until: Ns) {
        let now = self.now();
        if until > now {
            self.epoll.await_ready(until - now);
        }
    }
}
