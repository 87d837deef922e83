//! The library's name for the loader, so that a program that was linked with it by another name, as `-levent`, looks for this one.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libheddle_event.so");
    println!("cargo:rerun-if-changed=build.rs");
}
