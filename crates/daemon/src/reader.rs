//! Parses a user's object in a process without privileges ([`crate::sandbox`]), within a time limit.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use heddle_steer::policy::{MAX_FILE, Object};
use heddle_steer::request::{Error, ErrorKind};

/// Unassigned users and groups: above those given to containers, below systemd's foreign ones. A process of
/// an assigned user, user 65534 included, can be killed by that user, and traced until it has confined
/// itself.
const USERS: Range<u32> = 0x7000_0000..0x7800_0000;
/// How long it may take; a policy takes a few milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum bytes of its answer; that for an object of the largest size is about eight times the object.
const MAX_ANSWER: u64 = 64 << 20;
/// How long a killed process may take to exit. Only one that is traced or hangs in the kernel takes longer.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How many such processes there may be before no more are started.
const MAX_KILLED: usize = 16;

/// Killed processes that have not exited yet.
static KILLED: KilledChildren = KilledChildren(Mutex::new(Vec::new()));

/// Parses `bytes`. The answer is still untrusted: the caller checks it.
///
/// # Errors
/// What is wrong with the bytes, or that the reading process failed.
pub fn read(bytes: &[u8]) -> Result<Object, Error> {
    if bytes.len() > MAX_FILE {
        let text = format!("an object of {} bytes; at most {MAX_FILE} are read", bytes.len());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    KILLED.reap()?;
    let mut child = start()
        .map_err(|error| Error::system("cannot start the process that reads policies", &error))?;
    let answer = exchange(&mut child, bytes.to_vec());
    // Whatever the outcome, nothing of it stays.
    let _ = child.kill();
    let status = KILLED.end(child, EXIT_TIMEOUT);
    let answer = answer.map_err(|error| {
        let ended = status.map_or_else(|| "it does not end".into(), |status| status.to_string());
        let text =
            format!("the process that reads policies gave up on this one ({error}; {ended})");
        Error::new(ErrorKind::Denied, text)
    })?;
    serde_json::from_slice::<Result<Object, Error>>(&answer).map_err(|error| {
        Error::new(ErrorKind::Denied, format!("a policy that cannot be read: {error}"))
    })?
}

fn start() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--read-policy").env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if rustix::process::geteuid().is_root() {
        let user = random_user();
        // Changing the uid drops the supplementary groups and all capabilities. If the namespace has no such
        // user, this fails.
        command.gid(user).uid(user);
    }
    command.spawn()
}

/// A different one each time, so that concurrent readers cannot affect each other either.
fn random_user() -> u32 {
    let random = RandomState::new().hash_one(0);
    let offset = random % u64::from(USERS.end - USERS.start);
    USERS.start + u32::try_from(offset).unwrap_or(0)
}

/// Killed children that must still be reaped.
struct KilledChildren(Mutex<Vec<Child>>);

impl KilledChildren {
    /// Reaps those that have exited.
    ///
    /// # Errors
    /// If too many have not.
    fn reap(&self) -> Result<(), Error> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if left.len() < MAX_KILLED {
            return Ok(());
        }
        let text = format!(
            "{} processes that read policies were killed and do not end: what traces them? (`TracerPid` \
             in /proc/{}/status)",
            left.len(),
            left[0].id()
        );
        Err(Error::new(ErrorKind::System, text))
    }

    /// Returns how `child` ended; `None` if it has not within `limit`, and will be reaped later.
    fn end(&self, mut child: Child, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match child.try_wait() {
                Ok(None) if start.elapsed() < limit => thread::sleep(Duration::from_micros(200)),
                Ok(None) => break,
                ended => return ended.ok().flatten(),
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        None
    }
}

fn exchange(child: &mut Child, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let missing = || io::Error::other("no pipe");
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let (sender, receiver) = mpsc::channel();
    // Both threads end when the child does, which the caller ensures.
    thread::Builder::new().name("policy-in".into()).spawn(move || input.write_all(&bytes))?;
    thread::Builder::new().name("policy-out".into()).spawn(move || {
        let mut answer = Vec::new();
        let result = output.take(MAX_ANSWER + 1).read_to_end(&mut answer).map(|_| answer);
        let _ = sender.send(result);
    })?;
    let answer = receiver.recv_timeout(LIMIT).map_err(|_| io::ErrorKind::TimedOut)??;
    match answer.len() as u64 {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length if length > MAX_ANSWER => Err(io::Error::other("an answer without end")),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().expect("started")
    }

    #[test]
    fn a_killed_child_is_kept_until_it_has_exited() {
        let left = KilledChildren(Mutex::default());
        let soon = Duration::from_millis(1);
        for _ in 0..MAX_KILLED {
            assert_eq!(left.reap(), Ok(()));
            assert_eq!(left.end(sleeper(), soon), None);
        }
        let error = left.reap().expect_err("too many").text;
        assert!(error.contains("16 processes") && error.contains("TracerPid"), "{error}");
        left.0.lock().expect("whole").iter_mut().for_each(|child| child.kill().expect("killed"));
        while left.reap().is_err() || !left.0.lock().expect("whole").is_empty() {
            thread::sleep(soon);
        }
        let mut child = sleeper();
        child.kill().expect("killed");
        assert!(left.end(child, Duration::from_secs(60)).is_some_and(|status| !status.success()));
    }

    #[test]
    fn reader_uids_are_random_and_within_their_range() {
        let users: std::collections::BTreeSet<u32> = (0..100).map(|_| random_user()).collect();
        assert!(users.len() > 90 && users.iter().all(|user| USERS.contains(user)), "{users:x?}");
    }
}
