//! Sets the library's soname, so that a program that was linked under another name, such as `-levent`, loads
//! this file.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libheddle_event.so");
    println!("cargo:rerun-if-changed=build.rs");
}
