//! Signals to the guardian, which are meant for the program.

use super::GuardianError;
use super::event::{Event, Events};
use rustix::process::Signal;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

/// The signals that are passed on.
const PASSED_ON: [i32; 8] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGUSR1, SIGUSR2, SIGCONT];

/// Reports signals as events from now on.
///
/// # Errors
/// If the handlers cannot be set.
pub fn listen(events: &Events) -> Result<(), GuardianError> {
    let (sender, children) = (events.sender(), events.children().clone());
    let all = PASSED_ON.into_iter().chain([SIGCHLD]);
    let mut signals = SignalsInfo::<WithOrigin>::new(all)
        .map_err(GuardianError::system("cannot catch signals"))?;
    std::thread::spawn(move || {
        for origin in &mut signals {
            // The kernel's own signals come from the terminal, which sends them to the program as well.
            let terminal = origin.process.is_none();
            let is_heard = match Signal::from_named_raw(origin.signal) {
                Some(Signal::CHILD) => children.ended(),
                Some(signal) => sender.send(Event::Signal(signal, terminal)).is_ok(),
                None => continue,
            };
            if !is_heard {
                return;
            }
        }
    });
    Ok(())
}
