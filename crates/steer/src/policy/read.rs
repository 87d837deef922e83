//! Parses the compiler's ELF file into an [`Object`]. The file may be malicious: nothing in it is trusted.
//! Time and memory are linear in its size: counts are limited, and lookups use an index.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::read::elf::{ElfFile64, ElfSection64, ElfSymbol64};
use object::{
    Architecture, LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, Relocation,
    RelocationFlags, RelocationTarget, SectionIndex, SymbolKind, SymbolSection,
};

use super::instruction::{Instruction, LOAD_64};
use super::lines::{self, Lines};
use super::object::{DeclKind, Function, MapDecl, Object, Reference, Target};

/// Maximum size of a file.
pub const MAX_FILE: usize = 1 << 20;
/// Maximum bytes of a policy's data sections together.
const MAX_DATA: u64 = 1 << 20;
/// Maximum instructions of all functions together. The limit for loading as a user is lower.
const MAX_CODE: usize = 1 << 16;
const MAX_SECTIONS: usize = 512;
/// Each symbol has a name, whose end must be searched for.
const MAX_SYMBOLS: usize = 8192;
const MAX_MAPS: usize = 64;
const MAX_RELOCATIONS: usize = 1 << 16;
const MAX_NAME: usize = 256;
/// Bytes of `struct hd_map`.
const MAP_DECL: usize = 16;

/// Why a file is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is not what clang makes for `-target bpf`.
    #[error("not a compiled policy: {0}")]
    NotBpf(String),
    /// It is, but it contradicts itself.
    #[error("a damaged policy: {0}")]
    Damaged(String),
    /// It uses something unavailable to policies.
    #[error("{0}")]
    Unsupported(String),
}

fn damaged(what: impl Into<String>) -> ReadError {
    ReadError::Damaged(what.into())
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, ReadError> {
    Err(ReadError::Unsupported(what.into()))
}

type File<'a> = ElfFile64<'a, LittleEndian>;
type Section<'a, 'f> = ElfSection64<'a, 'f, LittleEndian>;
type Symbol<'a, 'f> = ElfSymbol64<'a, 'f, LittleEndian>;

/// Parses the ELF file `bytes`.
///
/// # Errors
/// What is wrong with it; never panics.
pub fn read(bytes: &[u8]) -> Result<Object, ReadError> {
    if bytes.len() > MAX_FILE {
        return Err(ReadError::NotBpf(format!("{} bytes, more than {MAX_FILE}", bytes.len())));
    }
    let file = File::parse(bytes).map_err(|error| {
        ReadError::NotBpf(format!("no ELF file for a machine of 64 bits: {error}"))
    })?;
    if file.architecture() != Architecture::Bpf {
        return Err(ReadError::NotBpf(format!(
            "compiled for {:?}, not for BPF (clang -target bpf)",
            file.architecture()
        )));
    }
    if file.sections().nth(MAX_SECTIONS).is_some() || file.symbols().nth(MAX_SYMBOLS).is_some() {
        return Err(damaged(format!("more than {MAX_SECTIONS} sections or {MAX_SYMBOLS} symbols")));
    }
    let mut object = Object { functions: Vec::new(), maps: maps(&file)? };
    object.maps.extend(data(&file)?);
    object.functions = Code::of(&file)?.functions()?;
    Ok(object)
}

fn name_of(symbol: &Symbol<'_, '_>) -> Result<String, ReadError> {
    let name = symbol.name().ok().filter(|name| name.len() <= MAX_NAME);
    name.map(str::to_owned).ok_or_else(|| damaged("a symbol without a readable name"))
}

/// Returns the maps in section `.hd.maps`, one symbol each.
fn maps(file: &File<'_>) -> Result<Vec<MapDecl>, ReadError> {
    let Some(section) = file.section_by_name(".hd.maps") else { return Ok(Vec::new()) };
    let bytes = section.data().map_err(|_| damaged("its maps"))?;
    let mut maps = Vec::new();
    let here = SymbolSection::Section(section.index());
    for symbol in file.symbols().filter(|s| s.section() == here && s.kind() != SymbolKind::Section)
    {
        if maps.len() == MAX_MAPS {
            return Err(damaged(format!("more than {MAX_MAPS} maps")));
        }
        maps.push(map(&symbol, bytes)?);
    }
    Ok(maps)
}

fn map(symbol: &Symbol<'_, '_>, section: &[u8]) -> Result<MapDecl, ReadError> {
    let name = name_of(symbol)?;
    let at = usize::try_from(symbol.address()).map_err(|_| damaged("a map far away"))?;
    let decl = at.checked_add(MAP_DECL).and_then(|end| section.get(at..end));
    let decl = decl.ok_or_else(|| damaged(format!("map `{name}` is cut off")))?;
    let word = |i: usize| decl[i * 4..i * 4 + 4].try_into().map_or(0, u32::from_le_bytes);
    match DeclKind::from_number(word(0)) {
        Some(kind) => {
            Ok(MapDecl { name, kind, key_size: word(1), value_size: word(2), entries: word(3) })
        }
        None => unsupported(format!("map `{name}` is of no kind that there is")),
    }
}

/// Returns the name of the map for a data section; `None` for other sections.
fn data_map(section: &str) -> Option<Cow<'_, str>> {
    match section {
        ".bss" | ".data" | ".rodata" => Some(section[1..].into()),
        ".hd.maps" => None,
        // Tables and strings that the compiler merged by size: `.rodata.cst16`, `.rodata.str1.1`.
        _ if section.starts_with(".rodata.") => Some(section[1..].replace('.', "_").into()),
        _ => section.strip_prefix(".hd.").map(Into::into),
    }
}

