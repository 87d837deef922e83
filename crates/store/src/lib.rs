//! The ordered key-value store behind the server.
//!
//! A [`Store`] offers only operations that end after a few microseconds: one key, or one chunk of a
//! scan. [`Guarded`] strings them together and runs each inside a [`Section`], which is where a
//! preemptive runtime holds off preemption: a task that is switched out while it holds a lock inside
//! the library would block every other task that needs the lock, for as long as it waits in a run queue.
//! Between two chunks no lock of the library is held and preemption is welcome.

mod dataset;
mod error;
mod memory;
#[cfg(feature = "rocksdb")]
#[allow(unsafe_code)]
mod rocksdb;
mod section;

use std::path::PathBuf;

pub use dataset::{Calibration, CalibrationError, calibrate_scan, is_loaded, load_dataset};
pub use error::StoreError;
pub use memory::MemoryStore;
#[cfg(feature = "rocksdb")]
pub use rocksdb::RocksStore;
pub use section::{Guarded, NoSection, Section};

/// Keys of a scan that are read in one go: 4 to 6 microseconds of RocksDB.
pub const CHUNK_KEYS: usize = 32;

/// Called with each key and value that a scan finds; returns whether to go on.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> bool;

/// An ordered map from bytes to bytes. Every method is bounded and may be called from any thread.
pub trait Store: Send + Sync + 'static {
    /// The name by which a user chooses it: `memory`, `rocksdb`.
    fn name(&self) -> &'static str;

    /// Name, version and settings, for results.
    fn describe(&self) -> String;

    /// Appends the value of `key` to `out`; false where there is none.
    ///
    /// # Errors
    /// The library's, in words.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Sets `key` to `value`. When this returns, the write survives the death of the process if the
    /// store survives it at all.
    ///
    /// # Errors
    /// The library's, in words.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Removes `key`; false where there was none.
    ///
    /// # Errors
    /// The library's, in words.
    fn delete(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// The library's, in words.
    fn exists(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// A scan that starts at the first key that is not below `from`.
    ///
    /// # Errors
    /// The library's, in words.
    fn cursor<'s>(&'s self, from: &[u8]) -> Result<Box<dyn Cursor + 's>, StoreError>;

    /// How many keys there are, about.
    fn len_estimate(&self) -> u64;

    /// Writes what is buffered and brings the data into the shape that it has in the long run.
    ///
    /// # Errors
    /// The library's, in words.
    fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes every earlier write survive a power cut as well.
    ///
    /// # Errors
    /// The library's, in words.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A place in a scan. It may move to another thread between two chunks.
pub trait Cursor: Send {
    /// Visits at most `max` further keys; fewer are visited at the end or when `visit` returns false.
    ///
    /// # Errors
    /// The library's, in words.
    fn chunk(&mut self, max: usize, visit: Visit<'_>) -> Result<usize, StoreError>;
}

/// Which store, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreConfig {
    /// [`MemoryStore`]: gone with the process.
    #[default]
    Memory,
    /// RocksDB in a directory, which is created if need be.
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
    /// What is wrong with the directory and what to do; [`StoreError::NotBuilt`] without the feature.
    pub fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        self.open_within(usize::MAX)
    }

    /// Opens the store, which may hold `memory` bytes where it is in memory. RocksDB has buffers and a cache of fixed sizes, and
    /// as much of the disk as there is.
    ///
    /// # Errors
    /// As of [`StoreConfig::open`].
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
