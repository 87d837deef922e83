//! Code that runs at each call of a function of another program (`fentry`).

use std::os::fd::{AsFd as _, AsRawFd as _};

use super::{KernelTypes, Link, LoadError, Map, Program, ProgramKind, ProgramSpec};

/// Instructions for functions of other programs. They get no arguments: they share a map with the other program.
#[derive(Debug)]
pub struct Fentry {
    /// Its name; the kernel keeps at most 15 bytes.
    pub name: String,
    /// Its instructions in the kernel's form: 8 bytes each, maps as descriptors.
    pub instructions: Vec<u64>,
    /// The instructions that load the shared map, whose descriptor is missing in them.
    pub shared: Vec<usize>,
    /// The other maps that it uses.
    pub maps: Vec<Map>,
}

impl Fentry {
    /// Loads the instructions, which the kernel verifies, and lets them run at each call of `function`, a global one
    /// of `program`, until the link is gone.
    ///
    /// # Errors
    /// The verifier's; there is no such function.
    pub fn attach(
        &self,
        program: &Program,
        function: &str,
        shared: &Map,
    ) -> Result<Link, LoadError> {
        let without_log = |error| LoadError { error, log: String::new() };
        let found = KernelTypes::of_program(program).and_then(|types| types.function(function));
        let id = found.map_err(without_log)?;
        let mut instructions = self.instructions.clone();
        for &at in &self.shared {
            // The immediate number is the upper half.
            let fd = u64::from(shared.as_fd().as_raw_fd().cast_unsigned());
            instructions[at] = instructions[at] & 0xffff_ffff | fd << 32;
        }
        let loaded = Program::load(&ProgramSpec {
            name: &self.name,
            kind: ProgramKind::Fentry(program.as_fd().as_raw_fd(), id),
            instructions: &instructions,
            functions: &[],
        })?;
        Link::fentry(&loaded).map_err(without_log)
    }
}
