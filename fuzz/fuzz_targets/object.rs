//! Compiled policies of strangers: reading, checking and linking them never panics.
#![no_main]

use heddle_steer::policy::{check, frame, link, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(object) = read(bytes) {
        let _ = check(&object);
        let _ = link(&[&frame("reuseport"), &frame("common"), &frame("observe"), &object]);
    }
});
