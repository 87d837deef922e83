//! What is edited in tokio's source, and where.
//!
//! All logic is in the added files; an edit is a call, a field or a name. Its anchor is a text that occurs exactly once
//! in the file. A release whose code differs there is refused: nothing is built on a guess.

use std::ops::RangeInclusive;

/// The minor versions of tokio 1 whose own tests have passed with these edits, or that differ from such a release in
/// nothing that the edits or the added files touch.
pub const MINORS: RangeInclusive<u32> = 49..=54;

/// A replacement of the one occurrence of a text in a file.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The file, below the package's folder.
    pub file: &'static str,
    /// The text, which stays where `with` repeats it.
    pub anchor: &'static str,
    /// What replaces it.
    pub with: &'static str,
    /// The minor versions for which this edit is.
    pub minors: RangeInclusive<u32>,
}

/// Files that are added, and their text.
pub const FILES: [(&str, &str); 4] = [
    ("src/heddle/mod.rs", include_str!("hook/mod.rs")),
    ("src/heddle/context.rs", include_str!("hook/context.rs")),
    ("src/heddle/sync.rs", include_str!("hook/sync.rs")),
    ("src/heddle/task.rs", include_str!("hook/task.rs")),
];

const fn edit(file: &'static str, anchor: &'static str, with: &'static str) -> Edit {
    Edit { file, anchor, with, minors: MINORS }
}

const WORKER: &str = "src/runtime/scheduler/multi_thread/worker.rs";
const LIST: &str = "src/runtime/task/list.rs";
const CORE: &str = "src/runtime/task/core.rs";
const LOOM: &str = "src/loom/std/mod.rs";

