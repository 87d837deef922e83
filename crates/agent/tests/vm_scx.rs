//! The sched_ext backend against a kernel that has it: in the virtual machine (`make test-vm`). Elsewhere they skip, and say so.
//! Threads here are this process's own, which is its enclave's agent, too: it is never real-time and never spins.

#[path = "vm_scx/bench.rs"]
mod bench;
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
#[path = "vm_scx/news.rs"]
mod news;
#[path = "vm_scx/patience.rs"]
mod patience;
#[path = "vm_scx/slow_program.rs"]
mod slow_program;
#[path = "vm_scx/storms.rs"]
mod storms;
