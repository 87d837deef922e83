//! Having a stranger's object taken apart by a process without rights ([`crate::sandbox`]), within a time.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use heddle_steer::policy::{MAX_FILE, Object};
use heddle_steer::request::{Error, ErrorKind};

/// The user and group of nobody. Becoming it drops the supplementary groups and all capabilities.
const NOBODY: u32 = 65534;
/// How long it may take; a policy takes a few milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
/// How much it may say; an object of the largest size is some eight times itself.
const MAX_ANSWER: u64 = 64 << 20;

/// What `bytes` consist of. The answer is still a stranger's word: whoever uses it checks it.
///
/// # Errors
/// What is wrong with the bytes, or that the reading process failed.
pub fn read(bytes: &[u8]) -> Result<Object, Error> {
    if bytes.len() > MAX_FILE {
        let text = format!("an object of {} bytes; at most {MAX_FILE} are read", bytes.len());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let mut child = start()
        .map_err(|error| Error::system("cannot start the process that reads policies", &error))?;
    let answer = talk(&mut child, bytes.to_vec());
    // Whatever became of it, nothing of it stays.
    let _ = child.kill();
    let status = child.wait();
    let answer = answer.map_err(|error| {
        let ended = status.map_or_else(|error| error.to_string(), |status| status.to_string());
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
        command.gid(NOBODY).uid(NOBODY);
    }
    command.spawn()
}

fn talk(child: &mut Child, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let missing = || io::Error::other("no pipe");
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let (sender, receiver) = mpsc::channel();
    // Both end when the child does, which the caller sees to.
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
