//! Which crate may depend on which: the arrows of ARCHITECTURE.md, in one place.
//!
//! `cli, bench -> heddle -> runtime, events, steer, agent -> policies, sys, arch -> core`. The four layers
//! never import each other: they meet in core's vocabulary. Dev-dependencies are free: no user of a
//! crate inherits them.

use crate::finding::Finding;
use cargo_metadata::{DependencyKind, Metadata, Package};
use std::path::Path;

/// The crates below all four layers.
const FOUNDATIONS: &[&str] = &[
    "heddle-core",
    "heddle-policies",
    "heddle-arch",
    "heddle-sys",
    "heddle-sync",
    "heddle-bpf",
    "heddle-steer-abi",
    "heddle-share",
    "heddle-telemetry",
    "heddle-tcp",
    "heddle-xsk",
    "heddle-netstack",
];
/// The four layers.
const LAYERS: &[&str] = &["heddle-rt", "heddle-events", "heddle-steer", "heddle-agent"];
/// The key-value server and what measures it.
const SERVER: &[&str] = &["heddle-proto", "heddle-store", "heddle-load", "heddle-server"];
/// What programs depend on.
const LIBRARIES: &[&str] = &[
    "heddle",
    "heddle-broker",
    "heddle-netns",
    "heddle-metrics",
    "heddle-probes",
    "heddle-bench",
    "heddle-sim",
    "heddle-observe",
    "heddle-export",
    "heddle-advise",
];

/// Each package and the groups of packages that it may depend on.
const MAY_DEPEND: &[(&str, &[&[&str]])] = &[
    ("heddle-core", &[]),
    ("heddle-policies", &[&["heddle-core"]]),
    ("heddle-arch", &[&["heddle-core"]]),
    ("heddle-sys", &[&["heddle-core"]]),
    ("heddle-tcp", &[&["heddle-core"]]),
    ("heddle-sync", &[&["heddle-core", "heddle-sys"]]),
    ("heddle-xsk", &[]),
    ("heddle-bpf", &[&["heddle-sys"]]),
    ("heddle-bpf-build", &[]),
    (
        "heddle-netstack",
        &[&["heddle-core", "heddle-sys", "heddle-sync", "heddle-xsk", "heddle-tcp"]],
    ),
    ("heddle-steer-abi", &[]),
    ("heddle-share", &[&["heddle-core", "heddle-sys"]]),
    ("heddle-telemetry", &[&["heddle-core", "heddle-sys"]]),
    (
        "heddle-observe",
        &[&["heddle-bpf", "heddle-bpf-build", "heddle-core", "heddle-sys", "heddle-telemetry"]],
    ),
    ("heddle-export", &[&["heddle-core", "heddle-telemetry", "heddle-observe"]]),
    ("heddle-broker", &[&["heddle-core", "heddle-policies", "heddle-share", "heddle-sys"]]),
    ("heddle-metrics", &[&["heddle-core"]]),
    ("heddle-netns", &[&["heddle-bpf", "heddle-bpf-build", "heddle-sys"]]),
    ("heddle-probes", &[]),
    ("heddle-rt", &[FOUNDATIONS]),
    ("heddle-posix", &[&["heddle-rt", "heddle-arch", "heddle-core", "heddle-sync", "heddle-sys"]]),
    (
        "heddle-events",
        &[&["heddle-core", "heddle-policies", "heddle-sync", "heddle-sys", "heddle-telemetry"]],
    ),
    ("heddle-steer", &[&["heddle-netns"], FOUNDATIONS]),
    ("heddle-agent", &[&["heddle-bpf-build"], FOUNDATIONS]),
    ("heddle-sim", &[&["heddle-core", "heddle-policies", "heddle-metrics"]]),
    (
        "heddle-advise",
        &[&[
            "heddle-observe",
            "heddle-sim",
            "heddle-steer",
            "heddle-sys",
            "heddle-core",
            "heddle-policies",
        ]],
    ),
    ("heddle", &[LAYERS, FOUNDATIONS]),
    ("heddle-libevent", &[&["heddle-core", "heddle-events"]]),
    ("heddle-kqueue", &[&["heddle-events", "heddle-sys"]]),
    ("libheddle-kqueue", &[&["heddle-kqueue"]]),
    ("libheddle", &[&["heddle", "heddle-kqueue"], LAYERS, FOUNDATIONS]),
    ("heddle-proto", &[&["heddle-core"]]),
    ("heddle-store", &[&["heddle", "heddle-core", "heddle-proto"]]),
    ("heddle-load", &[&["heddle-core", "heddle-metrics", "heddle-proto", "heddle-sys"]]),
    ("heddle-server", &[&["heddle", "heddle-core", "heddle-proto", "heddle-store"]]),
    (
        "heddle-bench",
        &[
            &["heddle", "heddle-broker", "heddle-metrics", "heddle-netns"],
            SERVER,
            LAYERS,
            FOUNDATIONS,
        ],
    ),
    ("heddled", &[LIBRARIES, LAYERS, FOUNDATIONS]),
    ("heddle-cli", &[LIBRARIES, SERVER, LAYERS, FOUNDATIONS]),
    ("heddle-test-support", &[]),
    ("xtask", &[]),
];

