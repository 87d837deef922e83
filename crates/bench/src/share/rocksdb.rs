//! `heddle kv serve` on RocksDB as the latency-critical server.

use super::options::{CRITICAL_POLICY, ShareOptions};
use super::setup::Share;
use super::system::System;
use crate::kv::{self, KvOptions, Runtime, ScanTime, StoreKind, calibrate, launch, workdir};
use heddle_core::Ns;
use heddle_load::{LoadOptions, Mix, unloaded_service};
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use tempfile::TempDir;

/// GETs with few long SCANs, as in the papers.
const MIX: &str = "shinjuku";
/// A SCAN on the unloaded server, at least.
pub(super) const SCAN: Ns = Ns::from_ms(10);
/// Enough for a SCAN that is so long.
pub(super) const KEYS: usize = 200_000;
/// Bytes of a value.
const VALUE: usize = 100;
/// Threads of the pool where the kernel schedules them: more than ever have a SCAN.
pub(super) const THREADS: &str = "64";

/// The dataset, and how it is served.
#[derive(Debug)]
pub(super) struct RocksDb {
    served: KvOptions,
    data: TempDir,
    /// Keys that a SCAN reads.
    scan_len: u32,
}

impl RocksDb {
    /// Makes the dataset.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn prepare(options: &ShareOptions) -> io::Result<RocksDb> {
        let served = KvOptions {
            program: options.program.clone(),
            systems: vec![system(System::Share), system(System::Kernel)],
            store: StoreKind::RocksDb,
            mix: mix(),
            scan: ScanTime::Time(SCAN),
            loads: options.loads.clone(),
            rounds: options.rounds,
            duration: options.duration,
            keys: KEYS as u64,
            value_len: VALUE,
            seed: options.seed,
            cpus: options.cpus.clone(),
            pair: None,
        };
        let data = workdir::make_with_dataset(served.store, (served.keys, VALUE));
        Ok(RocksDb { served, data: data.map_err(io::Error::other)?, scan_len: 1 })
    }

    /// Finds how many keys a SCAN reads, on the server at `address`.
    ///
    /// # Errors
    /// Network errors; a dataset that is read too fast.
    pub(super) fn calibrate(&mut self, address: SocketAddr) -> io::Result<()> {
        (self.scan_len, _) = calibrate::scan_length(&self.load(address), SCAN)?;
        Ok(())
    }

    /// The load on the server at `address`.
    pub(super) fn load(&self, address: SocketAddr) -> LoadOptions {
        self.served.load(address, self.scan_len)
    }

    /// Reads what fills the cache of the server at `address`.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn warm_up(&self, address: SocketAddr) -> io::Result<()> {
        unloaded_service(&self.load(address)).map(drop).map_err(io::Error::other)
    }

    /// Returns the command of the server: on Heddle's threads where it is alone or in a share, else on the kernel's.
    /// All its threads stay on the shared CPU: one that ends quanta in real time would make the load generator late.
    pub(super) fn command(&self, under: System, share: Option<&Share>) -> Command {
        let system = system(under);
        let mut command = launch::command(&self.served, &system, self.data.path());
        if system.runtime == Runtime::Threads {
            command.args(["--workers", THREADS]);
        }
        if let Some(share) = share {
            command.env("HEDDLE_SHARE", share.socket());
            command.env("HEDDLE_SHARE_CLASS", "lc").env("HEDDLE_SHARE_NAME", "kv");
        }
        command
    }
}

/// Returns the shares of the requests.
pub(super) fn mix() -> Mix {
    MIX.parse().expect("a preset")
}

/// Returns what runs the server's handlers.
fn system(under: System) -> kv::System {
    let is_heddle = under == System::Alone || under.is_shared();
    let runtime = if is_heddle { Runtime::Heddle } else { Runtime::Threads };
    let policy = is_heddle.then(|| CRITICAL_POLICY.to_owned());
    kv::System { runtime, policy, mechanism: None, net: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_on_heddle_unless_the_kernel_is_to_schedule_it() {
        for under in [System::Alone, System::Share] {
            assert_eq!(system(under).to_string(), format!("heddle {CRITICAL_POLICY}"));
        }
        for under in [System::Kernel, System::Nice, System::Cgroup, System::Idle, System::Fifo] {
            assert_eq!(system(under).to_string(), "threads");
        }
    }

    #[test]
    fn a_scan_is_as_long_as_in_the_papers() {
        assert_eq!(mix().scan_service(), Some(SCAN));
    }
}
