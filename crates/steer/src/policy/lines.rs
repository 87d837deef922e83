//! Maps instructions to source lines: the compiler's `.BTF.ext`. Used only for messages, so damaged parts are
//! skipped.

use std::collections::BTreeMap;
use std::ops::Range;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _};

use super::object::Line;

/// Maximum number of lines read, and maximum bytes of one.
const MAX_LINES: usize = 16_384;
const MAX_TEXT: usize = 256;

/// The lines of each code section: bytes from its start, and the line that begins there.
#[derive(Default)]
pub struct Lines(BTreeMap<String, Vec<(u64, Line)>>);

impl Lines {
    /// Returns the lines of the function at `range` of `section`.
    pub fn within(&self, section: &str, range: &Range<u64>) -> Vec<Line> {
        let lines = self.0.get(section).map_or(&[][..], Vec::as_slice);
        let from = lines.partition_point(|(offset, _)| *offset < range.start);
        let here = lines[from..].iter().take_while(|(offset, _)| *offset < range.end);
        let at = |offset: u64| usize::try_from((offset - range.start) / 8).unwrap_or(0);
        here.map(|(offset, line)| Line { at: at(*offset), ..line.clone() }).collect()
    }
}

/// Reads all lines in the file.
pub fn read(file: &ElfFile64<'_, LittleEndian>) -> Lines {
    let section = |name| file.section_by_name(name).and_then(|section| section.data().ok());
    let (Some(types), Some(extra)) = (section(".BTF"), section(".BTF.ext")) else {
        return Lines::default();
    };
    let mut lines = parse(types, extra).unwrap_or_default();
    lines.0.values_mut().for_each(|lines| lines.sort_by_key(|(offset, _)| *offset));
    lines
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

/// Returns the string at `at`, without terminal control characters.
fn string(strings: &[u8], at: u32) -> String {
    let bytes = usize::try_from(at).ok().and_then(|at| strings.get(at..)).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min(MAX_TEXT)];
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Parses `.BTF.ext`: a header; where the line information begins and its length; for each section a head and
/// records of instruction offset, file, text, and line number with the column in the low ten bits.
fn parse(types: &[u8], extra: &[u8]) -> Option<Lines> {
    let strings = strings(types)?;
    let start = size(extra, 4)?.checked_add(size(extra, 16)?)?;
    let all = extra.get(start..start.checked_add(size(extra, 20)?)?)?;
    let record = size(all, 0)?;
    let mut lines = Lines::default();
    let (mut at, mut left) = (4, MAX_LINES);
    while let (Some(section), Some(count)) = (word(all, at), size(all, at + 4)) {
        let section = lines.0.entry(string(strings, section)).or_default();
        at += 8;
        left = left.checked_sub(count)?;
        for _ in 0..count {
            let bytes = all.get(at..at.checked_add(record)?).filter(|r| r.len() >= 16)?;
            section.push(line(strings, bytes)?);
            at += record;
        }
    }
    Some(lines)
}

fn line(strings: &[u8], record: &[u8]) -> Option<(u64, Line)> {
    let field = |i: usize| word(record, i * 4);
    let (file, text) = (string(strings, field(1)?), string(strings, field(2)?));
    Some((field(0)?.into(), Line { at: 0, file, number: field(3)? >> 10, text }))
}