/// Reports every arrow that is not in the table.
pub fn check(metadata: &Metadata) -> Vec<Finding> {
    metadata.workspace_packages().into_iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    let inside = package.dependencies.iter().filter(|d| d.path.is_some());
    let shipped = inside.filter(|d| d.kind != DependencyKind::Development);
    let names: Vec<&str> = shipped.map(|d| d.name.as_str()).collect();
    let problems = wrong_arrows(package.name.as_ref(), &names);
    let manifest = Path::new(package.manifest_path.as_str());
    problems.into_iter().map(|problem| Finding::error(manifest, None, problem)).collect()
}

fn wrong_arrows(package: &str, dependencies: &[&str]) -> Vec<String> {
    let Some((_, allowed)) = MAY_DEPEND.iter().find(|(name, _)| *name == package) else {
        return vec![format!("`{package}` is not in the table of arrows in xtask/src/arrows.rs")];
    };
    let wrong = dependencies.iter().filter(|d| !allowed.iter().any(|group| group.contains(d)));
    wrong.map(|d| format!("`{package}` must not depend on `{d}` (xtask/src/arrows.rs)")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_down_are_allowed() {
        assert!(wrong_arrows("heddle-rt", &["heddle-core", "heddle-sys"]).is_empty());
        assert!(wrong_arrows("heddle-cli", &["heddle", "heddle-bench", "heddle-core"]).is_empty());
    }

    #[test]
    fn arrows_up_and_between_the_layers_are_not() {
        let up = wrong_arrows("heddle-core", &["heddle-policies"]);
        assert!(up[0].contains("must not depend on `heddle-policies`"), "{up:?}");
        for layer in LAYERS {
            assert_eq!(wrong_arrows(layer, LAYERS).len(), LAYERS.len(), "{layer}");
        }
    }

    #[test]
    fn an_unknown_package_is_reported() {
        assert!(wrong_arrows("heddle-new", &[])[0].contains("not in the table"));
    }

    #[test]
    fn the_table_names_only_packages_with_a_line_of_their_own() {
        let known = |name: &str| MAY_DEPEND.iter().any(|(package, _)| *package == name);
        let named = MAY_DEPEND.iter().flat_map(|(_, groups)| groups.iter().copied().flatten());
        named.for_each(|name| assert!(known(name), "{name}"));
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Each package may depend only on packages of lines above its own.
        for (i, (package, groups)) in MAY_DEPEND.iter().enumerate() {
            let above = &MAY_DEPEND[..i];
            for name in groups.iter().copied().flatten() {
                assert!(above.iter().any(|(p, _)| p == name), "{package} -> {name}");
            }
        }
    }
}
