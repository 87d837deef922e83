//! From the compiler's ELF file to an [`Object`]. The file may be a stranger's: nothing in it is believed.

use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::read::elf::{ElfFile64, ElfSection64, ElfSymbol64};
use object::{
    Architecture, LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _,
    RelocationFlags, RelocationTarget, SectionIndex, SymbolKind, SymbolSection,
};

use super::instruction::{Instruction, LOAD_64};
use super::lines;
use super::object::{DeclKind, Function, MapDecl, Object, Reference, Target};

/// The largest file that is read.
pub const MAX_FILE: usize = 4 << 20;
/// The most data that a policy's sections hold.
const MAX_DATA: u64 = 1 << 20;
/// Bytes of `struct hd_map`.
const MAP_DECL: usize = 16;

/// Why a file is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is not what clang makes for `-target bpf`.
    #[error("not a compiled policy: {0}")]
    NotBpf(String),
    /// It is, but it contradicts itself.
    #[error("a damaged policy: {0}")]
    Damaged(String),
    /// It uses something that policies cannot have.
    #[error("{0}")]
    Unsupported(String),
}

fn damaged(what: impl Into<String>) -> ReadError {
    ReadError::Damaged(what.into())
}

type File<'a> = ElfFile64<'a, LittleEndian>;
type Section<'a, 'f> = ElfSection64<'a, 'f, LittleEndian>;

/// Reads the ELF file `bytes`.
///
/// # Errors
/// What is wrong with it; never a panic, and time and memory linear in the size of the file.
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
    let mut object = Object { functions: Vec::new(), maps: maps(&file)? };
    object.maps.extend(data(&file)?);
    let lines = lines::read(&file);
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text && !s.is_undefined()) {
        // Labels inside a function have no size.
        if symbol.size() > 0 {
            object.functions.push(function(&file, &symbol, &lines)?);
        }
    }
    Ok(object)
}

fn name_of(symbol: &ElfSymbol64<'_, '_, LittleEndian>) -> Result<String, ReadError> {
    symbol.name().map(str::to_owned).map_err(|_| damaged("a symbol without a readable name"))
}

/// The maps in section `.hd.maps`, one symbol each.
fn maps(file: &File<'_>) -> Result<Vec<MapDecl>, ReadError> {
    let Some(section) = file.section_by_name(".hd.maps") else { return Ok(Vec::new()) };
    let bytes = section.data().map_err(|_| damaged("its maps"))?;
    let mut maps = Vec::new();
    for symbol in file.symbols().filter(|s| s.section() == SymbolSection::Section(section.index()))
    {
        if symbol.kind() == SymbolKind::Section {
            continue;
        }
        let name = name_of(&symbol)?;
        let at = usize::try_from(symbol.address()).map_err(|_| damaged("a map far away"))?;
        let decl = at.checked_add(MAP_DECL).and_then(|end| bytes.get(at..end));
        let decl = decl.ok_or_else(|| damaged(format!("map `{name}` is cut off")))?;
        let word = |i: usize| {
            u32::from_le_bytes([decl[i * 4], decl[i * 4 + 1], decl[i * 4 + 2], decl[i * 4 + 3]])
        };
        let kind = DeclKind::from_number(word(0));
        let kind = kind.ok_or_else(|| {
            ReadError::Unsupported(format!("map `{name}` is of no kind that there is"))
        })?;
        maps.push(MapDecl { name, kind, key_size: word(1), value_size: word(2), entries: word(3) });
    }
    Ok(maps)
}

/// The name of the map that a section of data becomes; `None` if it is something else.
fn data_map(section: &str) -> Option<&str> {
    match section {
        ".bss" | ".data" | ".rodata" => Some(&section[1..]),
        ".hd.maps" => None,
        _ => section.strip_prefix(".hd."),
    }
}

fn data(file: &File<'_>) -> Result<Vec<MapDecl>, ReadError> {
    let mut maps = Vec::new();
    for section in file.sections() {
        let Some(name) = section.name().ok().and_then(data_map) else { continue };
        if section.size() == 0 {
            continue;
        }
        if section.size() > MAX_DATA {
            let text = format!(
                "{} bytes of variables, more than {MAX_DATA}: use HD_TABLE",
                section.size()
            );
            return Err(ReadError::Unsupported(text));
        }
        if section.relocations().next().is_some() {
            let text = "a variable that holds an address: policies have no pointers to data or functions in variables";
            return Err(ReadError::Unsupported(text.into()));
        }
        let size = usize::try_from(section.size()).unwrap_or(0);
        let mut bytes = section.data().map_err(|_| damaged("its variables"))?.to_vec();
        bytes.resize(size, 0);
        let value_size = u32::try_from(size).unwrap_or(0);
        let kind =
            DeclKind::Data { bytes, constant: name == "rodata" || name.ends_with("constants") };
        maps.push(MapDecl { name: name.into(), kind, key_size: 4, value_size, entries: 1 });
    }
    Ok(maps)
}

