//! Counters that keep their page.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::counter::Counter;
use crate::page::Page;

/// `N` consecutive counters of a page, which exists for as long as they do. Reaching them takes no look at the page:
/// they cost a load more than counters in private memory.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize> {
    counters: NonNull<[Counter; N]>,
    /// Keeps the memory mapped.
    _page: Arc<Page>,
}

// SAFETY: a reference to atomics, with an owner of their memory that threads may share.
unsafe impl<const N: usize> Send for Counters<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Counters<N> {}

impl<const N: usize> Counters<N> {
    /// Returns the counters from index `first` of the layout on. From then on readers see them.
    ///
    /// # Panics
    /// If there are no such counters.
    #[must_use]
    pub fn of(page: &Arc<Page>, first: usize) -> Counters<N> {
        let Some(counters) = page.counters(first..first + N).first_chunk::<N>() else {
            unreachable!("the slice has N counters")
        };
        Counters { counters: NonNull::from(counters), _page: Arc::clone(page) }
    }
}

impl<const N: usize> Deref for Counters<N> {
    type Target = [Counter; N];

    #[inline(always)]
    fn deref(&self) -> &[Counter; N] {
        // SAFETY: it was a reference into the page's memory, which stays mapped where it is while `_page` lives (I2).
        unsafe { self.counters.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Reader, find};

    #[test]
    fn counters_keep_their_page() {
        let counters = [("a_total", ""), ("b_total", ""), ("c_total", "")];
        let layout = Layout { labels: "layer=kept", counters: &counters, ..Layout::default() };
        let page = Arc::new(Page::create(&layout).unwrap());
        let two = Counters::<2>::of(&page, 1);
        drop(page);
        two[1].add(5);
        let mine = || {
            // An error is that another test is making the only page.
            let all = find(std::process::id()).unwrap_or_default();
            all.into_iter().find(|reader| reader.labels() == "layer=kept")
        };
        let shown = |reader: Reader| {
            let counters = reader.counters().into_iter();
            counters.map(|counter| (counter.name, counter.value)).collect::<Vec<_>>()
        };
        let expected = [("b_total".to_owned(), 0), ("c_total".to_owned(), 5)];
        assert_eq!(mine().map(shown).unwrap(), expected);
        drop(two);
        assert!(mine().is_none());
    }
}
