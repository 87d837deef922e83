//! The work of a handler.

use heddle_core::Ns;
use heddle_sys::clock;

/// The clock that ends a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The thread's CPU time: time that others take of the CPU does not count.
    Cpu,
    /// The wall clock, yielding the CPU meanwhile: several threads of one CPU serve at once, as if each had
    /// its own. Times are dilated, so that the cost of yielding is relatively small.
    Dilated,
    /// The wall clock, asleep meanwhile: a thread uses no CPU while it serves, so a few CPUs carry many more threads.
    /// Times are dilated, so that waking up takes comparatively little.
    Asleep,
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
            Service::Asleep => {
                let end = clock::now() + time;
                // A signal ends a sleep early.
                while let Some(left) = end.0.checked_sub(clock::now().0).filter(|left| *left > 0) {
                    heddle_sys::thread::sleep(Ns(left));
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
        for service in [Service::Dilated, Service::Asleep] {
            let wall = clock::now();
            service.work(time);
            assert!(clock::now() - wall >= time, "{service:?}");
        }
    }
}
