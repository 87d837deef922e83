//! What a program reports to the policy about its executors, on the path of every request: one store to
//! shared memory.
//!
//! Each executor has a line of 64 bytes (`struct hd_line` in `heddle.h`), which policies read with
//! `hd_line(k)`. An [`Executor`] is a handle to one; [`register`] makes one the calling thread's own, so that
//! code far below the server's loop can call [`busy`] and [`idle`] without a handle. Either takes a few
//! nanoseconds and no system call ([`cost`] measures it).
//!
//! The stores are relaxed: a policy that reads a line while it changes sees the old or the new number, never
//! half of one, and the numbers in a line are not ordered relative to each other.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use heddle_bpf::{Map, MapView};
use heddle_core::line::{self, CLASS, CPU, FIRST_WORD, THREAD};

/// The map of the lines.
pub const LINES: &str = "hd_lines";
pub use heddle_core::line::{IDLE, WORDS};

/// The lines of all executors of a policy.
#[derive(Clone, Debug)]
pub struct Lines(Arc<MapView>);

impl Lines {
    /// Maps `map`, the policy's `hd_lines`. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// If the map's values are not lines, if it is not writable, or the system's.
    pub fn new(map: &Map) -> io::Result<Self> {
        let size = map.spec().value_size;
        if size != line::BYTES {
            let text =
                format!("`{}` holds values of {size} bytes, which are no lines", map.spec().name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        MapView::new(map).map(Arc::new).map(Self)
    }

    /// Returns a handle to line `index`.
    ///
    /// # Errors
    /// If there is none.
    pub fn executor(&self, index: u32) -> io::Result<Executor> {
        let at = usize::try_from(index).ok().filter(|at| *at < self.0.len());
        let missing = || {
            let text = format!("executor {index}: there are {} lines", self.0.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        at.map(|index| Executor { view: self.0.clone(), index }).ok_or_else(missing)
    }
}

/// A handle to the line of one executor. There may be several, also in several processes.
#[derive(Clone, Debug)]
pub struct Executor {
    view: Arc<MapView>,
    index: usize,
}

impl Executor {
    /// Returns the executor's index: the policy's `k`.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Marks it busy with a request of `class`, a number that program and policy agree on; 0 means idle.
    #[inline]
    pub fn busy(&self, class: u32) {
        self.view.half(self.index, CLASS).store(class, Ordering::Relaxed);
    }

    /// Marks it idle.
    #[inline]
    pub fn idle(&self) {
        self.busy(IDLE);
    }

    /// Returns the class it works on, 0 if idle.
    #[inline]
    #[must_use]
    pub fn class(&self) -> u32 {
        self.view.half(self.index, CLASS).load(Ordering::Relaxed)
    }

    /// Sets the CPU it runs on; `None` if it migrates.
    #[inline]
    pub fn set_cpu(&self, cpu: Option<u32>) {
        self.view.half(self.index, CPU).store(cpu.map_or(0, |cpu| cpu + 1), Ordering::Relaxed);
    }

    /// Returns the CPU that was set.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        self.view.half(self.index, CPU).load(Ordering::Relaxed).checked_sub(1)
    }

    /// Sets the thread that serves it, by the number that [`rustix::thread::gettid`] returns; `None` if there
    /// is none, or several. Agents use it to find what a thread works on.
    pub fn set_thread(&self, tid: Option<u32>) {
        self.view.half(self.index, THREAD).store(tid.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the thread that was set.
    #[must_use]
    pub fn thread(&self) -> Option<u32> {
        Some(self.view.half(self.index, THREAD).load(Ordering::Relaxed)).filter(|&tid| tid != 0)
    }

    /// Returns word `n` of its line, whose meaning program and policy agree on.
    ///
    /// # Panics
    /// If `n` is not below [`WORDS`].
    #[inline]
    #[must_use]
    pub fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < WORDS, "a line has {WORDS} words");
        self.view.word(self.index, FIRST_WORD + n)
    }
}

/// The calling thread's executor, released when the thread ends or takes another: its tid may be reused.
#[derive(Debug)]
struct Mine(Executor);

impl Drop for Mine {
    fn drop(&mut self) {
        // Unless another thread serves it by now.
        let (half, own) = (self.0.view.half(self.0.index, THREAD), tid());
        let _ = half.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

thread_local! {
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// Makes `executor` the calling thread's own, replacing any before, until the thread ends; records this in
/// its line ([`Executor::set_thread`]).
pub fn register(executor: Executor) {
    MINE.with_borrow_mut(|mine| {
        *mine = None;
        executor.set_thread(Some(tid()));
        *mine = Some(Mine(executor));
    });
}

/// Removes and returns the calling thread's executor. Its line keeps everything but the thread.
pub fn unregister() -> Option<Executor> {
    MINE.take().map(|mine| mine.0.clone())
}

/// Returns the calling thread's executor.
#[must_use]
pub fn registered() -> Option<Executor> {
    MINE.with_borrow(|mine| mine.as_ref().map(|mine| mine.0.clone()))
}

/// Marks the calling thread's executor busy with a request of `class`; returns false if it has none.
#[inline]
pub fn busy(class: u32) -> bool {
    MINE.with_borrow(|mine| mine.as_ref().map(|mine| mine.0.busy(class)).is_some())
}

/// Marks the calling thread's executor idle; returns false if it has none.
#[inline]
pub fn idle() -> bool {
    busy(IDLE)
}

/// The cost of marks on this machine, nanoseconds each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MarkCost {
    /// [`Executor::busy`].
    pub handle_ns: f64,
    /// [`busy`], through the thread's registration.
    pub registered_ns: f64,
    /// An atomic addition to a word.
    pub add_ns: f64,
}

/// The number of slices in which [`cost`] measures: the fastest counts, since other load may use the CPU
/// meanwhile.
const SLICES: u32 = 50;

/// Measures marks on `executor`, `rounds` of each kind. Leaves its class idle, and its last word changed.
#[must_use]
pub fn cost(executor: &Executor, rounds: u32) -> MarkCost {
    let before = registered();
    register(executor.clone());
    let word = executor.word(WORDS - 1);
    let cost = MarkCost {
        handle_ns: fastest(rounds, |class| executor.busy(class)),
        registered_ns: fastest(rounds, |class| {
            busy(class);
        }),
        add_ns: fastest(rounds, |_| {
            word.fetch_add(1, Ordering::Relaxed);
        }),
    };
    executor.idle();
    unregister();
    before.into_iter().for_each(register);
    cost
}

fn fastest(rounds: u32, mark: impl Fn(u32)) -> f64 {
    let rounds = (rounds / SLICES).max(1);
    let slice = |_| {
        let begin = Instant::now();
        (0..rounds).for_each(&mark);
        begin.elapsed().as_nanos() as f64 / f64::from(rounds)
    };
    (0..SLICES).map(slice).fold(f64::INFINITY, f64::min)
}
