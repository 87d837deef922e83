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

/// Why an interface cannot have lanes.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// What it is.
    pub found: String,
    /// What to do instead.
    pub advice: String,
}

/// Returns why the interface `name` of this thread's network namespace is of a kind that cannot have lanes; `None` if
/// it can.
pub(crate) fn refusal(name: &str) -> Option<Refusal> {
    if !is_ethernet(name).unwrap_or(true) {
        let found = format!("{name} carries no Ethernet frames");
        return Some(Refusal { found, advice: "HEDDLE_NET=kernel serves it".into() });
    }
    let driver = driver(name).ok()?;
    let (_, what) = STACKED.iter().find(|(of, _)| *of == driver)?;
    let found = format!("{name} is {what}, over which packets of others go, too");
    let lower = lower(name);
    let below = match lower.is_empty() {
        true => "the interface below it".into(),
        false => lower.join(" or "),
    };
    Some(Refusal { found, advice: format!("name {below}, or use HEDDLE_NET=kernel") })
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
