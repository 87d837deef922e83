//! Which instruction came from which line of the source: the compiler's `.BTF.ext`. A courtesy for messages: what is
//! damaged here is left out.

use std::ops::Range;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _};

use super::object::Line;

/// A line of a section of code.
pub struct Of {
    section: String,
    /// Bytes from the section's start.
    offset: u64,
    line: Line,
}

/// The lines of the function at `range` of `section`.
pub fn within(lines: &[Of], section: &str, range: &Range<u64>) -> Vec<Line> {
    let here = lines.iter().filter(|of| of.section == section && range.contains(&of.offset));
    here.map(|of| Line {
        at: usize::try_from((of.offset - range.start) / 8).unwrap_or(0),
        ..of.line.clone()
    })
    .collect()
}

/// All lines that the file knows.
pub fn read(file: &ElfFile64<'_, LittleEndian>) -> Vec<Of> {
    let section = |name| file.section_by_name(name).and_then(|section| section.data().ok());
    let (Some(types), Some(extra)) = (section(".BTF"), section(".BTF.ext")) else {
        return Vec::new();
    };
    parse(types, extra).unwrap_or_default()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn size(bytes: &[u8], at: usize) -> Option<usize> {
    word(bytes, at)?.try_into().ok()
}

/// The strings of `.BTF`, by offset.
fn strings(types: &[u8]) -> Option<&[u8]> {
    let start = size(types, 4)?.checked_add(size(types, 16)?)?;
    types.get(start..)
}

fn string(strings: &[u8], at: u32) -> String {
    let bytes = usize::try_from(at).ok().and_then(|at| strings.get(at..)).unwrap_or_default();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// `.BTF.ext`: a header; where the line information begins and how long it is; for each section a head and records of
/// instruction offset, file, text, and line number with column in the low ten bits.
fn parse(types: &[u8], extra: &[u8]) -> Option<Vec<Of>> {
    let strings = strings(types)?;
    let start = size(extra, 4)?.checked_add(size(extra, 16)?)?;
    let all = extra.get(start..start.checked_add(size(extra, 20)?)?)?;
    let record = size(all, 0)?;
    let mut lines = Vec::new();
    let mut at = 4;
    while let (Some(section), Some(count)) = (word(all, at), size(all, at + 4)) {
        let section = string(strings, section);
        at += 8;
        for _ in 0..count {
            let record_at = all.get(at..at.checked_add(record)?).filter(|r| r.len() >= 16)?;
            let field = |i: usize| word(record_at, i * 4);
            let line = Line {
                at: 0,
                file: string(strings, field(1)?),
                number: field(3)? >> 10,
                text: string(strings, field(2)?),
            };
            lines.push(Of { section: section.clone(), offset: field(0)?.into(), line });
            at += record;
        }
    }
    Some(lines)
}
