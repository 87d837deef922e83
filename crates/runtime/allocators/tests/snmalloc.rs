//! Tasks that snmalloc serves are preempted all the time.
#![cfg(feature = "snmalloc")]
use heddle_allocators::common::storm::storm;

#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

#[test]
fn tasks_allocate_and_free_each_others_memory() {
    storm("two-queue:quantum=20us");
    storm("round-robin:quantum=20us");
}
