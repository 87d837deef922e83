//! What the test programs named `vm_*` share. They run in the guest of `scripts/test-vm`, and skip elsewhere.

use std::path::Path;

/// Whether this kernel has sched_ext. If not, prints a note, and panics in the guest, where nothing may be skipped.
#[must_use]
pub fn has_sched_ext() -> bool {
    let has = Path::new("/sys/kernel/sched_ext").exists();
    assert!(has || std::env::var_os("HEDDLE_VM").is_none(), "the guest's kernel has no sched_ext");
    if !has {
        println!("skipped: this kernel has no sched_ext; scripts/test-vm runs it in a guest");
    }
    has
}
