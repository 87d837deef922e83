//! The compared runtimes behind one interface, without a cost of its own.

use crate::futures::System;
use heddle_core::Ns;
use std::future::Future;
use std::sync::Arc;

/// What a task can do.
pub(super) trait Tasks: Clone + Send + Sync + 'static {
    /// What a task awaits for another's end.
    type Handle: Future + Send + 'static;

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Self::Handle;

    /// Spawns a task that no handle awaits.
    fn detach(&self, future: impl Future<Output = ()> + Send + 'static);

    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// A runtime, seen from outside its tasks. Dropping it drops them.
pub(super) trait Executor: Send + Sync {
    type Tasks: Tasks;

    fn tasks(&self) -> Self::Tasks;

    /// Runs `body` as a task, to its end.
    fn run(&self, body: impl Future<Output = ()> + Send + 'static);

    /// Spawns a task from a thread of its own.
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static);
}

/// Something that is done with one of the runtimes.
pub(super) trait Use {
    type Out;

    fn with(self, executor: impl Executor) -> Self::Out;
}

/// Starts the runtime of `system`, which inherits the caller's CPUs, and uses it.
///
/// # Panics
/// If it cannot be started.
pub(super) fn start<U: Use>(system: System, quantum: Ns, job: U) -> U::Out {
    if let Some(policy) = system.policy(quantum) {
        let builder = heddle::Runtime::builder().workers(1).policy(policy);
        return job.with(builder.build().expect("the machine can run Heddle"));
    }
    match system {
        System::Smol => job.with(Smol(Arc::default())),
        System::TokioCurrent => job.with(
            tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime without drivers needs nothing that can fail"),
        ),
        _ => {
            let workers = if system == System::TokioEight { 8 } else { 1 };
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let built = builder.worker_threads(workers).build();
            job.with(built.expect("the process may start threads"))
        }
    }
}

#[derive(Clone)]
pub(super) struct HeddleTasks;

impl Tasks for HeddleTasks {
    type Handle = heddle::task::JoinHandle<()>;

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Self::Handle {
        heddle::task::spawn(future)
    }

    fn detach(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(heddle::task::spawn(future));
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        heddle::task::yield_now()
    }
}

impl Executor for heddle::Runtime {
    type Tasks = HeddleTasks;

    fn tasks(&self) -> HeddleTasks {
        HeddleTasks
    }

    fn run(&self, body: impl Future<Output = ()> + Send + 'static) {
        // The body is a spawned task on every system: some poll the future of `block_on` in another way.
        self.block_on(async move {
            heddle::task::spawn(body).await.expect("the measured task does not panic");
        });
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let spawned = heddle::task::Builder::new().spawn_in(self, future);
        drop(spawned.expect("memory for a task"));
    }
}

#[derive(Clone)]
pub(super) struct TokioTasks;

impl Tasks for TokioTasks {
    type Handle = tokio::task::JoinHandle<()>;

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Self::Handle {
        tokio::spawn(future)
    }

    fn detach(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(future));
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

impl Executor for tokio::runtime::Runtime {
    type Tasks = TokioTasks;

    fn tasks(&self) -> TokioTasks {
        TokioTasks
    }

    fn run(&self, body: impl Future<Output = ()> + Send + 'static) {
        self.block_on(async move {
            tokio::spawn(body).await.expect("the measured task does not panic");
        });
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::runtime::Runtime::spawn(self, future));
    }
}

/// An executor that runs on the thread that calls [`Executor::run`].
#[derive(Clone)]
pub(super) struct Smol(Arc<smol::Executor<'static>>);

impl Tasks for Smol {
    type Handle = smol::Task<()>;

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> Self::Handle {
        self.0.spawn(future)
    }

    fn detach(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future).detach();
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        smol::future::yield_now()
    }
}

impl Executor for Smol {
    type Tasks = Smol;

    fn tasks(&self) -> Smol {
        self.clone()
    }

    fn run(&self, body: impl Future<Output = ()> + Send + 'static) {
        smol::block_on(self.0.run(self.0.spawn(body)));
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.detach(future);
    }
}
