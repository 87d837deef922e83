//! Ctrl-C, `kill` and a closed terminal: a request to end early, in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// As shells report a program that Ctrl-C ended.
const EXIT: i32 = 130;

/// A flag that the first signal sets. A second one ends the process at once, should the first have met a
/// wait that nothing ends; children see their standard input close.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the shutdown sees the flag as it was before this signal.
        flag::register_conditional_shutdown(signal, EXIT, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
