//! What a stranger's policy may consist of, judged by its instructions. Whoever made the bytes, what passes here cannot
//! touch anything but its input's window, its own maps and the line of its executors.

use super::instruction::{CALL, Instruction, LOAD_64, call, load};
use super::object::{DeclKind, MapDecl, Object, Target};

/// Helpers that a policy may call: what heddle.h declares.
const HELPERS: &[(i32, &str)] = &[
    (1, "map lookup"),
    (2, "map update"),
    (3, "map delete"),
    (5, "clock"),
    (7, "random number"),
    (8, "CPU number"),
];

/// What Heddle supplies to policies.
const SUPPLIED: &[&str] = &["hd_idle", "hd_qlen", "hd_lines", "hd_control"];

/// Instructions of all functions together.
const MAX_INSTRUCTIONS: usize = 4096;
/// Characters of a map's name.
const MAX_NAME: usize = 64;
/// Maps of one policy.
const MAX_MAPS: usize = 16;
/// Bytes of all maps of one policy together.
const MAX_MAP_BYTES: u64 = 64 << 20;

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused: {0}")]
pub struct Refused(pub String);

fn refuse<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(why.into()))
}

/// Whether `object` may be loaded for a stranger.
///
/// # Errors
/// The first thing that a policy may not do, and where it does it.
pub fn check(object: &Object) -> Result<(), Refused> {
    if object.function("hd_policy").is_none() {
        return refuse("it has no function `schedule`, so it is no policy");
    }
    let total: usize = object.functions.iter().map(|function| function.code.len()).sum();
    if total > MAX_INSTRUCTIONS {
        return refuse(format!("{total} instructions, more than {MAX_INSTRUCTIONS}"));
    }
    check_maps(&object.maps)?;
    for function in &object.functions {
        if function.name.starts_with("hd_") && function.name != "hd_policy" {
            return refuse(format!(
                "it defines `{}`: names that begin with hd_ are Heddle's",
                function.name
            ));
        }
        check_code(object, function)?;
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
        if name.starts_with("hd_") {
            return refuse(format!(
                "it defines map `{name}`: names that begin with hd_ are Heddle's"
            ));
        }
        // Names become those of files.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            return refuse(format!("it defines map {name:?}, which is no name of C"));
        }
        let fit = match &map.kind {
            DeclKind::Array => map.key_size == 4,
            DeclKind::Hash => (1..=256).contains(&map.key_size),
            DeclKind::Data { bytes, .. } => {
                map.entries == 1 && bytes.len() as u64 == u64::from(map.value_size)
            }
            _ => return refuse(format!("map `{name}` is of a kind that only Heddle makes")),
        };
        if !fit || map.value_size == 0 || map.entries == 0 {
            return refuse(format!("map `{name}` has sizes that make no sense"));
        }
        // A hash keeps its key and some 64 bytes with each value.
        let each = u64::from(map.value_size).next_multiple_of(8) + u64::from(map.key_size) + 64;
        bytes = bytes.saturating_add(each.saturating_mul(u64::from(map.entries)));
        if bytes > MAX_MAP_BYTES {
            return refuse(format!(
                "its maps take more than {} MiB (map `{name}`)",
                MAX_MAP_BYTES >> 20
            ));
        }
    }
    Ok(())
}

fn check_code(object: &Object, function: &super::object::Function) -> Result<(), Refused> {
    let name = &function.name;
    let mut at = 0;
    while let Some(instruction) = function.code.get(at).copied().map(Instruction) {
        let target = function
            .references
            .iter()
            .find(|reference| reference.at == at)
            .map(|reference| &reference.to);
        let wrong = match (instruction.opcode(), instruction.source()) {
            (CALL, call::HELPER) => {
                match HELPERS.iter().any(|(id, _)| *id == instruction.immediate()) {
                    true => None,
                    false => Some(format!(
                        "calls helper {} of the kernel, which policies may not",
                        instruction.immediate()
                    )),
                }
            }
            (CALL, call::FUNCTION) => match target {
                Some(Target::Name(called))
                    if object.function(called).is_some() || SUPPLIED.contains(&called.as_str()) =>
                {
                    None
                }
                _ => Some("calls something that is no function of a policy".into()),
            },
            (CALL, _) => Some("calls a function of the kernel".into()),
            (LOAD_64, load::NUMBER) => match target {
                Some(Target::Name(map))
                    if object.map(map).is_none() && !SUPPLIED.contains(&map.as_str()) =>
                {
                    Some(format!("uses `{map}`, which is not its own"))
                }
                Some(Target::Data { map, .. }) if object.map(map).is_none() => {
                    Some(format!("uses `{map}`, which is not its own"))
                }
                _ => None,
            },
            (LOAD_64, _) => Some("names a map by number".into()),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let line = function.lines.iter().rev().find(|line| line.at <= at);
            let place = line.map_or(String::new(), |line| {
                format!(" (line {}: {})", line.number, line.text.trim())
            });
            return refuse(format!("`{name}` {wrong}{place}"));
        }
        at += if instruction.opcode() == LOAD_64 { 2 } else { 1 };
    }
    Ok(())
}
