//! The ordered key-value store behind the server.
//!
//! A [`Store`] offers only operations that take a few microseconds: one key, or one chunk of a scan.
//! [`Guarded`] chains them and runs each inside a [`Section`], in which a preemptive runtime disables
//! preemption: a task that is switched out while it holds a lock inside the library would block every other
//! task that needs the lock, for as long as it waits in a run queue. Between two chunks no lock of the
//! library is held, and preemption is welcome.
//!
//! # Invariants
//!
//! - **I1** A write that a RocksDB store acknowledged survives `kill -9` (`durability.rs` in the tests of
//!   `heddle-server`).
//! - **I2** Sections never nest, and each covers one bounded call: [`CHUNK_KEYS`] keys at most.
//! - **I3** A reader never misses a key that is being overwritten.
//! - **I4** An in-memory store never holds more than its limit; a write beyond it fails with [`StoreError::Full`].
//!
//! It knows nothing of sockets, protocols or runtimes. `unsafe` is confined to the RocksDB bindings.

mod dataset;
mod error;
mod memory;
#[cfg(feature = "rocksdb")]
#[allow(unsafe_code)]
mod rocksdb;
mod section;

use std::path::PathBuf;

pub use dataset::{
    Calibration, CalibrationError, calibrate_scan, is_loaded, load_dataset, load_dataset_after,
};
pub use error::StoreError;
pub use memory::MemoryStore;
#[cfg(feature = "rocksdb")]
pub use rocksdb::RocksStore;
pub use section::{Guarded, NoSection, Section};

/// Keys per chunk of a scan: 4 to 6 microseconds in RocksDB.
pub const CHUNK_KEYS: usize = 32;

/// Called with each key and value that a scan finds; returns whether to go on.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> bool;

/// An ordered map from bytes to bytes. Every method is bounded and can be called from any thread.
pub trait Store: Send + Sync + 'static {
    /// The name in options: `memory`, `rocksdb`.
    fn name(&self) -> &'static str;

    /// Name, version and settings, for results.
    fn describe(&self) -> String;

    /// Appends the value of `key` to `out`; returns false if there is none.
    ///
    /// # Errors
    /// The library's error text.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Sets `key` to `value`. When this returns, the write survives the death of the process, if the store is
    /// persistent (I1).
    ///
    /// # Errors
    /// The library's error text.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Removes `key`; returns false if there was none.
    ///
    /// # Errors
    /// The library's error text.
    fn delete(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// The library's error text.
    fn exists(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Starts a scan at the first key that is not below `from`.
    ///
    /// # Errors
    /// The library's error text.
    fn cursor<'s>(&'s self, from: &[u8]) -> Result<Box<dyn Cursor + 's>, StoreError>;

    /// The approximate number of keys.
    fn len_estimate(&self) -> u64;

    /// Flushes buffers and compacts the data into its steady-state layout.
    ///
    /// # Errors
    /// The library's error text.
    fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes every earlier write survive a power cut as well.
    ///
    /// # Errors
    /// The library's error text.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A position in a scan. It can move to another thread between two chunks.
pub trait Cursor: Send {
    /// Visits at most `max` further keys; fewer are visited at the end or when `visit` returns false.
    ///
    /// # Errors
    /// The library's error text.
    fn chunk(&mut self, max: usize, visit: Visit<'_>) -> Result<usize, StoreError>;
}

/// Kind and location of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreConfig {
    /// [`MemoryStore`]: lost when the process ends.
    #[default]
    Memory,
    /// RocksDB in a directory, which is created if missing.
    RocksDb {
        /// The directory.
        dir: PathBuf,
        /// Wait for the disk at every write: slower, and safe against a power cut.
        sync: bool,
    },
}

impl StoreConfig {
    /// Opens the store.
    ///
    /// # Errors
    /// Names what is wrong with the directory and what to do; [`StoreError::NotBuilt`] without the feature.
    pub fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        self.open_within(usize::MAX)
    }

    /// Opens the store. An in-memory store is limited to `memory` bytes; RocksDB has buffers and a cache of
    /// fixed sizes, and is limited only by the disk.
    ///
    /// # Errors
    /// Those of [`StoreConfig::open`].
    pub fn open_within(&self, memory: usize) -> Result<Box<dyn Store>, StoreError> {
        match self {
            StoreConfig::Memory => Ok(Box::new(MemoryStore::within(memory))),
            #[cfg(feature = "rocksdb")]
            StoreConfig::RocksDb { dir, sync } => Ok(Box::new(RocksStore::open(dir, *sync)?)),
            #[cfg(not(feature = "rocksdb"))]
            StoreConfig::RocksDb { .. } => Err(StoreError::NotBuilt),
        }
    }
}

#[cfg(test)]
mod tests;
