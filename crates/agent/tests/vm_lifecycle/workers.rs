//! An enclave of this process, and threads in it that always want to run.

use crate::testbed::{HANG, Worker, alone};
use heddle_agent::EnclaveSpec;
use heddle_agent::scx::Scx;
use heddle_core::Ns;
use std::sync::MutexGuard;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Workers, in an enclave or waiting for one. Dropped in this order: the enclave first, so that the workers run to
/// their end.
pub struct Workers {
    undo: Option<String>,
    pub scx: Enclave,
    workers: Vec<Worker>,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// An enclave, if there is one; tests without one do not use it.
pub struct Enclave(Option<Scx>);

impl std::ops::Deref for Enclave {
    type Target = Scx;

    fn deref(&self) -> &Scx {
        self.0.as_ref().expect("these workers have an enclave")
    }
}

impl Workers {
    /// Makes workers whose enclave waits forever, for tests that do not depend on time.
    pub fn new(name: &str, cpus: &[u32], workers: usize) -> Workers {
        let alone = alone();
        let mut workers = Workers::beside(name, cpus, workers);
        workers._alone = Some(alone);
        workers
    }

    /// Makes workers whose enclave has little patience.
    pub fn hasty(name: &str, cpus: &[u32], workers: usize) -> Workers {
        let alone = alone();
        let (patience, grace) = (Some(Ns::from_ms(500)), Ns::from_ms(1000));
        let spec = EnclaveSpec { patience, grace, ..EnclaveSpec::new(name, cpus) };
        let mut workers = Workers::of(&spec, workers);
        workers._alone = Some(alone);
        workers
    }

    /// Makes another enclave of the same test, which waits forever.
    pub fn beside(name: &str, cpus: &[u32], workers: usize) -> Workers {
        let (patience, grace) = (None, Ns::from_secs(3600));
        Workers::of(&EnclaveSpec { patience, grace, ..EnclaveSpec::new(name, cpus) }, workers)
    }

    fn of(spec: &EnclaveSpec, workers: usize) -> Workers {
        let scx = Scx::create(spec).unwrap_or_else(|error| panic!("{error:?}"));
        let undo = Some(spec.name.clone());
        let workers =
            Workers { undo, scx: Enclave(Some(scx)), workers: spinning(workers), _alone: None };
        for worker in &workers.workers {
            workers.scx.join(worker.tid).unwrap();
        }
        workers
    }

    pub fn without_enclave(workers: usize) -> Workers {
        Workers { undo: None, scx: Enclave(None), workers: spinning(workers), _alone: None }
    }

    pub fn tids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.tid).collect()
    }

    /// Returns how long after `since` every worker has run again. None is lost.
    pub fn all_move_after(&self, since: Instant) -> Duration {
        let before: Vec<u64> = self.workers.iter().map(Worker::turns).collect();
        let so = |(worker, before): (&Worker, &u64)| worker.turns() > *before;
        while !self.workers.iter().zip(&before).all(so) {
            assert!(since.elapsed() < HANG, "a thread is lost: {:?}", self.words());
            sleep(Duration::from_millis(1));
        }
        since.elapsed()
    }

    fn words(&self) -> Vec<heddle_agent::model::ThreadWord> {
        use heddle_agent::Backend as _;
        let Some(scx) = &self.scx.0 else { return Vec::new() };
        scx.threads().iter().map(|&task| scx.thread(task)).collect()
    }
}

fn spinning(workers: usize) -> Vec<Worker> {
    (0..workers).map(|_| Worker::spinning()).collect()
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(Ok(scx)) = self.undo.take().map(|name| Scx::open(&name)) {
            let _ = scx.remove();
        }
    }
}
