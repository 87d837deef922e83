//! The work of a request: a loop of a length that is the same on all systems.

use crate::threads::child::preemption::work;
use heddle_core::Ns;
use heddle_sys::clock::thread_cpu_time;
use heddle_sys::thread::pin;
use std::thread;

/// Steps of one try: some milliseconds.
const PROBE: u64 = 1 << 20;
/// Tries, of which the fastest counts.
const TRIES: u32 = 20;

/// Returns how many steps a microsecond of CPU time takes on `cpu`.
pub(crate) fn calibrate(cpu: u32) -> f64 {
    let fastest = thread::spawn(move || {
        // Without it the figure is another CPU's, for all systems alike.
        let _ = pin(&[cpu]);
        let timed = |_| {
            let begin = thread_cpu_time();
            work(PROBE);
            thread_cpu_time() - begin
        };
        (0..TRIES).map(timed).min().unwrap_or(Ns::ZERO)
    });
    let fastest = fastest.join().expect("computing does not panic");
    PROBE as f64 * 1e3 / fastest.0.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_microsecond_has_some_steps() {
        let cpu = heddle_sys::thread::affinity().unwrap()[0];
        assert!(calibrate(cpu) > 0.1);
    }
}
