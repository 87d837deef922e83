//! The kernel's types and those of programs, from their BTF: the offsets of members, and the ids of functions.

use std::io;

use libbpf_rs::btf::types::{Composite, Func, Typedef};
use libbpf_rs::btf::{Btf, BtfType};

use super::Program;

/// The types of the running kernel.
pub struct KernelTypes {
    btf: Btf<'static>,
}

impl KernelTypes {
    /// Reads the types, in about ten milliseconds. Fails on kernels built without `CONFIG_DEBUG_INFO_BTF`.
    pub fn read() -> io::Result<Self> {
        let btf = Btf::from_vmlinux().map_err(|error| {
            io::Error::other(format!("cannot read the kernel's types (BTF): {error}"))
        })?;
        Ok(Self { btf })
    }

    /// Reads the types of a loaded program.
    pub(super) fn of_program(program: &Program) -> io::Result<Self> {
        let btf = Btf::from_prog_id(program.info()?.id).map_err(io::Error::other)?;
        Ok(Self { btf })
    }

    /// Returns the byte offset of a member of a structure, also a nested member: `("sock", "sk_receive_queue.qlen")`.
    /// Members of anonymous unions and structures are found too.
    pub fn offset(&self, structure: &str, path: &str) -> io::Result<u32> {
        let missing = || io::Error::other(format!("this kernel has no `{structure}.{path}`"));
        let mut at: Composite<'_> = self.btf.type_by_name(structure).ok_or_else(missing)?;
        let mut offset = 0;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let (bits, found) = self.member(at, part).ok_or_else(missing)?;
            offset += bits;
            if parts.peek().is_some() {
                at = found.try_into().map_err(|_| missing())?;
            }
        }
        Ok(offset / 8)
    }

    fn member<'a>(&'a self, composite: Composite<'a>, name: &str) -> Option<(u32, BtfType<'a>)> {
        for index in 0..composite.len() {
            let member = composite.get(index)?;
            let bits = match member.attr {
                libbpf_rs::btf::types::MemberAttr::Normal { offset }
                | libbpf_rs::btf::types::MemberAttr::BitField { offset, .. } => offset,
            };
            let inner: BtfType<'_> = self.btf.type_by_id(member.ty)?;
            let inner = inner.skip_mods_and_typedefs();
            match member.name {
                Some(found) if found == name => return Some((bits, inner)),
                Some(_) => {}
                None => {
                    let nested = Composite::try_from(inner)
                        .ok()
                        .and_then(|nested| self.member(nested, name));
                    if let Some((more, found)) = nested {
                        return Some((bits + more, found));
                    }
                }
            }
        }
        None
    }

    /// Returns the BTF id of a function.
    pub fn function(&self, name: &str) -> io::Result<u32> {
        let found: Option<Func<'_>> = self.btf.type_by_name(name);
        let missing = || io::Error::other(format!("there is no function `{name}`"));
        found.map(|function| function.type_id().into()).ok_or_else(missing)
    }

    /// Returns whether the kernel has a tracepoint to which programs can attach by its type (`tp_btf`).
    #[must_use]
    pub fn has_tracepoint(&self, name: &str) -> bool {
        let found: Option<Typedef<'_>> = self.btf.type_by_name(&format!("btf_trace_{name}"));
        found.is_some()
    }
}
