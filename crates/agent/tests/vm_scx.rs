//! The sched_ext backend against a kernel that has it, in the virtual machine (`make test-vm`). Elsewhere the tests
//! skip with a note. The threads are this process's own, and the process is also its enclave's agent: it is never
//! real-time and never spins.

#[path = "vm_scx/commits.rs"]
mod commits;
#[path = "vm_scx/cpus.rs"]
mod cpus;
#[path = "vm_scx/enclaves.rs"]
mod enclaves;
#[path = "vm_scx/fifo.rs"]
mod fifo;
#[path = "vm_scx/groups.rs"]
mod groups;
#[path = "vm_scx/members.rs"]
mod members;
#[path = "vm_scx/messages.rs"]
mod messages;
#[path = "vm_scx/patience.rs"]
mod patience;
#[path = "vm_scx/slow_program.rs"]
mod slow_program;
#[path = "vm_scx/storms.rs"]
mod storms;
#[path = "vm_scx/testbed.rs"]
mod testbed;
