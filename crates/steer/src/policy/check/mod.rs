//! What a user's policy may consist of, judged by its instructions. Whatever made the bytes, code that passes
//! here cannot touch anything but its input, its own maps and the lines of its executors.
//!
//! The object comes from a process that an attacker may control, so nothing in it is trusted: neither that an
//! index is within what it indexes, nor that the compiler made it.

mod code;

use std::collections::{BTreeMap, BTreeSet};

use super::object::{DeclKind, Function, Line, MapDecl, Object, Target};

/// Functions that Heddle supplies to policies.
const SUPPLIED_FUNCTIONS: &[&str] = &["hd_idle", "hd_qlen"];
/// Maps that Heddle supplies to policies. They may write the lines; `hd_control` is read-only to programs.
const SUPPLIED_MAPS: &[&str] = &["hd_lines", "hd_control"];

/// Maximum instructions of all functions together.
pub const MAX_INSTRUCTIONS: usize = 4096;
const MAX_FUNCTIONS: usize = 64;
/// Maximum maps of one policy, data sections included.
pub const MAX_MAPS: usize = 16;
/// Maximum bytes of all maps of one policy together.
pub const MAX_MAP_BYTES: u64 = 64 << 20;
/// Maximum bytes of a value: a helper copies a whole one, and no instruction count bounds that time.
pub const MAX_VALUE: u32 = 4096;
const MAX_NAME: usize = 64;

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it does that policies may not.
    pub why: String,
    /// Where, if the compiler recorded it.
    pub place: Option<Line>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused: {}", self.why)?;
        match &self.place {
            Some(line) => write!(f, " (line {}: {})", line.number, line.text.trim()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

fn refuse<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { why: why.into(), place: None })
}

/// Checks whether `object` may be loaded for an unprivileged user.
///
/// # Errors
/// The first forbidden thing, and where it is.
pub fn check(object: &Object) -> Result<(), Refused> {
    if object.function("hd_policy").is_none() {
        return refuse("it has no function `schedule`, so it is no policy");
    }
    if object.functions.len() > MAX_FUNCTIONS {
        return refuse(format!("{} functions, more than {MAX_FUNCTIONS}", object.functions.len()));
    }
    let total: usize = object.functions.iter().map(|function| function.code.len()).sum();
    if total > MAX_INSTRUCTIONS {
        return refuse(format!("{total} instructions, more than {MAX_INSTRUCTIONS}"));
    }
    check_names(object)?;
    check_maps(&object.maps)?;
    for function in &object.functions {
        check_function(object, function)?;
    }
    check_recursion(object)
}

/// Checks names as the compiler makes them: they end up in messages and in file names.
fn check_names(object: &Object) -> Result<(), Refused> {
    let functions = object.functions.iter().map(|function| &function.name);
    let mut seen = BTreeSet::new();
    for name in functions.chain(object.maps.iter().map(|map| &map.name)) {
        let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || name.len() > MAX_NAME || !letters {
            return refuse(format!("it has a name that no compiler makes: {name:.128?}"));
        }
        if name.starts_with("hd_") && name != "hd_policy" {
            return refuse(format!("it defines `{name}`: names that begin with hd_ are Heddle's"));
        }
        if !seen.insert(name) {
            return refuse(format!("it defines `{name}` twice"));
        }
    }
    Ok(())
}

fn check_maps(maps: &[MapDecl]) -> Result<(), Refused> {
    if maps.len() > MAX_MAPS {
        return refuse(format!("{} maps, more than {MAX_MAPS}", maps.len()));
    }
    let mut bytes = 0_u64;
    for map in maps {
        let name = &map.name;
        let fit = match &map.kind {
            DeclKind::Array => map.key_size == 4,
            DeclKind::Hash => (1..=256).contains(&map.key_size),
            DeclKind::Data { bytes, .. } => {
                let size = bytes.len() as u64 == u64::from(map.value_size);
                map.entries == 1 && map.key_size == 4 && size
            }
            _ => return refuse(format!("map `{name}` is of a kind that only Heddle makes")),
        };
        if !fit || map.value_size == 0 || map.entries == 0 {
            return refuse(format!("map `{name}` has sizes that make no sense"));
        }
        // A program cannot use data as a map; it only gets the address of a byte of it ([`super::link`]).
        if map.value_size > MAX_VALUE && !map.is_data() {
            return refuse(format!(
                "map `{name}` has values of {} bytes, and may have {MAX_VALUE}: make them several \
                 values of an array, or variables",
                map.value_size
            ));
        }
        let memory = map.memory().map_err(|error| Refused {
            why: format!("how much map `{name}` takes depends on the number of CPUs: {error}"),
            place: None,
        })?;
        bytes = bytes.saturating_add(memory);
        if bytes > MAX_MAP_BYTES {
            let limit = MAX_MAP_BYTES >> 20;
            return refuse(format!(
                "its maps take more than {limit} MiB (map `{name}`: {} values of {} bytes)",
                map.entries, map.value_size
            ));
        }
    }
    Ok(())
}

fn check_function(object: &Object, function: &Function) -> Result<(), Refused> {
    let lines = &function.lines;
    let ordered = lines.is_sorted_by_key(|line| line.at);
    if !ordered || lines.last().is_some_and(|line| line.at >= function.code.len()) {
        return refuse(format!("`{}` has lines where it has no instructions", function.name));
    }
    code::check(object, function).map_err(|code::Wrong { at, what }| Refused {
        why: format!("`{}` {what}", shown(&function.name)),
        place: lines.iter().rev().find(|line| line.at <= at).cloned(),
    })
}

/// Returns the familiar description of `name`.
pub fn shown(name: &str) -> &str {
    if name == "hd_policy" { "schedule" } else { name }
}

/// Returns descriptions of the kernel helpers that `object` calls.
pub fn helpers(object: &Object) -> Vec<&'static str> {
    code::HELPERS
        .iter()
        .filter(|(id, _)| object.functions.iter().any(|function| code::calls_helper(function, *id)))
        .map(|(_, words)| *words)
        .collect()
}

/// Checks that no function calls itself, directly or indirectly: each call takes a stack frame, and the
/// kernel has eight.
fn check_recursion(object: &Object) -> Result<(), Refused> {
    let calls = |function: &Function| -> Vec<&str> {
        let named = function.references.iter().filter_map(|reference| match &reference.to {
            Target::Name(name) => object.function(name),
            Target::Data { .. } => None,
        });
        named.map(|function| function.name.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let mut calls: BTreeMap<&str, Vec<&str>> =
        object.functions.iter().map(|function| (function.name.as_str(), calls(function))).collect();
    // A function that calls only finished ones is finished; the rest form a cycle.
    while !calls.is_empty() {
        let left: BTreeSet<&str> = calls.keys().copied().collect();
        calls.retain(|_, called| called.iter().any(|name| left.contains(name)));
        if calls.len() == left.len() {
            let name = left.first().copied().unwrap_or_default();
            let text = "is part of a circle of functions that call each other, without an end";
            return refuse(format!("`{}` {text}", shown(name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
