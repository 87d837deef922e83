//! Who is in an enclave.

use super::journal::{Contents, Member};
use heddle_sys::processes::{self, Process};
use std::fs;

/// A process in the enclave.
pub(super) struct InEnclave<'a> {
    pub process: Process,
    /// The member whose settings it has or inherits: itself, an ancestor, or the program.
    pub ancestor: Process,
    pub member: &'a Member,
}

/// Returns the members that have not ended, and their descendants. One that has left its ancestors is a child of the
/// guardian if `guardian` adopts orphans, and inherits the program's settings. The guardian's own processes are not in
/// the enclave, nor is this one.
pub(super) fn processes(contents: &Contents, guardian: Option<u32>) -> Vec<InEnclave<'_>> {
    let members = &contents.members;
    let lives = members.keys().filter(|process| process.lives()).map(|process| process.pid);
    let families = processes::families(lives.chain(guardian));
    let others = families.into_iter().filter(|(_, process)| !is_own(*process, guardian));
    others
        .filter_map(|(root, process)| {
            let itself = members.get_key_value(&process);
            let inherited = || members.get_key_value(&root).or(members.iter().next());
            let (&ancestor, member) = itself.or_else(inherited)?;
            Some(InEnclave { process, ancestor, member })
        })
        .collect()
}

/// Whether a process is the enclave's own: the guardian, this process, or another process of their program that the
/// guardian has started. Members may run the same program, as Heddle's servers do.
fn is_own(process: Process, guardian: Option<u32>) -> bool {
    let file = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = [Some(std::process::id()), guardian];
    let is_guardians = || guardian.is_some() && processes::parent(process.pid) == guardian;
    own.contains(&Some(process.pid))
        || is_guardians() && own.into_iter().flatten().any(|own| file(own) == file(process.pid))
}
