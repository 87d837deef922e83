//! What lanes cost a task that computes.

use super::Job;
use heddle_core::Ns;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// Looks that are timed together.
const LOOKS: u32 = 1_000_000;

/// The figures of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Look {
    /// A call of `Lane::is_ready`, in nanoseconds, if there are lanes.
    pub(crate) look_ns: Option<f64>,
    /// Preemptions of a task that computes while nothing else waits.
    pub(crate) preemptions: u64,
    /// Times that this task was interrupted.
    pub(crate) interrupts: u64,
}

/// Measures a runtime in which one task computes for `duration`, and nothing arrives.
pub(super) fn measure(job: &Job, duration: Ns) -> io::Result<Look> {
    let network = job.system.network(heddle_netns::NEAR, job.waiting, None, None);
    let builder = heddle::Runtime::builder().workers(1).policy("two-queue:quantum=100us");
    let runtime = builder.net(network).build().map_err(io::Error::other)?;
    runtime.run(|| ());
    let look_ns = runtime.network().map(|net| {
        let (lane, begin) = (&net.lanes()[0], Instant::now());
        for _ in 0..LOOKS {
            black_box(black_box(lane).is_ready());
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(LOOKS)
    });
    let before = runtime.stats();
    runtime.run(move || {
        let begin = Instant::now();
        while begin.elapsed() < duration.into() {
            std::hint::spin_loop();
        }
    });
    let after = runtime.stats();
    Ok(Look {
        look_ns,
        preemptions: after.preemptions - before.preemptions,
        interrupts: after.interrupts - before.interrupts,
    })
}
