//! Checks that a policy reads the parameters that its help shows, and no others.

use crate::registry::{Info, ParamInfo, find};
use crate::{PolicyError, build};
use heddle_core::Policy;
use std::fmt::Debug;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{assert, assert_eq, assert_ne, format};

/// Checks the parameters of a policy in the registry: each default shown is the default, each parameter
/// makes a difference, and an unknown one is refused with the list of those that exist.
///
/// # Panics
/// If any of these fails.
pub fn check_params<P: Policy + Debug>() {
    let info = find(P::NAME).unwrap_or_else(|| panic!("`{}` is not in the registry", P::NAME));
    check_params_of::<P>(info);
}

/// The same for a policy described by `info` instead of the registry.
///
/// # Panics
/// If any of these fails.
pub fn check_params_of<P: Policy + Debug>(info: &Info) {
    assert_eq!(info.name, P::NAME, "the name in the description");
    let bare = show::<P>(info.name.to_string());
    for ParamInfo { key, default, example, .. } in info.params {
        let with = |value: &str| show::<P>(format!("{}:{key}={value}", info.name));
        assert_eq!(with(default), bare, "`{default}` is not the default of `{key}`");
        assert_ne!(with(example), bare, "`{key}={example}` makes no difference");
        refuses::<P>(info, &format!("{key}=-1"), &format!("parameter `{key}`: `-1` is not"));
    }
    assert!(build::<P>(&info.example()).is_ok(), "refuses its example, {}", info.example());
    refuses::<P>(info, "no-such=1", &format!("no parameter `no-such`; there are: {}", keys(info)));
}

fn show<P: Policy + Debug>(text: String) -> String {
    let policy: Result<P, PolicyError> = build(&text);
    format!("{:?}", policy.unwrap_or_else(|e| panic!("{text}: {e}")))
}

fn refuses<P: Policy>(info: &Info, params: &str, complaint: &str) {
    let error = build::<P>(&format!("{}:{params}", info.name)).err();
    let error = error.unwrap_or_else(|| panic!("accepts {params}")).to_string();
    assert!(error.contains(complaint), "`{params}` gets `{error}` instead of `{complaint}`");
}

fn keys(info: &Info) -> String {
    let keys: Vec<_> = info.params.iter().map(|p| p.key).collect();
    if keys.is_empty() { "none".to_string() } else { keys.join(", ") }
}
