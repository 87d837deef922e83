//! What other programs find of a runtime: a mark in the file of each program that contains one, and for debuggers the
//! list of all blocks with what is where in them.
//!
//! Programs are built without descriptions of types, in release as in debug builds, so a debugger cannot tell where a
//! field lies. [`TABLE`] says so, under the name `heddle_tasks`; `scripts/gdb/heddle.py` reads it.

use super::{Entity, Task};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An ELF note: it survives `strip`, and is found in the file as in memory.
#[repr(C, align(4))]
pub struct Note {
    name_size: u32,
    size: u32,
    kind: u32,
    name: [u8; 8],
    version: u32,
}

/// The mark by which `heddle run` and its library know a program that schedules itself.
#[used]
#[unsafe(link_section = ".note.heddle")]
#[unsafe(export_name = "heddle_runtime_marker")]
static MARKER: Note = Note {
    name_size: 7,
    size: size_of::<u32>() as u32,
    kind: 1,
    name: *b"Heddle\0\0",
    version: VERSION,
};

/// Incremented when a reader of [`TABLE`] must change.
const VERSION: u32 = 1;

/// Where a debugger finds the tasks of the process. Offsets are in bytes.
#[repr(C)]
pub struct Table {
    version: u32,
    /// The offset of the next block in a block; the last one has 0 there.
    next: u32,
    /// The first of all blocks, the newest. Blocks without a task are among them; after a fork, the parent's tasks.
    first: AtomicPtr<Task>,
    /// `usize`: the saved stack pointer, if the task is off its CPU.
    sp: u32,
    /// `usize`: the thread pointer, by which a debugger knows the thread that runs the task.
    fs: u32,
    /// [`super::Run`] as a byte.
    run: u32,
    /// [`heddle_sync::EndWord`] as a `usize`: all ones if the block has no task.
    end: u32,
    /// `u32`: the number of the CPU on which it last ran, from 0.
    cpu: u32,
    /// `u32`: the number of the task; all ones if the block has none.
    id: u32,
    /// Address and length of the name; address 0 without a name.
    name: u32,
    /// The address of the thread library's record of the thread, or 0.
    extension: u32,
}

/// Exported: a library that is stripped keeps it.
#[unsafe(export_name = "heddle_tasks")]
pub static TABLE: Table = Table {
    version: VERSION,
    next: offset_of!(Task, next_of_all) as u32,
    first: AtomicPtr::new(ptr::null_mut()),
    sp: offset_of!(Task, sp) as u32,
    fs: offset_of!(Task, fs) as u32,
    run: (offset_of!(Task, own) + offset_of!(Entity, run)) as u32,
    end: offset_of!(Task, end) as u32,
    cpu: (offset_of!(Task, own) + offset_of!(Entity, cpu)) as u32,
    id: (offset_of!(Task, own) + offset_of!(Entity, id)) as u32,
    name: offset_of!(Task, name) as u32,
    extension: offset_of!(Task, extension) as u32,
};

/// Adds a new block to the list of all.
pub(crate) fn add(task: &'static Task) {
    let at = ptr::from_ref(task).cast_mut();
    let mut first = TABLE.first.load(Ordering::Relaxed);
    loop {
        task.next_of_all.store(first, Ordering::Relaxed);
        match TABLE.first.compare_exchange(first, at, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}
