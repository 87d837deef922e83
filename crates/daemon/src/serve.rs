//! The life cycle of heddled.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use heddle_steer::engine::Engine;
use heddle_steer::request::ErrorKind;
use heddle_sys::isolated::spawn_thread;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::closing::Closing;
use crate::connection;
use crate::deployments;
use crate::listen::listen;
use crate::notify::notify;
use crate::options::Options;
use crate::peer;
use crate::permits::ConnectionPermits;
use crate::reader;
use crate::shares;
use crate::watch;

/// How long requests under way may take once heddled is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &Options) -> anyhow::Result<()> {
    // Each client has its own table, which may hold as many. With the default limit a client with many executors would
    // be refused.
    heddle_sys::limits::raise_descriptors();
    // Before there are other threads.
    deployments::start(options)?;
    let (stop, stop_sender) = UnixStream::pair().context("no pair of sockets")?;
    for signal in [SIGTERM, SIGINT] {
        let stop_sender = stop_sender.try_clone().context("cannot copy a descriptor")?;
        signal_hook::low_level::pipe::register(signal, stop_sender).context("no signal handler")?;
    }
    let engine = Engine::new(options.state(), Box::new(reader::read))?;
    let lock = lock_state(options)?;
    let engine = Arc::new(engine.with_quota(options.quota()));
    // Existing attachments are known, and watched, before any client is served.
    report_attachments(&engine)?;
    watch::start(Arc::clone(&engine), options).context("cannot start the watch")?;
    let brokers = shares::start(options, &stop)?;
    let listener = listen(options)?;
    notify("READY=1");
    let permits = ConnectionPermits::new(options.max_connections);
    // Closing the rest may take forever: it is left to the process's exit.
    let mut closing = ManuallyDrop::new(Closing::new());
    accept(&listener.socket, &stop, &engine, &permits, &mut closing)?;
    notify("STOPPING=1");
    listener.close();
    let begin = Instant::now();
    while permits.held() > 0 && begin.elapsed() < STOP_TIMEOUT {
        thread::sleep(Duration::from_millis(10));
    }
    shares::wait(brokers);
    // Another heddled may start, even if a client's descriptor cannot be closed.
    drop(lock);
    eprintln!("heddled: ends; policies stay in place");
    Ok(())
}

/// Locks the state for one heddled: two would each sample and evict. Root's commands (`--direct`) may
/// interleave, since all changes take the state's own lock.
fn lock_state(options: &Options) -> anyhow::Result<File> {
    let path = options.state.join("heddled.lock");
    // A user who may read a file may lock it, and keep heddled from starting.
    let file = File::options().create(true).append(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another heddled runs on {}", options.state.display());
    }
    Ok(file)
}

fn report_attachments(engine: &Engine) -> anyhow::Result<()> {
    watch::report(&engine.collect()?);
    for attachment in engine.state().list()? {
        let (id, policy, address) = (attachment.id, attachment.policy, attachment.address);
        eprintln!(
            "heddled: attachment {id} is in place: {policy} at {address}, of user {}",
            attachment.uid
        );
    }
    Ok(())
}

/// Accepts clients until `stop` is readable.
fn accept(
    listener: &UnixListener,
    stop: &UnixStream,
    engine: &Arc<Engine>,
    permits: &Arc<ConnectionPermits>,
    closing: &mut Closing,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("no socket that listens")?;
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result.context("cannot wait for clients")?,
        };
        if !ready[1].revents().is_empty() {
            return Ok(());
        }
        match listener.accept() {
            Ok((client, _)) => {
                if let Err(client) = serve_client(client, engine, permits) {
                    closing.close(uid(&client), client);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // No descriptors left: the client waits while others may finish.
            Err(error) => {
                eprintln!("heddled: cannot accept a client: {error}");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Serves a client in its own thread, if its user has a permit left; otherwise returns the client.
fn serve_client(
    client: UnixStream,
    engine: &Arc<Engine>,
    permits: &Arc<ConnectionPermits>,
) -> Result<(), UnixStream> {
    let refused = |kind, why: &str| connection::refuse(&client, kind, why);
    let caller = match peer::caller(&client) {
        Ok(caller) => caller,
        Err(error) => {
            refused(ErrorKind::Denied, &format!("{error:#}"));
            return Err(client);
        }
    };
    let Some(permit) = permits.take(caller.uid) else {
        refused(ErrorKind::Busy, "too many connections: try again in a moment");
        return Err(client);
    };
    if client.set_nonblocking(false).is_err() {
        return Err(client);
    }
    let engine = Arc::clone(engine);
    let serve = move |fds: Vec<OwnedFd>| {
        // Released once everything that the client has sent is closed.
        let _permit = permit;
        for client in fds {
            connection::serve(&engine, &client.into(), caller);
        }
    };
    spawn_thread("client", vec![client.into()], serve).map_err(|(error, mut fds)| {
        eprintln!("heddled: cannot start a thread: {error}");
        let client = fds.swap_remove(0).into();
        connection::refuse(&client, ErrorKind::Busy, "no room for a thread: try again in a moment");
        client
    })
}

/// Returns the user of a refused client, as far as the kernel reports it.
fn uid(client: &UnixStream) -> u32 {
    socket_peercred(client).map_or(u32::MAX, |peer| peer.uid.as_raw())
}
