//! The structure and the numbers of the header, which are FreeBSD's. A test compares them with it.

/// `struct timespec`.
pub use libc::timespec;

/// `struct kevent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kevent {
    /// What the filter is about: a descriptor, signal, process or any number.
    pub ident: usize,
    /// `EVFILT_*`.
    pub filter: i16,
    /// `EV_*`.
    pub flags: u16,
    /// Flags of the filter: `NOTE_*`.
    pub fflags: u32,
    /// A number whose meaning depends on the filter.
    pub data: i64,
    /// The program's own, handed back.
    pub udata: usize,
}

impl Kevent {
    /// Whether it asks for a number of bytes to read (NOTE_LOWAT).
    pub(crate) fn waits_for_bytes(&self) -> bool {
        self.filter == filter::READ && self.fflags & note::LOWAT != 0
    }
}

/// `EVFILT_*`.
pub(crate) mod filter {
    pub const READ: i16 = -1;
    pub const WRITE: i16 = -2;
    pub const VNODE: i16 = -4;
    pub const PROC: i16 = -5;
    pub const SIGNAL: i16 = -6;
    pub const TIMER: i16 = -7;
    pub const USER: i16 = -11;
}

/// `EV_*`. The first lines are BSD's; AFFINITY and REALTIME are SKQ's, the latter with a number that was
/// free.
pub(crate) mod ev {
    pub const ADD: u16 = 0x1;
    pub const DELETE: u16 = 0x2;
    pub const ENABLE: u16 = 0x4;
    pub const DISABLE: u16 = 0x8;
    pub const ONESHOT: u16 = 0x10;
    pub const CLEAR: u16 = 0x20;
    pub const RECEIPT: u16 = 0x40;
    pub const DISPATCH: u16 = 0x80;
    pub const AFFINITY: u16 = 0x200;
    pub const REALTIME: u16 = 0x400;
    pub const ERROR: u16 = 0x4000;
    pub const EOF: u16 = 0x8000;
    /// The flags of a registration that a knote keeps and reports.
    pub const KEPT: u16 = ONESHOT | CLEAR | RECEIPT | DISPATCH | AFFINITY | REALTIME;
    /// The flags that a knote keeps for life, whatever it is added again with.
    pub const FOR_LIFE: u16 = ONESHOT | CLEAR | RECEIPT | DISPATCH;
    /// The flags that a change may have.
    pub const VALID: u16 = ADD | DELETE | ENABLE | DISABLE | KEPT;
}

/// `NOTE_*`.
pub(crate) mod note {
    pub const TRIGGER: u32 = 0x0100_0000;
    pub const FFAND: u32 = 0x4000_0000;
    pub const FFOR: u32 = 0x8000_0000;
    pub const FFCOPY: u32 = 0xc000_0000;
    pub const FFLAGSMASK: u32 = 0x00ff_ffff;

    pub const LOWAT: u32 = 0x1;
    pub const FILE_POLL: u32 = 0x2;
    pub const IDLE: u32 = 0x0010_0000;

    pub const EXIT: u32 = 0x8000_0000;
    pub const FORK: u32 = 0x4000_0000;
    pub const EXEC: u32 = 0x2000_0000;
    pub const TRACK: u32 = 0x1;

    pub const SECONDS: u32 = 0x1;
    pub const MSECONDS: u32 = 0x2;
    pub const USECONDS: u32 = 0x4;
    pub const NSECONDS: u32 = 0x8;
    pub const ABSTIME: u32 = 0x10;
}
