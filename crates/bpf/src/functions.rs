//! Descriptions of a program's functions (BTF), so that the verifier examines some of them once, by themselves, and
//! not again at every call. Without that, each way through a function multiplies the ways through a loop around it.

use std::io;
use std::os::fd::OwnedFd;

use libbpf_rs::libbpf_sys as sys;

use super::own;

/// A function of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramFunction<'a> {
    /// Its first instruction.
    pub at: u32,
    /// Its name, if it takes a 32-bit number, returns one, and the verifier examines it by itself.
    pub alone: Option<&'a str>,
}

/// `struct bpf_func_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionInfo {
    at: u32,
    type_id: u32,
}

/// What the kernel is told about a program's functions.
#[derive(Debug)]
pub(super) struct Functions {
    pub types: OwnedFd,
    pub infos: Vec<FunctionInfo>,
}

/// The ids of the types that come before those of functions.
const NUMBER: u32 = 1;
const NO_ARGUMENTS: u32 = 2;
const ONE_NUMBER: u32 = 3;
const FIRST_FUNCTION: u32 = 4;

/// `BTF_KIND_...`, shifted to their place.
const INT: u32 = 1 << 24;
const FUNC: u32 = 12 << 24;
const FUNC_PROTO: u32 = 13 << 24;
/// `BTF_FUNC_STATIC` and `BTF_FUNC_GLOBAL`.
const STATIC: u32 = 0;
const GLOBAL: u32 = 1;

impl Functions {
    /// Describes `functions` to the kernel. `None` if none is verified by itself, or the kernel does not take
    /// such descriptions (before 5.6): then it verifies each at every call.
    pub fn load(functions: &[ProgramFunction<'_>]) -> Option<Self> {
        if functions.iter().all(|function| function.alone.is_none()) {
            return None;
        }
        let (bytes, infos) = encode(functions);
        Some(Self { types: load_types(&bytes).ok()?, infos })
    }
}

fn load_types(bytes: &[u8]) -> io::Result<OwnedFd> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    // SAFETY: the bytes outlive the call and have the length given; no options are passed.
    own(unsafe { sys::bpf_btf_load(bytes.as_ptr().cast(), length.into(), std::ptr::null_mut()) })
}

/// Encodes the types, and which function has which.
fn encode(functions: &[ProgramFunction<'_>]) -> (Vec<u8>, Vec<FunctionInfo>) {
    let mut strings = vec![0_u8];
    let mut name = |text: &str| {
        let at = u32::try_from(strings.len()).unwrap_or(0);
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    let (number, argument, other) = (name("u32"), name("k"), name("hd_other"));
    let mut types = vec![number, INT, 4, 32];
    types.extend([0, FUNC_PROTO, NUMBER]);
    types.extend([0, FUNC_PROTO | 1, NUMBER, argument, NUMBER]);
    types.extend([other, FUNC | STATIC, NO_ARGUMENTS]);
    let mut next = FIRST_FUNCTION;
    let mut infos = Vec::new();
    for function in functions {
        let type_id = match function.alone {
            Some(text) => {
                types.extend([name(text), FUNC | GLOBAL, ONE_NUMBER]);
                next += 1;
                next
            }
            None => FIRST_FUNCTION,
        };
        infos.push(FunctionInfo { at: function.at, type_id });
    }
    const HEADER: u32 = 24;
    let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (types_size, strings_size) = (size(types.len() * 4), size(strings.len()));
    let magic: u32 = 0xeb9f | 1 << 16;
    let mut bytes = Vec::new();
    for word in [magic, HEADER, 0, types_size, types_size, strings_size].iter().chain(&types) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(strings);
    (bytes, infos)
}
