//! What can go wrong with a store: what failed, on which directory, what to do.

use std::path::{Path, PathBuf};

/// An error of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be created or written.
    #[error(
        "data directory {} is not writable: {reason}; choose another with --dir, or give this user access to it",
        dir.display()
    )]
    NotWritable {
        /// The directory.
        dir: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// Another process, or another store of this one, has the directory open.
    #[error(
        "data directory {} is in use by another server; stop it, or choose another directory with --dir",
        dir.display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The files in the directory are not what RocksDB expects.
    #[error(
        "RocksDB cannot open {}: {reason}; if nothing in it is needed, remove it, else restore a copy",
        dir.display()
    )]
    Open {
        /// The directory.
        dir: PathBuf,
        /// RocksDB's words.
        reason: String,
    },
    /// An operation on an open store failed.
    #[error("{operation} failed in {}: {reason}; check the disk's space and health", dir.display())]
    Operation {
        /// Which operation.
        operation: &'static str,
        /// The directory.
        dir: PathBuf,
        /// RocksDB's words.
        reason: String,
    },
    /// The store has no room for what was to be written.
    #[error(
        "the store may hold {most} bytes, and has no room for more; raise --store-memory, or delete something"
    )]
    Full {
        /// What it may hold.
        most: usize,
    },
    /// The program was built without RocksDB.
    #[error(
        "this build has no RocksDB: install librocksdb-dev and build with --features rocksdb, or use the memory store"
    )]
    NotBuilt,
}

impl StoreError {
    /// Reads RocksDB's words for a failed open.
    #[cfg_attr(not(feature = "rocksdb"), allow(dead_code))]
    pub(super) fn opening(dir: &Path, reason: String) -> StoreError {
        let dir = dir.to_path_buf();
        // 7.8 says "While lock file: .../LOCK" for other processes and "lock hold by current process".
        if reason.contains("lock file") || reason.contains("lock hold") {
            StoreError::InUse { dir }
        } else {
            StoreError::Open { dir, reason }
        }
    }
}
