//! Signals to the guardian are meant for the program.

use super::GuardianError;
use super::event::Event;
use rustix::process::Signal;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::sync::mpsc::Sender;

/// Those that are passed on.
const PASSED_ON: [i32; 8] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGUSR1, SIGUSR2, SIGCONT];

/// Tells of signals from now on.
///
/// # Errors
/// The system's.
pub fn listen(events: Sender<Event>) -> Result<(), GuardianError> {
    let all = PASSED_ON.into_iter().chain([SIGCHLD]);
    let mut signals = SignalsInfo::<WithOrigin>::new(all)
        .map_err(GuardianError::system("cannot catch signals"))?;
    std::thread::spawn(move || {
        for origin in &mut signals {
            // The kernel's own come from the terminal, which sends them to the program as well.
            let terminal = origin.process.is_none();
            let event = match Signal::from_named_raw(origin.signal) {
                Some(Signal::CHILD) => Event::Child,
                Some(signal) => Event::Signal(signal, terminal),
                None => continue,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    Ok(())
}
