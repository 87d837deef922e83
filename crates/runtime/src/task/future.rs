//! The memory of a future: what is scheduled, its state, and the future itself or its output.
//!
//! One allocation holds all of it, from memory that is never unmapped ([`crate::slab`]); a future too large for the
//! largest size class lies in a box of its own. The layout behind the header is known to the functions in [`Vtable`]
//! only ([`crate::futures`]).

use super::{Entity, EntityRef};
use heddle_sync::PollWord;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Waker};

/// The start of a future's memory.
#[repr(C)]
pub(crate) struct Header {
    /// First, so that its address is the header's.
    pub(crate) entity: Entity,
    pub(crate) state: PollWord,
    /// Whether it was made runnable. A future of another library is so when it is woken first.
    pub(crate) is_started: AtomicBool,
    pub(crate) vtable: Cell<&'static Vtable>,
    /// The waker of the handle, by the protocol of `state`. In free memory, the address of the next free one.
    waker: UnsafeCell<MaybeUninit<Waker>>,
}

/// What can be done with a future of some type.
pub(crate) struct Vtable {
    /// Polls it. Returns whether it has ended: then it is dropped, and its output in place.
    pub(crate) poll: unsafe fn(HeaderRef, &mut Context<'_>) -> bool,
    /// Drops it unpolled, and puts an error into the place of the output.
    pub(crate) cancel: unsafe fn(HeaderRef),
    /// Moves the output to the address, which is of an `Option<Result<_, JoinError>>`.
    pub(crate) take_output: unsafe fn(HeaderRef, *mut ()),
    pub(crate) drop_output: unsafe fn(HeaderRef),
    /// The size class of the memory.
    pub(crate) class: u8,
}

impl Header {
    /// Returns a header without a future, of memory whose class is in `free`.
    pub(crate) fn new(free: &'static Vtable) -> Header {
        Header {
            entity: Entity::new(true),
            state: PollWord::new(),
            is_started: AtomicBool::new(false),
            vtable: Cell::new(free),
            waker: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

impl Vtable {
    /// Returns the table of memory that holds no future.
    pub(crate) const fn free(class: u8) -> Vtable {
        unsafe fn no_poll(_: HeaderRef, _: &mut Context<'_>) -> bool {
            unreachable!("free memory is not polled")
        }
        unsafe fn no_output(_: HeaderRef, _: *mut ()) {}
        unsafe fn nothing(_: HeaderRef) {}
        Vtable {
            poll: no_poll,
            cancel: nothing,
            take_output: no_output,
            drop_output: nothing,
            class,
        }
    }
}

/// A future's memory by address. Always valid, but another future may be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderRef(NonNull<Header>);

// SAFETY: headers are never unmapped. What other threads touch in them is atomic, or belongs to who the state says.
unsafe impl Send for HeaderRef {}
// SAFETY: as above.
unsafe impl Sync for HeaderRef {}

impl HeaderRef {
    /// Returns the header at `at`, which stays there forever.
    pub(crate) fn new(at: NonNull<Header>) -> HeaderRef {
        HeaderRef(at)
    }

    #[inline(always)]
    pub(crate) fn get(self) -> &'static Header {
        // SAFETY: never unmapped.
        unsafe { self.0.as_ref() }
    }

    /// Returns the address, from which what lies behind the header is reached.
    #[inline(always)]
    pub(crate) fn at(self) -> *mut Header {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn entity(self) -> EntityRef {
        EntityRef::new(&self.get().entity)
    }

    /// Returns the future with this entity.
    #[inline(always)]
    pub(crate) fn of(entity: EntityRef) -> Option<HeaderRef> {
        // SAFETY: the entity of a future is the start of its header.
        entity.get().is_future().then(|| unsafe { HeaderRef::from_addr(entity.addr()) })
    }

    #[inline(always)]
    pub(crate) fn addr(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// # Safety
    /// `addr` came from [`HeaderRef::addr`].
    #[inline(always)]
    pub(crate) unsafe fn from_addr(addr: usize) -> HeaderRef {
        // SAFETY: by the caller's promise it is not null.
        HeaderRef(unsafe { NonNull::new_unchecked(addr as *mut Header) })
    }

    /// Returns the size class of the memory.
    #[inline]
    pub(crate) fn class(self) -> u8 {
        self.get().vtable.get().class
    }

    /// Returns the link to the next free memory. For the only owner of free memory.
    pub(crate) fn link(self) -> *mut usize {
        self.get().waker.get().cast()
    }

    /// # Safety
    /// The field holds a waker, which is the caller's.
    #[inline(always)]
    pub(crate) unsafe fn take_waker(self) -> Waker {
        // SAFETY: by the caller's promise.
        unsafe { (*self.get().waker.get()).assume_init_read() }
    }

    /// # Safety
    /// The field is the caller's and holds no waker.
    #[inline(always)]
    pub(crate) unsafe fn put_waker(self, waker: Waker) {
        // SAFETY: by the caller's promise.
        unsafe { (*self.get().waker.get()).write(waker) };
    }

    /// Returns the waker in the field.
    ///
    /// # Safety
    /// The field holds a waker, and is the caller's or published.
    #[inline(always)]
    pub(crate) unsafe fn waker(&self) -> &Waker {
        // SAFETY: by the caller's promise. Only the handle, the caller, replaces it.
        unsafe { (*self.get().waker.get()).assume_init_ref() }
    }

    /// # Safety
    /// The future is done, the output is in place and the caller's.
    pub(crate) unsafe fn drop_output(self) {
        // SAFETY: by the caller's promise.
        unsafe { (self.get().vtable.get().drop_output)(self) };
    }
}
