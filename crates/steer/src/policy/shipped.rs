//! Objects compiled with Heddle: the policies that it ships, and the frames of its hooks.

use super::object::Object;
use super::read::read;

include!(concat!(env!("OUT_DIR"), "/compiled.rs"));

fn find(
    table: &'static [(&str, &'static str, &'static [u8])],
    name: &str,
) -> Option<(&'static str, &'static [u8])> {
    table.iter().find(|(n, ..)| *n == name).map(|(_, source, object)| (*source, *object))
}

/// Returns the names of the shipped policies.
pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(name, ..)| *name)
}

/// Returns the source of a shipped policy.
#[must_use]
pub fn shipped_source(name: &str) -> Option<&'static str> {
    find(POLICIES, name).map(|(source, _)| source)
}

/// Returns what a shipped policy does, in a sentence or two: the head of its source.
#[must_use]
pub fn shipped_summary(name: &str) -> Option<String> {
    let comment = shipped_source(name)?.strip_prefix("/*")?.split("*/").next()?;
    let lines = comment.lines().map(|line| line.trim().trim_start_matches('*').trim());
    Some(lines.collect::<Vec<_>>().join(" "))
}

/// Returns the compiled file of a shipped policy.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static [u8]> {
    find(POLICIES, name).map(|(_, object)| object)
}

/// Returns the names of the shipped `pick_next`s.
pub fn shipped_pick_nexts() -> impl Iterator<Item = &'static str> {
    PICK_NEXTS.iter().map(|(name, ..)| *name)
}

/// Returns the compiled file of a shipped `pick_next`.
pub(super) fn shipped_pick_next(name: &str) -> Option<&'static [u8]> {
    find(PICK_NEXTS, name).map(|(_, object)| object)
}

/// Returns a shipped policy, compiled for user space.
pub(crate) fn shipped_native(name: &str) -> Option<&'static [u8]> {
    find(NATIVE, name).map(|(_, object)| object)
}

/// Returns one of Heddle's own objects (`bpf/steer/hooks`).
///
/// # Panics
/// If there is none of the name, or it cannot be read: a bug in Heddle that its tests find.
#[must_use]
pub fn frame(name: &str) -> Object {
    let (_, bytes) = find(FRAMES, name).unwrap_or_else(|| panic!("no frame `{name}`"));
    read(bytes).unwrap_or_else(|error| panic!("frame `{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_compiled_objects_can_be_read() {
        for (name, ..) in FRAMES {
            assert!(!frame(name).functions.is_empty() || !frame(name).maps.is_empty(), "{name}");
        }
        for (name, _, object) in POLICIES {
            let policy = read(object).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(policy.function("hd_policy").is_some(), "{name}");
        }
    }

    #[test]
    fn every_policy_has_a_summary() {
        assert_eq!(shipped_summary("round-robin").as_deref(), Some("Every executor in turn."));
        for name in shipped_names() {
            assert!(shipped_summary(name).is_some_and(|text| text.ends_with('.')), "{name}");
        }
    }
}
