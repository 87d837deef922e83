//! Lists of workers that take no memory: each worker holds the next one. They change where a CPU has lost its worker,
//! and who sees to that must not wait for an allocator ([`crate::kernel_thread`]).

use crate::worker::{Link, Remote};
use std::ptr;
use std::sync::atomic::Ordering;

/// The worker that a link names.
fn worker(at: *mut Remote) -> Option<&'static Remote> {
    // SAFETY: null or a worker, and workers live as long as their runtime, whose lists these are.
    unsafe { at.as_ref() }
}

/// Every worker of a runtime. It only grows, so reading it takes no lock.
#[derive(Default)]
pub(crate) struct AllWorkers {
    first: Link,
}

impl AllWorkers {
    /// Adds a new worker.
    pub(crate) fn add(&self, new: &'static Remote) {
        let at = ptr::from_ref(new).cast_mut();
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            new.next_of_all.store(first, Ordering::Relaxed);
            let added =
                self.first.compare_exchange(first, at, Ordering::Release, Ordering::Relaxed);
            match added {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// All of them, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Remote> {
        let next = |of: &&'static Remote| worker(of.next_of_all.load(Ordering::Relaxed));
        std::iter::successors(worker(self.first.load(Ordering::Acquire)), next)
    }
}

/// Workers without a CPU, the last to come first. A worker is in one such list at a time.
#[derive(Default)]
pub(crate) struct Reserve {
    first: Option<&'static Remote>,
    len: usize,
}

impl Reserve {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, new: &'static Remote) {
        set_next(new, self.first);
        self.first = Some(new);
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<&'static Remote> {
        let first = self.first?;
        self.first = next(first);
        self.len -= 1;
        Some(first)
    }

    /// Takes `leaver` out; false if it is not there.
    pub(crate) fn remove(&mut self, leaver: &Remote) -> bool {
        let mut before = None;
        let mut at = self.first;
        while let Some(here) = at.filter(|&here| !ptr::eq(here, leaver)) {
            (before, at) = (Some(here), next(here));
        }
        let Some(found) = at else { return false };
        match before {
            Some(before) => set_next(before, next(found)),
            None => self.first = next(found),
        }
        self.len -= 1;
        true
    }
}

fn next(of: &Remote) -> Option<&'static Remote> {
    worker(of.next_in_reserve.load(Ordering::Relaxed))
}

fn set_next(of: &Remote, next: Option<&'static Remote>) {
    let next = next.map_or(ptr::null_mut(), |next| ptr::from_ref(next).cast_mut());
    of.next_in_reserve.store(next, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(n: u32) -> Vec<&'static Remote> {
        (0..n)
            .map(|cpu| &*Box::leak(Box::new(Remote::new(cpu, Box::leak(Box::default())))))
            .collect()
    }

    fn cpus(workers: impl Iterator<Item = &'static Remote>) -> Vec<usize> {
        workers.map(Remote::cpu).collect()
    }

    #[test]
    fn all_workers_are_found_the_newest_first() {
        let all = AllWorkers::default();
        assert_eq!(all.iter().count(), 0);
        workers(3).into_iter().for_each(|worker| all.add(worker));
        assert_eq!(cpus(all.iter()), [2, 1, 0]);
    }

    #[test]
    fn workers_that_are_added_at_once_are_all_there() {
        let all = AllWorkers::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| workers(500).into_iter().for_each(|worker| all.add(worker)));
            }
        });
        assert_eq!(all.iter().count(), 2000);
    }

    #[test]
    fn the_last_to_come_is_the_first_to_go_and_any_can_leave() {
        let (mut reserve, workers) = (Reserve::default(), workers(4));
        workers.iter().for_each(|worker| reserve.push(worker));
        assert!(reserve.remove(workers[1]) && !reserve.remove(workers[1]));
        assert!(reserve.remove(workers[3]));
        assert_eq!(reserve.len(), 2);
        let left: Vec<_> = std::iter::from_fn(|| reserve.pop()).collect();
        assert_eq!(cpus(left.into_iter()), [2, 0]);
        assert!(reserve.len() == 0 && !reserve.remove(workers[0]));
    }
}
