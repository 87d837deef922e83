//! Where debuggers find what this library adds to a task: `scripts/gdb/heddle.py` reads it beside the runtime's own
//! table (`heddle_tasks`).

use crate::sched::Wishes;
use crate::thread::Thread;
use heddle_rt::raw::lot::{LOT, Waiter};
use heddle_sync::{Lot, LotLayout};
use std::mem::offset_of;

/// Offsets are in bytes, those of a thread from its record, to which the task's `extension` points.
#[repr(C)]
pub struct Table {
    /// Incremented when a reader must change.
    version: u32,
    /// The name, of up to 16 bytes.
    name: u32,
    /// `u32`: the number that `gettid` returns.
    tid: u32,
    lot_layout: LotLayout,
    /// All that wait for addresses. In a node, who waits is two words: 0 and the address of the task, or 1 and
    /// something else.
    lot: &'static Lot<Waiter>,
}

/// Exported: a library that is stripped keeps it.
#[unsafe(export_name = "heddle_threads")]
pub static TABLE: Table = Table {
    version: 1,
    name: (offset_of!(Thread, wishes) + offset_of!(Wishes, name)) as u32,
    tid: offset_of!(Thread, tid) as u32,
    lot_layout: Lot::<Waiter>::LAYOUT,
    lot: &LOT,
};
