//! A parsed policy: functions, maps and data, with the references between them still unresolved.
//!
//! An [`Object`] is what crosses from the unprivileged process that reads users' ELF files to the one that
//! loads programs: plain data, whose every index is checked again where it is used.

use serde::{Deserialize, Serialize};

/// The content of a compiled policy, or of one of Heddle's own programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its functions, in the order of the file.
    pub functions: Vec<Function>,
    /// The maps that it declares.
    pub maps: Vec<MapDecl>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name in the source.
    pub name: String,
    /// Its instructions, 8 bytes each; a 64-bit load takes two.
    pub code: Vec<u64>,
    /// The instructions that refer to something, in order.
    pub references: Vec<Reference>,
    /// The source lines of instructions, in order of instructions; empty without debug information.
    pub lines: Vec<Line>,
}

/// An instruction that refers to something outside of its function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The instruction's index in its function.
    pub at: usize,
    /// What it refers to.
    pub to: Target,
}

/// What an instruction refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A function, a map or data by name, of this object or another.
    Name(String),
    /// An offset in a data map of this object.
    Data {
        /// The map's name.
        map: String,
        /// Bytes from its start.
        offset: u32,
    },
}

/// The source line of instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The first instruction of the line, an index in the function.
    pub at: usize,
    /// The file, as the compiler saw it.
    pub file: String,
    /// Line number, from 1.
    pub number: u32,
    /// The line itself.
    pub text: String,
}

/// A map that an object declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapDecl {
    /// Its name, unique in a linked program.
    pub name: String,
    /// Its kind.
    pub kind: DeclKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Maximum number of values.
    pub entries: u32,
}

/// The kinds of maps that objects declare; the numbers are those of `HD_KIND_...` in the headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeclKind {
    /// Values by index; mappable.
    Array,
    /// Values by key.
    Hash,
    /// Values by index, one for each CPU.
    PerCpu,
    /// Programs to jump to.
    Programs,
    /// Sockets of a reuseport group.
    Reuseport,
    /// CPUs to redirect packets to.
    Cpus,
    /// AF_XDP sockets.
    Xsks,
    /// Sockets to redirect streams to.
    Sockets,
    /// Values by key, of which new ones replace the least recently used.
    Lru,
    /// Values by key, whose memory is allocated as they are inserted.
    Growing,
    /// Values by prefix.
    Prefixes,
    /// Sockets by key.
    SocketsByKey,
    /// A section of data: one value, which programs refer to directly.
    Data {
        /// Its initial content.
        bytes: Vec<u8>,
        /// Whether it is constant.
        constant: bool,
    },
}

impl DeclKind {
    /// Returns the kind for its number in a header.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Array,
            2 => Self::Hash,
            3 => Self::PerCpu,
            4 => Self::Programs,
            5 => Self::Reuseport,
            6 => Self::Cpus,
            7 => Self::Xsks,
            8 => Self::Sockets,
            9 => Self::Lru,
            10 => Self::Growing,
            11 => Self::Prefixes,
            12 => Self::SocketsByKey,
            _ => return None,
        })
    }
}

impl Object {
    /// Returns the function called `name`.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Returns the map called `name`.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&MapDecl> {
        self.maps.iter().find(|map| map.name == name)
    }
}
