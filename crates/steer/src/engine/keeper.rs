//! A thread that opens what the engine keeps from one request to the next, with the descriptor table of the
//! engine's creator.
//!
//! A request may be served by a thread with a descriptor table of its own
//! ([`heddle_sys::isolated::spawn_thread`]): what it opens is closed when it ends, and its descriptor numbers
//! are meaningless to others.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::request::{Error, ErrorKind};

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends with the engine.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: Sender<Job>,
}

impl Keeper {
    /// Starts it, with the calling thread's descriptors.
    pub fn start() -> io::Result<Self> {
        let (jobs, incoming) = channel::<Job>();
        thread::Builder::new()
            .name("keeper".into())
            .spawn(move || incoming.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs })
    }

    /// Runs `job`, which must not wait, and returns its result.
    ///
    /// # Errors
    /// If the thread is gone: a job has panicked.
    pub fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Error> {
        let (sender, result) = channel();
        let job: Job = Box::new(move || {
            let _ = sender.send(job());
        });
        let gone = || Error::new(ErrorKind::System, "the thread that keeps descriptors is gone");
        self.jobs.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn descriptors_opened_by_the_keeper_outlive_the_requesting_thread() {
        let keeper = Keeper::start().unwrap();
        let (sender, opened) = channel();
        heddle_sys::isolated::spawn_thread("test", Vec::new(), move |_| {
            sender.send(keeper.run(|| File::open("/").unwrap())).unwrap();
        })
        .unwrap();
        let file = opened.recv().unwrap().unwrap();
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(name, std::path::Path::new("/"));
    }
}
