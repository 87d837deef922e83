//! Compiles the shim over DPDK's inline functions, with the flags that DPDK was built with.

use std::process::Command;

/// Libraries that the shim calls. The drivers are plug-ins, which DPDK loads from its own folder.
const LIBRARIES: &[&str] = &["rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool"];

fn pkg_config(option: &str) -> String {
    let output = Command::new("pkg-config").args([option, "libdpdk >= 22.11"]).output();
    let output = output.unwrap_or_else(|error| {
        panic!("pkg-config does not run ({error}); scripts/setup installs it")
    });
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "no DPDK 22.11 or newer; scripts/setup --dpdk installs it: {message}"
    );
    String::from_utf8(output.stdout).expect("flags are text")
}

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    let mut build = cc::Build::new();
    for flag in pkg_config("--cflags").split_whitespace() {
        build.flag(flag);
    }
    build.file("src/shim.c").opt_level(2).compile("heddle_dpdk_shim");
    for folder in pkg_config("--libs-only-L").split_whitespace() {
        println!("cargo::rustc-link-search=native={}", folder.trim_start_matches("-L"));
    }
    for library in LIBRARIES {
        println!("cargo::rustc-link-lib={library}");
    }
}
