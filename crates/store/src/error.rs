//! Errors of a store: what failed, on which directory, and what to do.

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
        /// The system's error text.
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
        "RocksDB cannot open {}: {reason}; remove it if nothing in it is needed, or restore a copy",
        dir.display()
    )]
    Open {
        /// The directory.
        dir: PathBuf,
        /// RocksDB's error text.
        reason: String,
    },
    /// An operation on an open store failed.
    #[error("{operation} failed in {}: {reason}; check the disk's space and health", dir.display())]
    Operation {
        /// Which operation.
        operation: &'static str,
        /// The directory.
        dir: PathBuf,
        /// RocksDB's error text.
        reason: String,
    },
    /// The store has no room for the write.
    #[error("the store is full at its limit of {most} bytes; raise --store-memory or delete keys")]
    Full {
        /// The limit in bytes.
        most: usize,
    },
    /// The program was built without RocksDB.
    #[error(
        "this build has no RocksDB: install librocksdb-dev and build with --features rocksdb, or use the memory store"
    )]
    NotBuilt,
}

impl StoreError {
    /// Interprets RocksDB's text for a failed open.
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
