//! Options of `heddle bench kv`.

use super::cpus::Cpus;
use super::scan_time::ScanTime;
use super::system::System;
use heddle_core::Ns;
use heddle_load::{LoadOptions, Mix, Pace, Shape, Wire};
use heddle_netns::Pair;
use heddle_store::StoreConfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A comparison.
#[derive(Clone, Debug)]
pub struct KvOptions {
    /// The program that has the subcommand `serve`.
    pub program: PathBuf,
    /// The systems, in the order of each round.
    pub systems: Vec<System>,
    /// Which store the servers open.
    pub store: StoreKind,
    /// The mix of operations.
    pub mix: Mix,
    /// The length of a SCAN; calibration finds its number of keys.
    pub scan: ScanTime,
    /// Fractions of the saturation load, each above zero.
    pub loads: Vec<f64>,
    /// The number of interleaved rounds.
    pub rounds: u32,
    /// The duration of each point.
    pub duration: Ns,
    /// Keys in the dataset.
    pub keys: u64,
    /// Bytes of each value.
    pub value_len: usize,
    /// The seed of the arrivals. They differ between rounds and are the same for all systems.
    pub seed: u64,
    /// The CPUs of server and load process.
    pub cpus: Cpus,
    /// Two namespaces, if servers are in one and the load comes from the other.
    pub pair: Option<Arc<Pair>>,
}

/// Which store the servers open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// An ordered map in memory.
    Memory,
    /// RocksDB, on a dataset that is created once.
    RocksDb,
}

impl StoreKind {
    /// The name that `heddle kv serve --store` takes.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::RocksDb => "rocksdb",
        }
    }

    /// RocksDB if this program was built with it, else the in-memory store.
    pub fn best() -> StoreKind {
        if cfg!(feature = "rocksdb") { StoreKind::RocksDb } else { StoreKind::Memory }
    }

    pub(crate) fn config(self, dir: PathBuf) -> StoreConfig {
        match self {
            StoreKind::Memory => StoreConfig::Memory,
            StoreKind::RocksDb => StoreConfig::RocksDb { dir, sync: false },
        }
    }
}

/// The warm-up of each point: the pools and caches of a server fill within some thousand requests.
pub(super) const WARMUP: Ns = Ns::from_ms(250);
/// The duration of SCANs alone, once per system and round.
pub(super) const SCAN_RUN: Ns = Ns::from_ms(500);
/// The duration of GETs alone, once per round: some thousands, enough for a p99.9.
pub(super) const QUIET_RUN: Ns = Ns::from_secs(1);
/// Their load, as a fraction of the GETs that the server can answer.
pub(super) const QUIET_LOAD: f64 = 0.2;
/// A request without an answer after this time is lost. Overload is detected much earlier.
const TIMEOUT: Ns = Ns::from_secs(1);

impl KvOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// One line with the correct form.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |why: &str| Err(why.to_owned());
        if self.systems.is_empty() {
            return refuse("no system to measure; leave --system out for the default four");
        }
        if self.rounds == 0 || self.duration == Ns::ZERO || self.keys == 0 {
            return refuse("--rounds, --seconds and --keys must be above zero");
        }
        let usable = |load: &f64| (0.01..=2.0).contains(load);
        if self.loads.is_empty() || !self.loads.iter().all(usable) {
            return refuse(
                "--loads are percentages of saturation between 1 and 200, as in 20,50,80",
            );
        }
        Ok(())
    }

    /// Estimates the duration of the whole comparison: the points, a second to start each server, and some
    /// seconds of preparation.
    pub fn expected(&self) -> Duration {
        let point = self.duration + WARMUP + Ns::from_ms(60);
        let server = point * self.loads.len() as u64 + SCAN_RUN + Ns::from_secs(1);
        let runs = u64::from(self.rounds) * self.systems.len() as u64;
        let quiet = (QUIET_RUN + WARMUP * 2) * u64::from(self.rounds);
        Duration::from(server * runs + quiet + Ns::from_secs(8))
    }

    /// The load on a server at `target`, with SCANs of so many keys.
    pub(crate) fn load(&self, target: SocketAddr, scan_len: u32) -> LoadOptions {
        let keys = usize::try_from(self.keys).unwrap_or(usize::MAX);
        LoadOptions {
            target,
            wire: Wire::Udp,
            mix: self.mix.clone(),
            shape: Shape::new(keys, scan_len, self.value_len),
            duration: self.duration,
            warmup: WARMUP,
            timeout: TIMEOUT,
            seed: self.seed,
            pace: Pace::for_spare_cpus(usize::from(!self.cpus.shared)),
        }
    }

    /// Returns the index of the load nearest to half of saturation, at which systems are compared by one number.
    pub fn half(&self) -> usize {
        let far = |load: f64| (load - 0.5).abs();
        let nearest = |&a: &usize, &b: &usize| far(self.loads[a]).total_cmp(&far(self.loads[b]));
        (0..self.loads.len()).min_by(nearest).unwrap_or(0)
    }
}
