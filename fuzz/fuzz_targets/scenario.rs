//! Scenario files of the simulator. An accepted scenario can be printed, and is the same when read again.
#![no_main]

use std::path::Path;

use heddle_sim::Scenario;
use libfuzzer_sys::fuzz_target;

/// A folder without the files that a scenario names.
const NOWHERE: &str = "/proc/self/fdinfo/none";

fuzz_target!(|text: &str| {
    // An absolute path may name any file of this machine, even an endless one.
    if text.contains("'/") || text.contains("\"/") || text.contains("..") || text.contains("\\") {
        return;
    }
    match Scenario::parse(text, "fuzz.toml", Path::new(NOWHERE)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(scenario) => {
            assert!(scenario.rate() >= 0.0 && scenario.capacity() > 0.0);
            let printed = scenario.to_toml();
            let again = Scenario::parse(&printed, "printed.toml", Path::new(NOWHERE));
            let again = again.unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(again, scenario, "{printed}");
        }
    }
});