fn data(file: &File<'_>) -> Result<Vec<MapDecl>, ReadError> {
    let (mut maps, mut total) = (Vec::new(), 0_u64);
    for section in file.sections().filter(|section| section.size() > 0) {
        let Some(name) = section.name().ok().and_then(data_map) else { continue };
        total = total.saturating_add(section.size());
        if total > MAX_DATA {
            let text = format!("{total} bytes of variables, more than {MAX_DATA}: use HD_TABLE");
            return unsupported(text);
        }
        if section.relocations().next().is_some() {
            return unsupported(
                "a variable that holds an address: policies have no pointers to data or functions in variables",
            );
        }
        maps.push(data_section(&section, name.into_owned())?);
    }
    Ok(maps)
}

/// A section of not more than [`MAX_DATA`] bytes.
fn data_section(section: &Section<'_, '_>, name: String) -> Result<MapDecl, ReadError> {
    let size = usize::try_from(section.size()).unwrap_or(0);
    let mut bytes = section.data().map_err(|_| damaged("its variables"))?.to_vec();
    bytes.resize(size, 0);
    let value_size = u32::try_from(size).unwrap_or(0);
    let constant = name.starts_with("rodata") || name.ends_with("constants");
    let kind = DeclKind::Data { bytes, constant };
    Ok(MapDecl { name, kind, key_size: 4, value_size, entries: 1 })
}

/// A file's code, with indices for lookups in it.
struct Code<'a, 'f> {
    file: &'f File<'a>,
    /// Symbols with a size, that is, functions; labels inside of one have none.
    symbols: Vec<Symbol<'a, 'f>>,
    /// Symbols by the byte of a section where they begin.
    starts: HashMap<(SectionIndex, u64), usize>,
    /// Relocations of a section, by the byte they apply to.
    relocations: HashMap<SectionIndex, Vec<(u64, Relocation)>>,
    lines: Lines,
}

impl<'a, 'f> Code<'a, 'f> {
    fn of(file: &'f File<'a>) -> Result<Self, ReadError> {
        let code = |s: &Symbol<'_, '_>| s.kind() == SymbolKind::Text && s.size() > 0;
        let symbols: Vec<_> = file.symbols().filter(|s| code(s) && !s.is_undefined()).collect();
        let mut starts = HashMap::new();
        let mut relocations = HashMap::new();
        for (index, symbol) in symbols.iter().enumerate() {
            let Some(section) = symbol.section_index() else { continue };
            starts.insert((section, symbol.address()), index);
            if let Entry::Vacant(unread) = relocations.entry(section) {
                unread.insert(relocations_of(file, section)?);
            }
        }
        Ok(Self { file, symbols, starts, relocations, lines: lines::read(file) })
    }

    fn functions(&self) -> Result<Vec<Function>, ReadError> {
        let mut left = MAX_CODE;
        let mut functions = Vec::new();
        for symbol in &self.symbols {
            let size = usize::try_from(symbol.size() / 8).unwrap_or(usize::MAX);
            left = left
                .checked_sub(size)
                .ok_or_else(|| damaged(format!("more than {MAX_CODE} instructions")))?;
            functions.push(self.function(symbol)?);
        }
        Ok(functions)
    }

    fn function(&self, symbol: &Symbol<'a, 'f>) -> Result<Function, ReadError> {
        let name = name_of(symbol)?;
        let nowhere = || damaged(format!("function `{name}` is nowhere"));
        let index = symbol.section_index().ok_or_else(nowhere)?;
        let section = self.file.section_by_index(index).map_err(|_| nowhere())?;
        let bytes = section.data().map_err(|_| damaged("its code"))?;
        let range = symbol.address()..symbol.address().saturating_add(symbol.size());
        let code = instructions(bytes, &range);
        let code = code.ok_or_else(|| damaged(format!("function `{name}` is cut off")))?;
        let references = self.references(index, &range, &code)?;
        let lines = self.lines.within(section.name().unwrap_or_default(), &range);
        Ok(Function { name, code, references, lines })
    }

