//! The dataset of the benches, and the calibration of a SCAN's length to a paper's service time.

use std::time::Instant;

use heddle_core::Ns;

use super::{Guarded, Section, Store, StoreError};
use heddle_proto::udp::{digest, id_key};

/// Keys between two progress reports and checks for a stop.
const REPORT_EVERY: u64 = 10_000;
/// Timed scans per length; the median counts.
const SAMPLES: usize = 9;
/// Corrections after the first estimate.
const ROUNDS: usize = 4;
/// A calibration is done when it is this close.
const TOLERANCE: f64 = 0.02;

/// Writes keys 0 to `n_keys` (see [`id_key`]) with values of `value_size` bytes that differ from key to
/// key, then settles the store. `progress` is called with the number written so far.
///
/// # Errors
/// The store's.
pub fn load_dataset(
    store: &dyn Store,
    n_keys: u64,
    value_size: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    load_dataset_after(&[], store, n_keys, value_size, progress)
}

/// The same, with `head` before the `value_size` bytes of each value.
///
/// # Errors
/// The store's.
pub fn load_dataset_after(
    head: &[u8],
    store: &dyn Store,
    n_keys: u64,
    value_size: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let mut value = head.to_vec();
    value.resize(head.len() + value_size, 0);
    for id in 0..n_keys {
        fill(&mut value[head.len()..], id);
        store.put(&id_key(id), &value)?;
        if (id + 1) % REPORT_EVERY == 0 {
            progress(id + 1);
        }
    }
    store.settle()?;
    progress(n_keys);
    Ok(())
}

/// Whether [`load_dataset`] completed with the same arguments: the first and the last value have the size,
/// and no key follows. Loading ascends from key 0, so an interrupted load lacks the last key.
///
/// # Errors
/// The store's.
pub fn is_loaded(store: &dyn Store, n_keys: u64, value_size: usize) -> Result<bool, StoreError> {
    let Some(last) = n_keys.checked_sub(1) else { return Ok(true) };
    if store.exists(&id_key(n_keys))? {
        return Ok(false);
    }
    let mut found = Vec::new();
    for id in [0, last] {
        found.clear();
        if !store.get(&id_key(id), &mut found)? || found.len() != value_size {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fills a value with bytes that do not repeat from key to key.
fn fill(value: &mut [u8], id: u64) {
    let mut state = id;
    for chunk in value.chunks_mut(8) {
        state = mixed(state.wrapping_add(1));
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// splitmix64's finaliser.
fn mixed(state: u64) -> u64 {
    let z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How long a SCAN takes on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Keys that a SCAN must read.
    pub keys: u32,
    /// The median time of a scan of that many keys.
    pub measured: Ns,
}

/// Errors of a calibration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// Reading the whole dataset takes less than the target.
    #[error(
        "a SCAN of all {keys} keys takes {measured}, less than {target}; load at least {needed} keys"
    )]
    TooFewKeys {
        /// Keys in the store.
        keys: u64,
        /// How long reading all of them takes.
        measured: Ns,
        /// The requested time.
        target: Ns,
        /// The number of keys that would suffice.
        needed: u64,
    },
    /// A scan failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Measures how many keys a SCAN must read to take `target`, on a dataset of `n_keys`.
///
/// # Errors
/// [`CalibrationError`] if the dataset is too small, or the store fails.
pub fn calibrate_scan<S: Section>(
    store: &Guarded<S>,
    n_keys: u64,
    target: Ns,
) -> Result<Calibration, CalibrationError> {
    let limit = n_keys.min(u64::from(u32::MAX)) as u32;
    let mut keys = 64.min(limit).max(1);
    let mut measured = time_scan(store, n_keys, keys)?;
    while measured < target / 4 && keys < limit {
        keys = keys.saturating_mul(2).min(limit);
        measured = time_scan(store, n_keys, keys)?;
    }
    for _ in 0..ROUNDS {
        let ratio = target.0 as f64 / measured.0.max(1) as f64;
        if (ratio - 1.0).abs() < TOLERANCE {
            break;
        }
        let wanted = (f64::from(keys) * ratio).ceil().max(1.0);
        if wanted > f64::from(limit) {
            let needed = (wanted * 1.1) as u64;
            return Err(CalibrationError::TooFewKeys { keys: n_keys, measured, target, needed });
        }
        keys = wanted as u32;
        measured = time_scan(store, n_keys, keys)?;
    }
    Ok(Calibration { keys, measured })
}

/// The median time of a scan of `keys` keys, as the server does it.
fn time_scan<S: Section>(store: &Guarded<S>, n_keys: u64, keys: u32) -> Result<Ns, StoreError> {
    let starts = n_keys.saturating_sub(keys.into()).max(1);
    let mut times = [Ns::ZERO; SAMPLES];
    for (sample, time) in times.iter_mut().enumerate() {
        let from = id_key(mixed(sample as u64 + 1) % starts);
        let (start, mut sum) = (Instant::now(), 0);
        store.scan(&from, keys as usize, &mut |_, value| {
            sum = digest(sum, value);
            true
        })?;
        std::hint::black_box(sum);
        *time = start.elapsed().into();
    }
    times.sort_unstable();
    Ok(times[SAMPLES / 2])
}
