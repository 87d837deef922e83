//! An enclave of this process and threads in it that always want to run.

use crate::bench::{HANG, Worker, alone};
use heddle_agent::EnclaveSpec;
use heddle_agent::scx::Scx;
use heddle_core::Ns;
use std::sync::MutexGuard;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Workers, in an enclave or waiting for one. Dropped in this order: the enclave first, so that the workers run to their end.
pub struct Crew {
    undo: Option<String>,
    pub scx: Enclave,
    workers: Vec<Worker>,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// An enclave, if there is one; tests that have none do not ask.
pub struct Enclave(Option<Scx>);

impl std::ops::Deref for Enclave {
    type Target = Scx;

    fn deref(&self) -> &Scx {
        self.0.as_ref().expect("this crew has an enclave")
    }
}

impl Crew {
    /// One whose enclave waits for ever: what becomes of it is no matter of time.
    pub fn new(name: &str, cpus: &[u32], workers: usize) -> Crew {
        let alone = alone();
        let mut crew = Crew::beside(name, cpus, workers);
        crew._alone = Some(alone);
        crew
    }

    /// One whose enclave soon loses its patience.
    pub fn hasty(name: &str, cpus: &[u32], workers: usize) -> Crew {
        let alone = alone();
        let (patience, grace) = (Some(Ns::from_ms(500)), Ns::from_ms(1000));
        let spec = EnclaveSpec { patience, grace, ..EnclaveSpec::new(name, cpus) };
        let mut crew = Crew::of(&spec, workers);
        crew._alone = Some(alone);
        crew
    }

    /// Another enclave of the same test, which waits for ever.
    pub fn beside(name: &str, cpus: &[u32], workers: usize) -> Crew {
        let (patience, grace) = (None, Ns::from_secs(3600));
        Crew::of(&EnclaveSpec { patience, grace, ..EnclaveSpec::new(name, cpus) }, workers)
    }

    fn of(spec: &EnclaveSpec, workers: usize) -> Crew {
        let scx = Scx::create(spec).unwrap_or_else(|error| panic!("{error:?}"));
        let undo = Some(spec.name.clone());
        let crew = Crew { undo, scx: Enclave(Some(scx)), workers: spinning(workers), _alone: None };
        for worker in &crew.workers {
            crew.scx.join(worker.tid).unwrap();
        }
        crew
    }

    pub fn without_enclave(workers: usize) -> Crew {
        Crew { undo: None, scx: Enclave(None), workers: spinning(workers), _alone: None }
    }

    pub fn tids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.tid).collect()
    }

    /// How long after `since` every worker has run once more. None is lost.
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

impl Drop for Crew {
    fn drop(&mut self) {
        if let Some(Ok(scx)) = self.undo.take().map(|name| Scx::open(&name)) {
            let _ = scx.remove();
        }
    }
}
