//! Ctrl-C, `kill` and a closed terminal: requests to end early and cleanly.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit code that shells report for a program ended by Ctrl-C.
const EXIT: i32 = 130;

/// Returns a flag that the first signal sets. A second signal ends the process at once, in case it is stuck in a wait;
/// children see their standard input close.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order, the shutdown sees the flag from before this signal.
        flag::register_conditional_shutdown(signal, EXIT, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
