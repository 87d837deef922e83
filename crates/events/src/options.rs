//! Options of registrations.

use crate::ids::NONE;
use crate::slot::flag;
use heddle_core::Class;
use heddle_sys::epoll::{READ, WRITE};

/// What a registration asks about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(pub(crate) u32);

impl Interest {
    /// Data can be read, or the peer has closed.
    pub const READ: Interest = Interest(READ);
    /// Data can be written.
    pub const WRITE: Interest = Interest(WRITE);
    /// Both, reported together to one thread.
    pub const BOTH: Interest = Interest(READ | WRITE);
}

/// How an event is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOptions {
    pub(crate) flags: u32,
    pub(crate) class: Class,
    pub(crate) off: bool,
    pub(crate) port: u32,
}

impl Default for EventOptions {
    /// Level-triggered, of normal priority, for any thread.
    fn default() -> Self {
        EventOptions { flags: flag::LEVEL, class: Class::LC, off: false, port: NONE }
    }
}

impl EventOptions {
    pub(crate) fn with(self, flag: u32, on: bool) -> Self {
        EventOptions { flags: if on { self.flags | flag } else { self.flags & !flag }, ..self }
    }

    /// Edge-triggered: reported once, to one thread, when the descriptor becomes ready or more arrives. The
    /// handler reads or writes until it would block. This saves a check of the descriptor after each event.
    /// By default, what is still ready on release is reported again.
    #[must_use]
    pub fn edge(self) -> Self {
        self.with(flag::LEVEL, false)
    }

    /// Reports the event before others: high priority (SKQ, section 4.4).
    #[must_use]
    pub fn high(self) -> Self {
        self.with(flag::HIGH, true)
    }

    /// Ends the registration after one report.
    #[must_use]
    pub fn once(self) -> Self {
        self.with(flag::ONCE, true)
    }

    /// Reports the event once, then not until [`EventQueue::turn_on`](crate::EventQueue::turn_on).
    #[must_use]
    pub fn dispatch(self) -> Self {
        self.with(flag::DISPATCH, true)
    }

    /// Registers the event without reporting it until [`EventQueue::turn_on`](crate::EventQueue::turn_on).
    #[must_use]
    pub fn off(self) -> Self {
        EventOptions { off: true, ..self }
    }

    /// Sets the kind of work that the event brings, for policies that distinguish kinds.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        EventOptions { class, ..self }
    }
}
