//! The program's own functions, by its symbol table.
//!
//! An allocator in C also has functions without a prefix: those private to one of its source files. They are found by
//! their neighbours. A linker puts the objects of a library side by side, so private C functions between two of the
//! allocator's functions belong to the allocator; and if one function of a source file does, all private ones of that
//! file do.

use super::allocators::ALLOCATORS;
use super::pattern::Pattern;
use heddle_sys::memory::Mapping;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, SymbolKind};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;

/// A function of the program.
struct Function<'a> {
    name: &'a [u8],
    code: Range<u64>,
    /// Number of the source file to which it is private.
    file: Option<usize>,
    held: bool,
}

impl Function<'_> {
    /// Returns whether it may be private to a C library: Rust and C++ compilers mangle names.
    fn is_private_c(&self) -> bool {
        self.file.is_some() && !self.name.starts_with(b"_Z") && !self.name.starts_with(b"_R")
    }
}

/// Finds the functions of allocators and those that are `named`, in a program loaded at `base`. Returns `None` if it is
/// stripped.
///
/// # Errors
/// If the program's file cannot be read.
pub(super) fn functions(named: &[Pattern<'_>], base: usize) -> io::Result<Vec<Range<usize>>> {
    let program = Mapping::of(&File::open("/proc/self/exe")?)?;
    let elf = ElfFile64::<Endianness>::parse(program.bytes()).map_err(io::Error::other)?;
    let mut functions = read(&elf);
    let names: HashSet<&[u8]> = functions.iter().map(|f| f.name).collect();
    let there =
        ALLOCATORS.iter().filter(|a| a.shown_by.iter().any(|s| names.contains(s.as_bytes())));
    let of_allocators = there.flat_map(|a| a.functions.iter().map(|name| Pattern(name)));
    let patterns: Vec<Pattern<'_>> = of_allocators.chain(named.iter().copied()).collect();
    for function in &mut functions {
        function.held = patterns.iter().any(|pattern| pattern.matches(function.name));
    }
    add_neighbours(&mut functions);
    add_same_file(&mut functions);
    let held = functions.into_iter().filter(|f| f.held);
    Ok(held.map(|f| base + f.code.start as usize..base + f.code.end as usize).collect())
}

/// Returns all functions, by address.
fn read<'a>(elf: &ElfFile64<'a>) -> Vec<Function<'a>> {
    let mut functions = vec![];
    let mut file = 0;
    for symbol in elf.symbols() {
        match symbol.kind() {
            // The file symbol precedes the symbols private to it.
            SymbolKind::File => file += 1,
            SymbolKind::Text if symbol.size() > 0 => functions.push(Function {
                name: symbol.name_bytes().unwrap_or_default(),
                code: symbol.address()..symbol.address() + symbol.size(),
                file: symbol.is_local().then_some(file),
                held: false,
            }),
            _ => {}
        }
    }
    functions.sort_by_key(|f| f.code.start);
    functions
}

/// Marks private C functions that lie between two marked functions.
fn add_neighbours(functions: &mut [Function<'_>]) {
    let mut last_held = None;
    for i in 0..functions.len() {
        if functions[i].held {
            if let Some(last) = last_held.replace(i) {
                functions[last + 1..i].iter_mut().for_each(|f: &mut Function<'_>| f.held = true);
            }
        } else if !functions[i].is_private_c() {
            last_held = None;
        }
    }
}

/// Marks private C functions from source files of which one function is marked.
fn add_same_file(functions: &mut [Function<'_>]) {
    let held = functions.iter().filter(|f| f.held && f.is_private_c());
    let files: HashSet<Option<usize>> = held.map(|f| f.file).collect();
    for function in functions.iter_mut().filter(|f| f.is_private_c()) {
        function.held |= files.contains(&function.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, file: Option<usize>) -> Function<'_> {
        Function { name: name.as_bytes(), code: 0..1, file, held: name.starts_with("je_") }
    }

    fn held(mut functions: Vec<Function<'_>>) -> Vec<&str> {
        add_neighbours(&mut functions);
        add_same_file(&mut functions);
        let held = functions.into_iter().filter(|f| f.held);
        held.map(|f| std::str::from_utf8(f.name).unwrap()).collect()
    }

    #[test]
    fn private_functions_between_an_allocators_are_its_own() {
        let functions = vec![
            function("before", Some(1)),
            function("je_a", None),
            function("arena_grow", Some(2)),
            function("_ZN4rust4codeE", Some(3)),
            function("arena_trim", Some(2)),
            function("other", Some(4)),
            function("je_b", None),
            function("after", Some(5)),
        ];
        assert_eq!(held(functions), ["je_a", "je_b"], "strangers lie between the two");
        let functions = vec![
            function("slab_free", Some(2)),
            function("other", Some(1)),
            function("je_a", None),
            function("slab_new", Some(2)),
            function("je_b", Some(2)),
            function("public", None),
        ];
        assert_eq!(held(functions), ["slab_free", "je_a", "slab_new", "je_b"]);
    }
}
