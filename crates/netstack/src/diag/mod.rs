//! What lanes show to other processes, as the kernel's sockets do by `sock_diag`: `heddle net` is their `ss`.
//!
//! A process with lanes listens at a Unix socket in a folder of its user ([`folder()`]). A client sends a line,
//! `sockets` or `counters`, and gets a JSON object a line. `is` says what a line is about: `net` (the first), `udp`,
//! `listener`, `connection`, `counters`, and `end` (the last); an answer without that is not whole. Clients ignore what
//! they do not know.
//!
//! # Invariants
//!
//! - **I1** A lane's lock is held for [`BATCH`](crate::lane::BATCH) records at most, and never while something is
//!   written.
//! - **I2** Only the user of the process and root get an answer.
//! - **I3** A client has a second to ask and [`PATIENCE`] to read. Only other clients wait for it.
//! - **I4** The thread sleeps in `accept` until a client connects.
//! - **I5** What a killed process leaves is a name that refuses connections. The user's next process removes it.

mod answer;
mod folder;
mod json;

pub use folder::{folder, folders};

use crate::net::Net;
use heddle_sys::fork;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a client may take for an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client may take to ask.
const TO_ASK: Duration = Duration::from_secs(1);

/// How long to wait after a failed `accept`: descriptors may be short.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Answers other processes until it is dropped. A child of `fork` does not; there, dropping it does nothing.
#[derive(Debug)]
pub struct Diag {
    shared: Arc<Shared>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
    /// That of the process that started it.
    generation: u32,
}

/// What the handle and the thread share.
#[derive(Debug)]
struct Shared {
    listener: UnixListener,
    /// The user that gets answers, beside root.
    uid: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    /// Who is answered.
    client: Option<Arc<UnixStream>>,
}

impl Diag {
    /// Shows the lanes of `net` from now on.
    ///
    /// # Errors
    /// The system's: there is no folder that only this user can write to, or no descriptor or thread.
    pub fn start(net: &Arc<Net>) -> io::Result<Diag> {
        let (path, listener) = folder::listen()?;
        let uid = rustix::process::geteuid().as_raw();
        let shared = Arc::new(Shared { listener, uid, state: Mutex::default() });
        let (net, of_thread) = (Arc::downgrade(net), Arc::clone(&shared));
        let builder = thread::Builder::new().name("heddle-diag".into());
        let thread = Some(builder.spawn(move || of_thread.serve(&net))?);
        Ok(Diag { shared, path, thread, generation: fork::generation() })
    }
}

impl Drop for Diag {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if fork::generation() != self.generation {
            // The thread and the socket are the parent's.
            std::mem::forget(thread);
            return;
        }
        // Fails only if it was removed.
        let _ = std::fs::remove_file(&self.path);
        self.shared.stop();
        let _ = thread.join();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends `accept`, and the answer that is being written.
    fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        state.client.iter().for_each(|client| drop(client.shutdown(Shutdown::Both)));
    }

    fn serve(&self, net: &Weak<Net>) {
        loop {
            let accepted = self.listener.accept();
            let mut state = self.state();
            if state.is_stopped {
                return;
            }
            let Ok((client, _)) = accepted else {
                drop(state);
                thread::sleep(AFTER_FAILURE);
                continue;
            };
            let client = Arc::new(client);
            state.client = Some(Arc::clone(&client));
            drop(state);
            // A client that has gone gets no answer.
            let _ = self.answer(&client, net);
            self.state().client = None;
        }
    }

    fn answer(&self, client: &UnixStream, net: &Weak<Net>) -> io::Result<()> {
        let asker = socket_peercred(client)?.uid.as_raw();
        if asker != 0 && asker != self.uid {
            return Ok(());
        }
        client.set_read_timeout(Some(TO_ASK))?;
        let mut question = [0; 32];
        let (length, _) = retry_on_intr(|| recv(client, &mut question, RecvFlags::empty()))?;
        answer::write(&question[..length], client, net)
    }
}
