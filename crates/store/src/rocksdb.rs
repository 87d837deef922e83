//! RocksDB through its stable C API (`rocksdb/c.h`): the dozen calls that a server needs.
//!
//! Durability: every write goes to the write-ahead log, which is the kernel's page cache by the time the
//! call returns, so an acknowledged write survives `kill -9` of the server. A power cut or a kernel crash
//! can take the last seconds of writes, unless the store was opened with `sync`, which waits for the
//! disk at every write.
//!
//! No compression and a cache larger than the bench's data, so that a GET costs the same every time.
//!
//! This is the crate's only `unsafe` code. What all of it rests on: handles are created in `open`,
//! never null afterwards, used by shared reference (RocksDB synchronises a database internally), and
//! destroyed once, in `drop`; a cursor borrows its database and so ends before it.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::slice;

use super::{Cursor, Store, StoreError, Visit};

type Handle = NonNull<c_void>;
type Raw = *mut c_void;
type Error = *mut *mut c_char;

/// Memory for blocks of data; grows as they are read.
const CACHE_BYTES: usize = 1 << 30;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
const BACKGROUND_THREADS: c_int = 2;

unsafe extern "C" {
    fn rocksdb_options_create() -> Raw;
    fn rocksdb_options_destroy(o: Raw);
    fn rocksdb_options_set_create_if_missing(o: Raw, on: c_uchar);
    fn rocksdb_options_set_compression(o: Raw, kind: c_int);
    fn rocksdb_options_set_keep_log_file_num(o: Raw, n: usize);
    fn rocksdb_options_increase_parallelism(o: Raw, threads: c_int);
    fn rocksdb_options_set_block_based_table_factory(o: Raw, table: Raw);
    fn rocksdb_block_based_options_create() -> Raw;
    fn rocksdb_block_based_options_destroy(t: Raw);
    fn rocksdb_block_based_options_set_filter_policy(t: Raw, filter: Raw);
    fn rocksdb_block_based_options_set_block_cache(t: Raw, cache: Raw);
    fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> Raw;
    fn rocksdb_cache_create_lru(bytes: usize) -> Raw;
    fn rocksdb_cache_destroy(c: Raw);
    fn rocksdb_readoptions_create() -> Raw;
    fn rocksdb_readoptions_destroy(r: Raw);
    fn rocksdb_writeoptions_create() -> Raw;
    fn rocksdb_writeoptions_destroy(w: Raw);
    fn rocksdb_writeoptions_set_sync(w: Raw, on: c_uchar);
    fn rocksdb_open(o: Raw, path: *const c_char, e: Error) -> Raw;
    fn rocksdb_close(db: Raw);
    fn rocksdb_get_pinned(db: Raw, r: Raw, key: *const u8, len: usize, e: Error) -> Raw;
    fn rocksdb_pinnableslice_value(slice: Raw, len: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(slice: Raw);
    #[rustfmt::skip]
    fn rocksdb_put(
        db: Raw,
        w: Raw,
        key: *const u8,
        len: usize,
        val: *const u8,
        vlen: usize,
        e: Error,
    );
    fn rocksdb_delete(db: Raw, w: Raw, key: *const u8, len: usize, e: Error);
    fn rocksdb_create_iterator(db: Raw, r: Raw) -> Raw;
    fn rocksdb_iter_destroy(it: Raw);
    fn rocksdb_iter_seek(it: Raw, key: *const u8, len: usize);
    fn rocksdb_iter_valid(it: Raw) -> c_uchar;
    fn rocksdb_iter_next(it: Raw);
    fn rocksdb_iter_key(it: Raw, len: *mut usize) -> *const u8;
    fn rocksdb_iter_value(it: Raw, len: *mut usize) -> *const u8;
    fn rocksdb_iter_get_error(it: Raw, e: Error);
    fn rocksdb_property_int(db: Raw, name: *const c_char, out: *mut u64) -> c_int;
    fn rocksdb_compact_range(db: Raw, a: *const u8, alen: usize, z: *const u8, zlen: usize);
    fn rocksdb_flush_wal(db: Raw, sync: c_uchar, e: Error);
    fn rocksdb_free(memory: *mut c_void);
}

/// Runs `call` with a place for RocksDB's error message and hands the message over.
fn checked<R>(call: impl FnOnce(Error) -> R) -> Result<R, String> {
    let mut message: *mut c_char = ptr::null_mut();
    let result = call(&mut message);
    if message.is_null() {
        return Ok(result);
    }
    // SAFETY: a message that is not null is a C string that RocksDB allocated for us to free, once.
    let words = unsafe {
        let words = CStr::from_ptr(message).to_string_lossy().into_owned();
        rocksdb_free(message.cast());
        words
    };
    Err(words)
}

/// A [`Store`] in a directory.
pub struct RocksStore {
    db: Handle,
    read: Handle,
    write: Handle,
    dir: PathBuf,
    sync: bool,
}

// SAFETY: a rocksdb_t may be used by many threads at once, and the options are never changed after
// `open` and only read by the calls they are passed to.
unsafe impl Send for RocksStore {}
// SAFETY: as above.
unsafe impl Sync for RocksStore {}

impl RocksStore {
    /// Opens or creates the store in `dir`; with `sync` every write waits for the disk.
    ///
    /// # Errors
    /// [`StoreError`] says whether the directory is unusable, in use, or not RocksDB's.
    pub fn open(dir: &Path, sync: bool) -> Result<RocksStore, StoreError> {
        probe(dir)?;
        let path = CString::new(dir.as_os_str().as_bytes())
            .map_err(|e| StoreError::opening(dir, e.to_string()))?;
        // SAFETY: the options outlive the call, which copies them; `path` is a C string; the handles
        // made here are owned by the store, whose `drop` is the only place that destroys them.
        unsafe {
            let options = options();
            let db = checked(|e| rocksdb_open(options, path.as_ptr(), e));
            rocksdb_options_destroy(options);
            let db = db.map_err(|reason| StoreError::opening(dir, reason))?;
            let write = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(write, sync.into());
            Ok(RocksStore {
                db: handle(db),
                read: handle(rocksdb_readoptions_create()),
                write: handle(write),
                dir: dir.to_path_buf(),
                sync,
            })
        }
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(String) -> StoreError {
        move |reason| StoreError::Operation { operation, dir: self.dir.clone(), reason }
    }

    /// Calls `found` with the value of `key` in RocksDB's own memory.
    fn pinned(&self, key: &[u8], found: impl FnOnce(&[u8])) -> Result<bool, StoreError> {
        let (db, read) = (self.db.as_ptr(), self.read.as_ptr());
        // SAFETY: live handles; `key` is valid for its length.
        let slice =
            checked(|e| unsafe { rocksdb_get_pinned(db, read, key.as_ptr(), key.len(), e) })
                .map_err(self.failed("a read"))?;
        if slice.is_null() {
            return Ok(false);
        }
        // SAFETY: the slice is ours until we destroy it, and its bytes are used only before that.
        unsafe {
            let mut len = 0;
            let bytes = rocksdb_pinnableslice_value(slice, &mut len);
            found(view(bytes, len));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }
}

/// Rewords what RocksDB would bury in a path of one of its files.
fn probe(dir: &Path) -> Result<(), StoreError> {
    let attempt = || {
        std::fs::create_dir_all(dir)?;
        let file = dir.join(".heddle-write-test");
        std::fs::write(&file, b"")?;
        std::fs::remove_file(&file)
    };
    attempt().map_err(|e| StoreError::NotWritable { dir: dir.into(), reason: e.to_string() })
}

/// The caller destroys the returned handle.
///
/// # Safety
/// None needed of the caller: the calls only build and link fresh handles.
unsafe fn options() -> Raw {
    // SAFETY: fresh handles, each configured and passed on once. The filter belongs to the table
    // options and the cache is reference counted, so destroying our names for them is right.
    unsafe {
        let table = rocksdb_block_based_options_create();
        let filter = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS_PER_KEY);
        rocksdb_block_based_options_set_filter_policy(table, filter);
        let cache = rocksdb_cache_create_lru(CACHE_BYTES);
        rocksdb_block_based_options_set_block_cache(table, cache);
        rocksdb_cache_destroy(cache);
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_compression(options, 0);
        rocksdb_options_set_keep_log_file_num(options, 2);
        rocksdb_options_increase_parallelism(options, BACKGROUND_THREADS);
        rocksdb_options_set_block_based_table_factory(options, table);
        rocksdb_block_based_options_destroy(table);
        options
    }
}

fn handle(raw: Raw) -> Handle {
    NonNull::new(raw).expect("RocksDB's constructors do not return null")
}

/// # Safety
/// `bytes` is valid for `len` bytes, or null with length 0, and stays so for `'a`.
unsafe fn view<'a>(bytes: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { slice::from_raw_parts(bytes, len) }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        // SAFETY: the last use of the handles; cursors borrow `self` and are gone.
        unsafe {
            rocksdb_readoptions_destroy(self.read.as_ptr());
            rocksdb_writeoptions_destroy(self.write.as_ptr());
            rocksdb_close(self.db.as_ptr());
        }
    }
}

