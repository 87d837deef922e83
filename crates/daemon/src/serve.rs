//! heddled from start to end.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use heddle_core::Ns;
use heddle_steer::engine::Engine;
use heddle_steer::request::ErrorKind;
use heddle_sys::timer::ThreadTimer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGALRM, SIGINT, SIGTERM};

use crate::connection;
use crate::listen::listen;
use crate::notify::notify;
use crate::options::Options;
use crate::peer;
use crate::places::Places;
use crate::reader;
use crate::watch;

/// How long requests that are being served may take when heddled is told to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long clients wait while one is refused.
const CLOSING: Ns = Ns(100_000_000);

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let fds = raise_descriptors();
    let (told, teller) = UnixStream::pair().context("no pair of sockets")?;
    for signal in [SIGTERM, SIGINT] {
        let teller = teller.try_clone().context("cannot copy a descriptor")?;
        signal_hook::low_level::pipe::register(signal, teller).context("no signal handler")?;
    }
    let engine = Engine::new(options.state(), Box::new(reader::read))?;
    let _alone = alone(options)?;
    let engine = Arc::new(engine.with_quota(options.quota()));
    // What is there is known, and watched, before anybody is heard.
    found(&engine)?;
    watch::start(Arc::clone(&engine), options).context("cannot start the watch")?;
    let listener = listen(options)?;
    notify("READY=1");
    let places = Places::new(options.max_connections, fds);
    accept(&listener.socket, &told, &engine, &places)?;
    notify("STOPPING=1");
    drop(listener);
    let begin = Instant::now();
    while places.together() > 0 && begin.elapsed() < FAREWELL {
        thread::sleep(Duration::from_millis(10));
    }
    eprintln!("heddled: ends; policies stay in place");
    Ok(())
}

/// As many descriptors as this process may have; how many.
fn raise_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // What is not raised is counted with.
    let raised = Rlimit { current: limit.maximum, ..limit };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    now.current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// One heddled for a state: two would each sample and evict. Commands of root's (`--direct`) may come in between, for
/// all that changes the state waits for the state's lock.
fn alone(options: &Options) -> anyhow::Result<File> {
    let path = options.state.join("heddled.lock");
    // Whoever may read a file may lock it, and keep heddled from starting.
    let file = File::options().create(true).append(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another heddled runs on {}", options.state.display());
    }
    Ok(file)
}

fn found(engine: &Engine) -> anyhow::Result<()> {
    watch::tell(&engine.collect()?);
    for attachment in engine.state().list()? {
        let (id, policy, address) = (attachment.id, attachment.policy, attachment.address);
        eprintln!(
            "heddled: attachment {id} is in place: {policy} at {address}, of user {}",
            attachment.uid
        );
    }
    Ok(())
}

/// Takes clients until `told` says something.
fn accept(
    listener: &UnixListener,
    told: &UnixStream,
    engine: &Arc<Engine>,
    places: &Arc<Places>,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("no socket that listens")?;
    // Descriptors that a client has sent are closed with its connection, and to close a stranger's socket may take as long as
    // he likes (SO_LINGER). A signal ends that.
    signal_hook::flag::register(SIGALRM, Arc::default()).context("no signal handler")?;
    let alarm = ThreadTimer::new(SIGALRM).context("no timer")?;
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(told, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result.context("cannot wait for clients")?,
        };
        if !ready[1].revents().is_empty() {
            return Ok(());
        }
        match listener.accept() {
            Ok((client, _)) => {
                alarm.repeat(CLOSING);
                welcome(client, engine, places);
                alarm.stop();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // No descriptors left: the client waits, and others may go meanwhile.
            Err(error) => {
                eprintln!("heddled: cannot accept a client: {error}");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Serves a client in a thread of its own, if its user has not too many.
fn welcome(client: UnixStream, engine: &Arc<Engine>, places: &Arc<Places>) {
    let caller = match peer::caller(&client) {
        Ok(caller) => caller,
        Err(error) => return connection::refuse(&client, ErrorKind::Denied, &format!("{error:#}")),
    };
    let Some(place) = places.take(caller.uid) else {
        let why = "too many connections: try again in a moment";
        return connection::refuse(&client, ErrorKind::Busy, why);
    };
    if client.set_nonblocking(false).is_err() {
        return;
    }
    let engine = Arc::clone(engine);
    let serve = move || connection::serve(&engine, &client, caller, place);
    if let Err(error) = thread::Builder::new().name("client".into()).spawn(serve) {
        eprintln!("heddled: cannot start a thread: {error}");
    }
}
