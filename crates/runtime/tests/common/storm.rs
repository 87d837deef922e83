//! A storm of allocations by tasks that are preempted all the time.

use super::{cpus, two_workers};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Blocks which one task has allocated and another one frees.
type Exchange = Arc<Mutex<Vec<Vec<u8>>>>;

/// Sizes of blocks: small ones of many classes, some that span pages, few that are mapped alone.
fn size(random: u64) -> usize {
    match random % 64 {
        0 => 1 << 20,
        1..8 => 4096 + random as usize % 100_000,
        _ => 1 + random as usize % 1024,
    }
}

/// Allocates, grows, hands over and frees until `stop`; every block holds what its maker wrote.
fn allocate(mut random: u64, exchange: &Exchange, stop: &AtomicBool) {
    let mut own: Vec<Vec<u8>> = vec![];
    while !stop.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (byte, size) = ((random >> 32) as u8, size(random >> 33));
        let mut block = vec![byte; size];
        block.resize(size + size / 2, byte);
        own.push(block);
        if own.len() > 64 {
            let at = (random >> 40) as usize % own.len();
            let given = own.swap_remove(at);
            // A lock of the kernel's threads, held for a moment.
            let taken = heddle_rt::no_preempt(|| {
                let mut exchange = exchange.lock().unwrap();
                exchange.push(given);
                let at = (random >> 48) as usize % exchange.len();
                (exchange.len() > 32).then(|| exchange.swap_remove(at))
            });
            if let Some(block) = taken {
                assert!(block.iter().all(|&b| b == block[0]));
            }
            drop(own.swap_remove(at % own.len()));
        }
    }
}

/// How long a storm lasts: two seconds, or as many as `HEDDLE_STORM` says.
fn time() -> Duration {
    let seconds = std::env::var("HEDDLE_STORM").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Lets tasks allocate under `policy`, which preempts. The process ends if they stop forever.
pub fn storm(policy: &str) {
    // SAFETY: the alarm ends the process; a watch that allocates would be caught in the storm.
    unsafe { libc::alarm(time().as_secs() as u32 + 600) };
    let rt = two_workers(policy);
    let stop = Arc::new(AtomicBool::new(false));
    let exchange = Exchange::default();
    let tasks: Vec<_> = (0..8 * cpus() as u64)
        .map(|seed| {
            let (exchange, stop) = (exchange.clone(), stop.clone());
            rt.spawn(move || allocate(seed, &exchange, &stop))
        })
        .collect();
    std::thread::sleep(time());
    super::wait_until(|| rt.stats().preemptions > 100);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    let stats = rt.stats();
    println!(
        "measured: {policy}: {} preemptions, {} take-overs",
        stats.preemptions, stats.takeovers
    );
    // SAFETY: as above.
    unsafe { libc::alarm(0) };
}
