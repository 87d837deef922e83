//! The classes of threads, by their names: `HEDDLE_PTHREAD_CLASSES=be=rocksdb:low*;lc=main*`.
//!
//! The first rule that fits a name decides. `heddle run --class` checks the rules before it sets the variable; what
//! does not parse here is passed over.

use heddle_core::{Class, glob};
use std::sync::OnceLock;

/// A class and the pattern of names that have it.
struct Rule {
    class: Class,
    pattern: String,
}

fn rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let text = std::env::var("HEDDLE_PTHREAD_CLASSES").unwrap_or_default();
        text.split(';').filter_map(rule).collect()
    })
}

fn rule(text: &str) -> Option<Rule> {
    let (class, pattern) = text.split_once('=')?;
    let class = match class {
        "lc" => Class::LC,
        "be" => Class::BE,
        number => Class(number.parse().ok()?),
    };
    Some(Rule { class, pattern: pattern.to_owned() })
}

/// Returns whether there are rules.
pub(crate) fn exist() -> bool {
    !rules().is_empty()
}

/// Returns the class of threads with this name, if a rule says so.
pub(crate) fn of(name: &str) -> Option<Class> {
    rules().iter().find(|rule| glob::fits(&rule.pattern, name)).map(|rule| rule.class)
}