    /// Returns the references of the function at `range` of `section`: those the compiler left open, and
    /// calls inside the section, which it may have resolved.
    fn references(
        &self,
        section: SectionIndex,
        range: &Range<u64>,
        code: &[u64],
    ) -> Result<Vec<Reference>, ReadError> {
        let open = self.relocations.get(&section).map_or(&[][..], Vec::as_slice);
        let first = open.partition_point(|(offset, _)| *offset < range.start);
        let mut open =
            open[first..].iter().take_while(|(offset, _)| *offset < range.end).peekable();
        let mut references = Vec::new();
        let mut at = 0;
        while let Some(instruction) = code.get(at).copied().map(Instruction) {
            let offset = range.start + at as u64 * 8;
            let to = match open.next_if(|(from, _)| *from == offset) {
                Some((_, relocation)) => Some(self.target(relocation, instruction)?),
                None if instruction.calls_function() => {
                    Some(self.function_at(section, offset, instruction)?)
                }
                None => None,
            };
            references.extend(to.map(|to| Reference { at, to }));
            at += instruction.slots();
        }
        match open.next() {
            None => Ok(references),
            Some(_) => Err(damaged("a reference where nothing refers to anything")),
        }
    }

    fn target(
        &self,
        relocation: &Relocation,
        instruction: Instruction,
    ) -> Result<Target, ReadError> {
        let nothing = || damaged("a reference to nothing");
        let RelocationFlags::Elf { r_type } = relocation.flags() else { return Err(nothing()) };
        let RelocationTarget::Symbol(symbol) = relocation.target() else { return Err(nothing()) };
        let symbol = self.file.symbol_by_index(symbol).map_err(|_| nothing())?;
        match r_type {
            R_BPF_64_64 if instruction.opcode() == LOAD_64 => {
                data_target(self.file, &symbol, instruction)
            }
            R_BPF_64_32 if instruction.calls_function() => match symbol.section_index() {
                // A call into a section encodes the target's offset from the section's start.
                Some(section) if symbol.kind() == SymbolKind::Section => {
                    self.function_at(section, 0, instruction)
                }
                _ => name_of(&symbol).map(Target::Name),
            },
            _ => unsupported(format!("a reference of kind {r_type}, which policies have none of")),
        }
    }

    /// Returns the function that a call at byte `from` of `section` calls, by its distance.
    fn function_at(
        &self,
        section: SectionIndex,
        from: u64,
        call: Instruction,
    ) -> Result<Target, ReadError> {
        let to = from.checked_add_signed((i64::from(call.immediate()) + 1) * 8);
        let symbol = to.and_then(|to| self.starts.get(&(section, to)));
        let symbol = symbol.ok_or_else(|| damaged("a call into the middle of a function"))?;
        name_of(&self.symbols[*symbol]).map(Target::Name)
    }
}

fn relocations_of(
    file: &File<'_>,
    section: SectionIndex,
) -> Result<Vec<(u64, Relocation)>, ReadError> {
    let section = file.section_by_index(section).map_err(|_| damaged("code that is nowhere"))?;
    if section.name().is_err() || section.name().is_ok_and(|name| name.len() > MAX_NAME) {
        return Err(damaged("a section without a readable name"));
    }
    let mut all: Vec<_> = section.relocations().take(MAX_RELOCATIONS + 1).collect();
    if all.len() > MAX_RELOCATIONS {
        return Err(damaged(format!("more than {MAX_RELOCATIONS} references")));
    }
    all.sort_by_key(|(offset, _)| *offset);
    Ok(all)
}

fn instructions(section: &[u8], range: &Range<u64>) -> Option<Vec<u64>> {
    let code = section.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)?;
    let (code, rest) = code.as_chunks::<8>();
    (rest.is_empty() && range.start.is_multiple_of(8))
        .then(|| code.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
}

fn data_target(
    file: &File<'_>,
    symbol: &Symbol<'_, '_>,
    instruction: Instruction,
) -> Result<Target, ReadError> {
    let addend = i64::from(instruction.immediate());
    // Anything elsewhere, or a map, is referred to as a whole.
    let whole = || match addend {
        0 => name_of(symbol).map(Target::Name),
        _ => unsupported("a reference into the middle of a map: use hd_at"),
    };
    let SymbolSection::Section(index) = symbol.section() else { return whole() };
    let section = file.section_by_index(index).map_err(|_| damaged("a reference to nowhere"))?;
    match section.name().ok().and_then(data_map) {
        Some(map) => {
            let place = symbol.address().checked_add_signed(addend);
            let place = place.filter(|place| *place < section.size());
            let offset = place.and_then(|place| u32::try_from(place).ok());
            let offset = offset.ok_or_else(|| damaged("a reference outside of its data"))?;
            Ok(Target::Data { map: map.into_owned(), offset })
        }
        None if section.name() == Ok(".hd.maps") => whole(),
        None => {
            let name = section.name().unwrap_or("?");
            unsupported(format!(
                "a reference to section `{name:.64}`: policies have no pointers to functions"
            ))
        }
    }
}
