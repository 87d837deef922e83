//! Policies: from a C file, or a name, to a program that the kernel has verified.
//!
//! [`compile()`] makes an ELF file of a source; [`read()`] parses it; [`check()`] decides whether a user's
//! may be loaded; [`link()`] puts it into the frame of a hook; [`load()`] has the kernel verify it.

mod check;
mod compile;
mod framed;
mod instruction;
mod lines;
mod link;
mod load;
mod memory;
mod object;
mod params;
mod payload;
mod read;
mod shipped;
mod verify;

pub use check::{MAX_INSTRUCTIONS, MAX_MAP_BYTES, MAX_MAPS, MAX_VALUE, Refused, check};
pub(crate) use compile::compile_native;
pub use compile::{CompileError, compile};
pub use framed::{load_framed, load_least, verify_strictly};
pub use instruction::Instruction;
pub use link::{Image, LinkError, MapUse, link};
pub(crate) use load::{FEW_EXECUTORS, create, declared, with_room};
pub use load::{LoadError, Maps, load};
pub(crate) use memory::map_memory;
pub use object::{DeclKind, Function, Line, MapDecl, Object, Reference, Target};
pub use params::{Param, ParamError, pairs, params, set_params, split_params};
pub(crate) use params::{parse as parse_params, settings};
pub(crate) use payload::reads_payload;
pub use read::{MAX_FILE, ReadError, read};
pub(crate) use shipped::shipped_native;
pub use shipped::{
    frame, shipped, shipped_names, shipped_pick_nexts, shipped_source, shipped_summary,
};
pub use verify::{
    HookReport, MapReport, Outcome, ParamReport, PickNextError, Problem, Report, Source,
    SourceLine, VerifyError, pick_next, verify,
};
