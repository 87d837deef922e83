//! A compiled policy, taken apart: functions, maps and data, with the references between them still open.
//!
//! An [`Object`] is what crosses from the unprivileged process that reads ELF files of strangers to the one that loads
//! programs: plain data, whose every index is checked again where it is used.

use serde::{Deserialize, Serialize};

/// What a compiled policy, or one of Heddle's own programs, consists of.
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
    /// Its instructions, 8 bytes each; one that loads 64 bits takes two.
    pub code: Vec<u64>,
    /// Which instructions refer to something, in order.
    pub references: Vec<Reference>,
    /// Which line of the source an instruction came from, in order of instructions; empty without debug information.
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
    /// A function, a map or data of the name, of this object or of another.
    Name(String),
    /// A place in a data map of this object.
    Data {
        /// The map's name.
        map: String,
        /// Bytes from its start.
        offset: u32,
    },
}

/// Where an instruction came from.
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
    /// What it is.
    pub kind: DeclKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// How many values it can hold.
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
    /// A section of data: one value, which programs refer to directly.
    Data {
        /// What it holds at first.
        bytes: Vec<u8>,
        /// Whether it is constant.
        constant: bool,
    },
}

impl DeclKind {
    /// The kind of a number in a header.
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
            _ => return None,
        })
    }
}

impl Object {
    /// The function of a name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// The map of a name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&MapDecl> {
        self.maps.iter().find(|map| map.name == name)
    }
}
