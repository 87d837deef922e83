//! Sections without preemption, and a store whose calls run inside them.

use super::{CHUNK_KEYS, Store, StoreError, Visit};

/// Runs a bounded piece of library work in a way that suits the runtime.
pub trait Section: Clone + Send + Sync + 'static {
    /// Runs `work` and returns what it returns.
    fn run<R>(&self, work: impl FnOnce() -> R) -> R;
}

/// The section of runtimes without preemption: kernel threads and tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSection;

impl Section for NoSection {
    #[inline]
    fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// A store whose every call runs inside a [`Section`].
pub struct Guarded<S> {
    store: Box<dyn Store>,
    section: S,
}

impl<S: Section> Guarded<S> {
    /// Guards `store` by `section`.
    pub fn new(store: Box<dyn Store>, section: S) -> Guarded<S> {
        Guarded { store, section }
    }

    /// The store itself, for work outside a request's path.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// [`Store::get`].
    ///
    /// # Errors
    /// The store's.
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.section.run(|| self.store.get(key, out))
    }

    /// [`Store::put`].
    ///
    /// # Errors
    /// The store's.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.section.run(|| self.store.put(key, value))
    }

    /// [`Store::delete`].
    ///
    /// # Errors
    /// The store's.
    pub fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.section.run(|| self.store.delete(key))
    }

    /// [`Store::exists`].
    ///
    /// # Errors
    /// The store's.
    pub fn exists(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.section.run(|| self.store.exists(key))
    }

    /// Visits at most `count` keys in order, from the first that is not below `from`; returns how many.
    /// The work is split into chunks of [`CHUNK_KEYS`], each in its own section (I2).
    ///
    /// # Errors
    /// The store's.
    pub fn scan(&self, from: &[u8], count: usize, visit: Visit<'_>) -> Result<usize, StoreError> {
        if count == 0 {
            return Ok(0);
        }
        let mut cursor = self.section.run(|| self.store.cursor(from))?;
        let walked = self.walk(&mut *cursor, count, visit);
        self.section.run(|| drop(cursor));
        walked
    }

    fn walk(
        &self,
        cursor: &mut dyn super::Cursor,
        count: usize,
        visit: Visit<'_>,
    ) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < count {
            let want = (count - done).min(CHUNK_KEYS);
            let got = self.section.run(|| cursor.chunk(want, visit))?;
            done += got;
            if got < want {
                break;
            }
        }
        Ok(done)
    }
}
