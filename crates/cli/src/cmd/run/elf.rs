//! What an ELF file says of itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use object::{SectionFlags, SegmentFlags, elf};

/// Symbols that show what is linked into a program, whether they are dynamic or not.
const MARKERS: [&str; 6] =
    ["__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__rtsan_init", "__tsan_init"];

/// The owner of the note in files that contain Heddle's runtime (`heddle_runtime_marker`). Unlike a symbol, it survives
/// `strip`.
const RUNTIME_NOTE: &[u8] = b"Heddle";

/// The owner of the note in files that were built with probes (`docs/design/probes.md`).
const PROBES_NOTE: &[u8] = b"Heddle-probes";

type Elf64<'a> = ElfFile64<'a, Endianness, &'a [u8]>;

/// A 64-bit ELF file.
#[derive(Debug, Default)]
pub struct Elf {
    /// The loader that the kernel starts for it; `None` if it is static.
    pub interpreter: Option<PathBuf>,
    /// The objects that it names as needed.
    pub needed: Vec<String>,
    /// Names that it takes from other objects.
    pub imports: BTreeSet<String>,
    /// Names that it offers to other objects.
    pub exports: BTreeSet<String>,
    /// The symbols of [`MARKERS`] that it contains.
    pub markers: BTreeSet<&'static str>,
    /// Whether Go's linker made it.
    pub is_go: bool,
    /// Whether it contains Heddle's runtime.
    pub has_runtime: bool,
    /// Whether it was built with probes, at least in part.
    pub has_probes: bool,
}

impl Elf {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is no sound 64-bit ELF file.
    pub fn read(path: &Path) -> anyhow::Result<Elf> {
        with_file(path, |file, data| {
            let mut this = Elf::default();
            let endian = file.endian();
            for header in file.elf_program_headers() {
                if let Some(path) = header.interpreter(endian, data)? {
                    this.interpreter = Some(OsString::from_vec(path.to_vec()).into());
                }
                let notes = header.notes(endian, data).ok().flatten();
                for note in notes.into_iter().flatten().flatten() {
                    this.has_runtime |= note.name() == RUNTIME_NOTE;
                    this.has_probes |= note.name() == PROBES_NOTE;
                }
            }
            let dynamic = file.elf_dynamic_table()?;
            for entry in dynamic.iter() {
                if entry.tag == elf::DT_NEEDED {
                    this.needed.push(text(dynamic.string(entry)?));
                }
            }
            for symbol in file.dynamic_symbols() {
                let name = text(symbol.name_bytes()?);
                this.mark(&name);
                match symbol.is_undefined() {
                    _ if name.is_empty() => false,
                    true => this.imports.insert(name),
                    false => this.exports.insert(name),
                };
            }
            for symbol in file.symbols() {
                this.mark(symbol.name().unwrap_or_default());
            }
            let sections = [".go.buildinfo", ".note.go.buildid"];
            this.is_go = sections.iter().any(|name| file.section_by_name(name).is_some());
            Ok(this)
        })
    }

    fn mark(&mut self, name: &str) {
        self.markers.extend(MARKERS.iter().filter(|marker| **marker == name));
    }
}

/// Counts the byte pairs in executable code at `path` that are a `syscall` instruction, or look like one inside
/// another instruction.
///
/// # Errors
/// As [`Elf::read`].
pub fn inline_syscalls(path: &Path) -> anyhow::Result<usize> {
    with_file(path, |file, _| {
        let sections: Vec<_> = file.sections().filter(|section| is_code(section.flags())).collect();
        let mut count = 0;
        for section in &sections {
            count += syscalls_in(section.data()?);
        }
        if sections.is_empty() {
            // The table of sections was stripped.
            for segment in file.segments().filter(|segment| is_executable(segment.flags())) {
                count += syscalls_in(segment.data()?);
            }
        }
        Ok(count)
    })
}

fn is_code(flags: SectionFlags) -> bool {
    matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(elf::SHF_EXECINSTR))
}

fn is_executable(flags: SegmentFlags) -> bool {
    matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X))
}

fn syscalls_in(code: &[u8]) -> usize {
    code.windows(2).filter(|pair| *pair == [0x0f, 0x05]).count()
}

/// Returns the newest version `GLIBC_2.N` that the C library at `path` defines, as `N`.
///
/// # Errors
/// As [`Elf::read`].
pub fn glibc_minor(path: &Path) -> anyhow::Result<Option<u32>> {
    with_file(path, |file, data| {
        let (endian, sections) = (file.endian(), file.elf_section_table());
        let Some((definitions, strings)) = sections.gnu_verdef(endian, data)? else {
            return Ok(None);
        };
        let strings = sections.strings(endian, data, strings)?;
        let mut newest = None;
        for definition in definitions {
            let (_, mut names) = definition?;
            let Some(name) = names.next()? else { continue };
            let name = text(name.name(endian, strings)?);
            newest = newest.max(name.strip_prefix("GLIBC_2.").and_then(minor));
        }
        Ok(newest)
    })
}

/// Returns 2 for `2.5`, 36 for `36`.
fn minor(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

fn with_file<T>(
    path: &Path,
    read: impl for<'a> FnOnce(&Elf64<'a>, &'a [u8]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let reading = || format!("cannot read {}", path.display());
    let data = fs::read(path).with_context(reading)?;
    let file = ElfFile64::parse(&data[..]).with_context(reading)?;
    read(&file, &data).with_context(reading)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syscalls_are_counted_wherever_they_begin() {
        assert_eq!(syscalls_in(&[]), 0);
        assert_eq!(syscalls_in(&[0x0f, 0x05, 0x0f, 0x0f, 0x05, 0x05]), 2);
    }

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(
            ["2.5", "36", "4", "x", ""].map(minor),
            [Some(2), Some(36), Some(4), None, None]
        );
    }

    #[test]
    fn this_program_describes_itself() {
        let path = std::env::current_exe().unwrap();
        let this = Elf::read(&path).unwrap();
        assert!(this.interpreter.is_some() && this.needed.iter().any(|n| n == "libc.so.6"));
        assert!(this.imports.contains("malloc") && !this.is_go, "{this:?}");
    }
}