impl Store for RocksStore {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn describe(&self) -> String {
        let sync = if self.sync { "synced writes" } else { "log in the page cache" };
        format!(
            "rocksdb {} ({sync}, no compression, {})",
            env!("HEDDLE_ROCKSDB"),
            self.dir.display()
        )
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.pinned(key, |value| out.extend_from_slice(value))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let (db, write) = (self.db.as_ptr(), self.write.as_ptr());
        // SAFETY: live handles; both slices are valid for their lengths.
        checked(|e| unsafe {
            rocksdb_put(db, write, key.as_ptr(), key.len(), value.as_ptr(), value.len(), e);
        })
        .map_err(self.failed("a write"))
    }

    fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let existed = self.exists(key)?;
        let (db, write) = (self.db.as_ptr(), self.write.as_ptr());
        // SAFETY: live handles; `key` is valid for its length.
        checked(|e| unsafe { rocksdb_delete(db, write, key.as_ptr(), key.len(), e) })
            .map_err(self.failed("a delete"))?;
        Ok(existed)
    }

    fn exists(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.pinned(key, |_| ())
    }

    fn cursor<'s>(&'s self, from: &[u8]) -> Result<Box<dyn Cursor + 's>, StoreError> {
        // SAFETY: live handles; `from` is valid for its length. The cursor destroys the iterator.
        let iter = unsafe {
            let iter = rocksdb_create_iterator(self.db.as_ptr(), self.read.as_ptr());
            rocksdb_iter_seek(iter, from.as_ptr(), from.len());
            handle(iter)
        };
        Ok(Box::new(Walk { store: self, iter }))
    }

    fn len_estimate(&self) -> u64 {
        let mut keys = 0;
        let name = c"rocksdb.estimate-num-keys".as_ptr();
        // SAFETY: a live handle, a C string, and a place for the result, which stays 0 on failure.
        unsafe { rocksdb_property_int(self.db.as_ptr(), name, &mut keys) };
        keys
    }

    fn settle(&self) -> Result<(), StoreError> {
        // SAFETY: null bounds mean the whole database; the call flushes what is in memory first.
        unsafe { rocksdb_compact_range(self.db.as_ptr(), ptr::null(), 0, ptr::null(), 0) };
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        // SAFETY: a live handle.
        checked(|e| unsafe { rocksdb_flush_wal(self.db.as_ptr(), 1, e) })
            .map_err(self.failed("a sync of the log"))
    }
}

