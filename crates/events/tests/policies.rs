//! Checks what `docs/policies/README.md` says about policies over events.
#![allow(missing_docs)]

use heddle_events::{EventError, EventQueue};
use std::path::Path;

const INDEX: &str = "docs/policies/README.md";

/// Returns the expected rows of the table under "Where a policy runs".
fn rows() -> Vec<String> {
    let row = |name: &str| match EventQueue::builder().policy(name).build() {
        Ok(_) => None,
        Err(EventError::Lacks(lacks)) => Some(format!("| [{name}]({name}.md) | {} |", lacks.need)),
        Err(error) => panic!("{name}: {error}"),
    };
    heddle_policies::list().iter().filter_map(|info| row(info.name)).collect()
}

#[test]
fn the_policies_that_event_queues_refuse_are_listed_with_the_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(INDEX);
    let index = std::fs::read_to_string(path).unwrap();
    let section = index.split("## Where a policy runs").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let says: Vec<_> = section.lines().filter(|line| line.starts_with("| [")).collect();
    assert_eq!(says, rows(), "{INDEX} should have these rows:\n{}", rows().join("\n"));
}