/// The edits, in the order in which they are made. The added files exist before.
pub const EDITS: [Edit; 23] = [
    // Three of the files are children of modules whose private items they use.
    edit("src/lib.rs", "mod loom;\n", "mod loom;\n\nmod heddle;\n"),
    edit(
        "src/runtime/task/mod.rs",
        "mod raw;\n",
        "#[path = \"../../heddle/task.rs\"]\npub(crate) mod heddle;\n\nmod raw;\n",
    ),
    edit(
        "src/runtime/context/current.rs",
        "use std::marker::PhantomData;\n",
        "use std::marker::PhantomData;\n\n#[path = \"../../heddle/context.rs\"]\npub(crate) mod heddle;\n",
    ),
    edit(
        "src/runtime/context.rs",
        "    mod current;\n",
        "    mod current;\n    pub(crate) use current::heddle as heddle_context;\n",
    ),
    // The mutexes.
    edit(
        LOOM,
        "mod unsafe_cell;\n",
        "mod unsafe_cell;\n\n#[path = \"../../heddle/sync.rs\"]\nmod heddle;\n",
    ),
    edit(
        LOOM,
        "        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, WaitTimeoutResult,\n",
        "        RwLock, RwLockReadGuard, WaitTimeoutResult,\n",
    ),
    edit(
        LOOM,
        "use std::sync::{Condvar, MutexGuard, RwLockReadGuard, WaitTimeoutResult};",
        "use std::sync::{RwLockReadGuard, WaitTimeoutResult};",
    ),
    edit(
        LOOM,
        "    #[cfg(not(all(feature = \"parking_lot\", not(miri))))]\n    \
         pub(crate) use crate::loom::std::mutex::Mutex;\n",
        "    #[allow(unused_imports)]\n    \
         pub(crate) use crate::loom::std::heddle::{Condvar, Mutex, MutexGuard};\n",
    ),
    // The handle in the task.
    edit(
        CORE,
        "    pub(super) owner_id: UnsafeCell<Option<NonZeroU64>>,\n",
        "    pub(super) owner_id: UnsafeCell<Option<NonZeroU64>>,\n\n    \
         pub(super) heddle: super::heddle::Slot,\n",
    ),
    edit(
        CORE,
        "                owner_id: UnsafeCell::new(None),\n",
        "                owner_id: UnsafeCell::new(None),\n                \
         heddle: super::heddle::Slot::new(),\n",
    ),
    // Where tasks are scheduled; a task that is spawned comes here too.
    edit(
        WORKER,
        "    let mut cores = Vec::with_capacity(size);\n",
        "    crate::heddle::init();\n    let mut cores = Vec::with_capacity(size);\n",
    ),
    edit(
        WORKER,
        "    pub(super) fn schedule_task(&self, task: Notified, is_yield: bool) {\n",
        "    pub(super) fn schedule_task(&self, task: Notified, is_yield: bool) {\n        \
         let Some(task) = task::heddle::schedule(task, is_yield) else {\n            return;\n        };\n",
    ),
    // The end of a runtime waits for polls outside of its workers: first with the driver, which such a poll may need,
    // then without it, as for threads that block.
    edit(
        LIST,
        "    closed: AtomicBool,\n",
        "    closed: AtomicBool,\n    pub(crate) heddle: super::heddle::Ending,\n",
    ),
    edit(
        LIST,
        "            closed: AtomicBool::new(false),\n",
        "            closed: AtomicBool::new(false),\n            heddle: super::heddle::Ending::new(),\n",
    ),
    edit(
        LIST,
        "            drop(shard);\n",
        "            drop(shard);\n            self.heddle.begin();\n",
    ),
    edit(
        LIST,
        "                    Some(task) => {\n",
        "                    Some(task) => {\n                        self.heddle.begin();\n",
    ),
    edit(
        LIST,
        "        unsafe { self.list.remove(task.header_ptr()) }\n",
        "        let removed = unsafe { self.list.remove(task.header_ptr()) };\n        \
         if removed.is_none() {\n            self.heddle.end();\n        }\n        removed\n",
    ),
    edit(
        WORKER,
        "        core.pre_shutdown(&self.worker);\n",
        "        core.pre_shutdown(&self.worker);\n        \
         core.heddle_wait(&self.worker);\n",
    ),
    edit(
        WORKER,
        "    /// Shuts down the core.\n",
        "    /// Waits for polls outside of the workers, for a second at most, and drives what they may wait for.\n    \
         fn heddle_wait(&mut self, worker: &Worker) {\n        \
         if crate::heddle::table().is_none() {\n            return;\n        }\n        \
         let begin = std::time::Instant::now();\n        \
         while worker.handle.shared.owned.heddle.is_pending()\n            \
         && begin.elapsed() < std::time::Duration::from_secs(1)\n        {\n            \
         let park = self.park.as_mut().expect(\"park missing\");\n            \
         park.park_timeout(&worker.handle.driver, std::time::Duration::from_millis(1));\n        }\n    }\n\n    \
         /// Shuts down the core.\n",
    ),
    edit(
        WORKER,
        "        while let Some(task) = self.next_remote_task() {\n            drop(task);\n        }\n",
        "        while let Some(task) = self.next_remote_task() {\n            drop(task);\n        }\n\n        \
         drop(cores);\n        \
         if crate::heddle::table().is_some() {\n            self.shared.owned.heddle.wait();\n        }\n",
    ),
    // A poll outside of the workers may block, but not wait for its own runtime's end.
    edit(
        "src/runtime/blocking/shutdown.rs",
        "            Some(enter) => enter,\n",
        "            Some(enter) if !crate::runtime::context::heddle_context::is_polling() => enter,\n",
    ),
    edit(
        WORKER,
        "        crate::runtime::context::exit_runtime(f)\n    } else {\n        f()\n",
        "        crate::runtime::context::exit_runtime(f)\n    } else {\n        \
         crate::runtime::context::heddle_context::outside_poll(f)\n",
    ),
    Edit {
        file: "src/heddle/task.rs",
        anchor: "notified.task_meta(None)",
        with: "notified.task_meta()",
        minors: 49..=53,
    },
];
