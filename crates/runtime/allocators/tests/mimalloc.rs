//! Tasks that mimalloc serves are preempted all the time.

use heddle_allocators::common::storm::storm;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[test]
fn tasks_allocate_and_free_each_others_memory() {
    storm("two-queue:quantum=20us");
    storm("round-robin:quantum=20us");
}
