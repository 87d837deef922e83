//! The systems that are compared.

use std::fmt;
use std::str::FromStr;

use super::Op;

/// A system whose threads are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Heddle's tasks through the public API, with its default policy and all counters in place.
    Heddle,
    /// tokio's `current_thread` runtime; its condition variable is a pair of `Notify`.
    Tokio,
    /// tokio's multi-threaded runtime with one worker.
    TokioMt,
    /// may's coroutines with one worker.
    May,
    /// Boost.Fiber with its default scheduler.
    BoostFiber,
    /// Goroutines with `GOMAXPROCS=1`.
    Go,
    /// POSIX threads from C.
    Pthread,
    /// Rust's standard library on the same kernel threads, with its futex mutex.
    Std,
}

impl System {
    /// All of them, in the order of the table.
    pub const ALL: [System; 8] = [
        System::Heddle,
        System::Tokio,
        System::TokioMt,
        System::May,
        System::BoostFiber,
        System::Go,
        System::Pthread,
        System::Std,
    ];

    /// The rivals that Heddle must beat: the user-level threads in use today.
    pub const RIVALS: [System; 5] =
        [System::Tokio, System::TokioMt, System::May, System::BoostFiber, System::Go];

    /// Whether it is also measured with several workers.
    pub fn scales(self) -> bool {
        matches!(self, System::Heddle | System::TokioMt)
    }

    /// Why `op` has no meaning in this system, if so.
    pub fn lacks(self, op: Op) -> Option<&'static str> {
        // A yielding coroutine goes to its worker's own queue, which is served before the global queue of
        // spawned ones: a loop of spawn and yield fills the memory and never ends.
        let starves = self == System::May && op == Op::SpawnYield;
        starves.then_some(
            "not available: a coroutine that yields in a loop keeps spawned ones from running",
        )
    }

    /// The name in results and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            System::Heddle => "heddle",
            System::Tokio => "tokio",
            System::TokioMt => "tokio-mt",
            System::May => "may",
            System::BoostFiber => "boost-fiber",
            System::Go => "go",
            System::Pthread => "pthread",
            System::Std => "std-thread",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<System, String> {
        System::ALL.into_iter().find(|system| system.name() == name).ok_or_else(|| {
            format!("no system `{name}`; there are {}", System::ALL.map(System::name).join(", "))
        })
    }
}