fn function(
    file: &File<'_>,
    symbol: &ElfSymbol64<'_, '_, LittleEndian>,
    lines: &[lines::Of],
) -> Result<Function, ReadError> {
    let name = name_of(symbol)?;
    let index =
        symbol.section_index().ok_or_else(|| damaged(format!("function `{name}` is nowhere")))?;
    let section = file
        .section_by_index(index)
        .map_err(|_| damaged(format!("function `{name}` is nowhere")))?;
    let bytes = section.data().map_err(|_| damaged("its code"))?;
    let range = symbol.address()..symbol.address().saturating_add(symbol.size());
    let code = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
    let code = code.and_then(|(from, to)| bytes.get(from..to)).filter(|_| range.start % 8 == 0);
    let code = code.filter(|code| code.len() % 8 == 0);
    let code = code.ok_or_else(|| damaged(format!("function `{name}` is cut off")))?;
    let code: Vec<u64> = code
        .chunks_exact(8)
        .map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()))
        .collect();
    let references = references(file, &section, &range, &code)?;
    let lines = lines::within(lines, section.name().unwrap_or_default(), &range);
    Ok(Function { name, code, references, lines })
}

/// The references of the function at `range` of `section`: those that the compiler left open, and calls inside of
/// the section, which it may have closed.
fn references(
    file: &File<'_>,
    section: &Section<'_, '_>,
    range: &std::ops::Range<u64>,
    code: &[u64],
) -> Result<Vec<Reference>, ReadError> {
    let mut references = Vec::new();
    for (offset, relocation) in section.relocations().filter(|(offset, _)| range.contains(offset)) {
        let at = usize::try_from((offset - range.start) / 8).unwrap_or(usize::MAX);
        let instruction =
            Instruction(*code.get(at).ok_or_else(|| damaged("a reference from nowhere"))?);
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err(damaged("a reference to nothing"));
        };
        let symbol = file.symbol_by_index(symbol).map_err(|_| damaged("a reference to nothing"))?;
        let to = match r_type {
            R_BPF_64_64 if instruction.opcode() == LOAD_64 => {
                data_target(file, &symbol, instruction)?
            }
            R_BPF_64_32 if instruction.calls_function() => call_target(file, &symbol, instruction)?,
            _ => return Err(ReadError::Unsupported(format!("a reference of kind {r_type}"))),
        };
        references.push(Reference { at, to });
    }
    let closed = closed_calls(file, section.index(), range, code, &references)?;
    references.extend(closed);
    references.sort_by_key(|reference| reference.at);
    Ok(references)
}

fn data_target(
    file: &File<'_>,
    symbol: &ElfSymbol64<'_, '_, LittleEndian>,
    instruction: Instruction,
) -> Result<Target, ReadError> {
    let SymbolSection::Section(index) = symbol.section() else {
        return name_of(symbol).map(Target::Name);
    };
    let section = file.section_by_index(index).map_err(|_| damaged("a reference to nowhere"))?;
    match section.name().ok().and_then(data_map) {
        Some(map) => {
            let place = i64::try_from(symbol.address())
                .ok()
                .map(|base| base + i64::from(instruction.immediate()));
            let offset = place.and_then(|place| u32::try_from(place).ok());
            let offset = offset.filter(|offset| u64::from(*offset) < section.size());
            Ok(Target::Data {
                map: map.into(),
                offset: offset.ok_or_else(|| damaged("a reference outside of its data"))?,
            })
        }
        None if section.name() == Ok(".hd.maps") => name_of(symbol).map(Target::Name),
        None => {
            let name = section.name().unwrap_or("?");
            Err(ReadError::Unsupported(format!(
                "a reference to section `{name}`: policies have no texts and no function pointers"
            )))
        }
    }
}

fn call_target(
    file: &File<'_>,
    symbol: &ElfSymbol64<'_, '_, LittleEndian>,
    instruction: Instruction,
) -> Result<Target, ReadError> {
    if symbol.kind() != SymbolKind::Section {
        return name_of(symbol).map(Target::Name);
    }
    // A call into a section says where in it: the distance from the section's start, less the one that calls add.
    let offset = (i64::from(instruction.immediate()) + 1) * 8;
    let index = symbol.section_index().ok_or_else(|| damaged("a call to nowhere"))?;
    function_at(file, index, offset)
}

fn function_at(file: &File<'_>, section: SectionIndex, offset: i64) -> Result<Target, ReadError> {
    let here = |s: &ElfSymbol64<'_, '_, LittleEndian>| {
        s.kind() == SymbolKind::Text
            && s.size() > 0
            && s.section() == SymbolSection::Section(section)
            && i64::try_from(s.address()) == Ok(offset)
    };
    let symbol =
        file.symbols().find(here).ok_or_else(|| damaged("a call into the middle of a function"))?;
    name_of(&symbol).map(Target::Name)
}

fn closed_calls(
    file: &File<'_>,
    section: SectionIndex,
    range: &std::ops::Range<u64>,
    code: &[u64],
    open: &[Reference],
) -> Result<Vec<Reference>, ReadError> {
    let mut calls = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let instruction = Instruction(code[at]);
        if instruction.calls_function() && !open.iter().any(|reference| reference.at == at) {
            let here = i64::try_from(range.start).unwrap_or(0) + i64::try_from(at * 8).unwrap_or(0);
            let to =
                function_at(file, section, here + (i64::from(instruction.immediate()) + 1) * 8)?;
            calls.push(Reference { at, to });
        }
        at += if instruction.opcode() == LOAD_64 { 2 } else { 1 };
    }
    Ok(calls)
}
