//! The kinds of interfaces that lanes are not for.

use std::fs;

use heddle_sys::interface::{driver, is_ethernet};

/// Interfaces that are made of others, by what their drivers call themselves. Their packets have been through, or go
/// through, another interface of the machine, where lanes see them first.
const STACKED: [(&str, &str); 6] = [
    ("802.1Q VLAN Support", "a VLAN"),
    ("bonding", "a bond"),
    ("bridge", "a bridge"),
    ("ipvlan", "an ipvlan"),
    ("macvlan", "a macvlan"),
    ("team", "a team"),
];

/// Returns why the interface `name` of this thread's network namespace is of a kind that cannot have lanes; `None` if
/// it can.
pub(crate) fn refusal(name: &str) -> Option<String> {
    if !is_ethernet(name).unwrap_or(true) {
        return Some(format!("{name} carries no Ethernet frames: the kernel's network serves it"));
    }
    let driver = driver(name).ok()?;
    let (_, what) = STACKED.iter().find(|(of, _)| *of == driver)?;
    let lower = lower(name);
    let below = match lower.is_empty() {
        true => String::new(),
        false => format!(" ({})", lower.join(", ")),
    };
    Some(format!(
        "{name} is {what}, over which others' packets go, too: name the interface below it{below}, or \
         use the kernel's network"
    ))
}

/// Returns the interfaces that `name` is made of, in the namespace that mounted /sys.
fn lower(name: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/sys/class/net/{name}")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut lower: Vec<String> =
        names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect();
    lower.sort();
    lower
}
