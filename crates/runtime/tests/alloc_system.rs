//! A storm of allocations on the C library's allocator, or on whatever library is preloaded
//! (`scripts/test-allocators`).

mod common;

use common::storm::storm;

#[test]
fn tasks_allocate_and_free_each_others_memory() {
    storm("two-queue:quantum=20us");
    storm("round-robin:quantum=20us");
}
