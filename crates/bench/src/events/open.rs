//! Opens a system.

use super::demux::{Demux, Watched};
use super::queue::Queue;
use super::shared_epoll::Epolls;
use super::system::System;
use std::io;

/// Opens `system` for `threads` threads over these descriptors, none of which is registered yet.
///
/// # Errors
/// System errors; an unknown policy.
pub fn open<'a>(
    system: &System,
    threads: usize,
    watched: &'a [Watched<'a>],
) -> io::Result<Box<dyn Demux + 'a>> {
    Ok(match system {
        System::Queue(policy) => Box::new(Queue::new(policy, watched)?),
        System::PerThread => Box::new(Epolls::per_thread(threads, watched)?),
        System::Shared => Box::new(Epolls::shared(watched)?),
        System::Exclusive => Box::new(Epolls::exclusive(threads, watched)?),
    })
}
