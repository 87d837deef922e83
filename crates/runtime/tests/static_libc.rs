//! A program that links the C library statically is refused where it is built, not where it starts.
#![allow(missing_docs)]

use std::process::Command;

#[test]
fn a_static_c_library_is_refused_at_compile_time() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let build = |features: &str| {
        let output = Command::new(&rustc)
            .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--out-dir"])
            .args([env!("CARGO_TARGET_TMPDIR"), &format!("-Ctarget-feature={features}")])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"))
            .output()
            .unwrap();
        // It also lacks its dependencies, which cargo would have passed.
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = "error: Heddle needs the dynamic C library";
    assert!(build("+crt-static").contains(refused));
    assert!(!build("-crt-static").contains(refused));
}