struct Walk<'s> {
    store: &'s RocksStore,
    iter: Handle,
}

// SAFETY: an iterator is used by one thread at a time (`&mut self`) and is not bound to its creator.
unsafe impl Send for Walk<'_> {}

impl Cursor for Walk<'_> {
    fn chunk(&mut self, max: usize, visit: Visit<'_>) -> Result<usize, StoreError> {
        let iter = self.iter.as_ptr();
        let mut seen = 0;
        // SAFETY: a live iterator of our own; key and value are read while it is valid and before
        // it moves on, which is as long as RocksDB keeps them.
        unsafe {
            while seen < max && rocksdb_iter_valid(iter) != 0 {
                let (mut klen, mut vlen) = (0, 0);
                let key = rocksdb_iter_key(iter, &mut klen);
                let value = rocksdb_iter_value(iter, &mut vlen);
                let more = visit(view(key, klen), view(value, vlen));
                rocksdb_iter_next(iter);
                seen += 1;
                if !more {
                    break;
                }
            }
        }
        // SAFETY: a live iterator. It turns invalid on an error as well as at the end.
        checked(|e| unsafe { rocksdb_iter_get_error(iter, e) })
            .map_err(self.store.failed("a scan"))?;
        Ok(seen)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: the last use of the iterator, before the store that it borrows.
        unsafe { rocksdb_iter_destroy(self.iter.as_ptr()) }
    }
}
