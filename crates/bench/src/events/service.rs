//! The work of a handler.

use heddle_core::Ns;
use heddle_sys::clock;

/// The clock that ends a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// The thread's CPU time: time that others take of the CPU does not count.
    Cpu,
    /// The wall clock, yielding the CPU meanwhile: several threads of one CPU serve at once, as if each had
    /// its own. Times are dilated, so that the cost of yielding is relatively small.
    Dilated,
}

impl Service {
    /// Works for `time`.
    pub(super) fn work(self, time: Ns) {
        match self {
            Service::Cpu => {
                let end = clock::thread_cpu_time() + time;
                while clock::thread_cpu_time() < end {
                    std::hint::spin_loop();
                }
            }
            Service::Dilated => {
                let end = clock::now() + time;
                while clock::now() < end {
                    std::thread::yield_now();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_lasts_at_least_its_time() {
        let time = Ns::from_us(200);
        let (wall, cpu) = (clock::now(), clock::thread_cpu_time());
        Service::Cpu.work(time);
        assert!(clock::thread_cpu_time() - cpu >= time && clock::now() - wall >= time);
        let wall = clock::now();
        Service::Dilated.work(time);
        assert!(clock::now() - wall >= time);
    }
}
