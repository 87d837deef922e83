//! System calls that an untrusted process can block forever, made in a separate process.
//!
//! A process that shares a socket with us can hold its lock forever, with a page that never arrives: a call that takes
//! the lock then sleeps, and no signal ends it. So a child that has nothing else of ours makes the call, and is left
//! behind if it takes too long.
//!
//! - **I1** The caller has an answer within [`PATIENCE`].
//! - **I2** A child has no descriptors but those it was given: it keeps no lock and no pipe of ours alive.
//! - **I3** The number of children left behind is limited, in total and per user.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a call may take. Usually the call takes microseconds, and the child a tenth of a millisecond.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum number of children left behind at a time.
const MAX_LEFT: usize = 64;
/// How many of them only root may leave behind.
const RESERVED_FOR_ROOT: usize = 8;
/// The maximum for one user other than root.
const MAX_LEFT_PER_USER: usize = 4;

/// A child that was left behind, and the user for whom it was created.
type LeftChild = (libc::pid_t, u32);

/// Number of children created.
static CHILDREN: AtomicU64 = AtomicU64::new(0);

static LEFT: Mutex<Vec<LeftChild>> = Mutex::new(Vec::new());

/// Runs `work` for `user` in a child that has no descriptors but `fds`, under their numbers. If it succeeds, whatever
/// it writes into its copy of `answer` is then in `answer`.
///
/// The child is forked from a process with threads, so `work` must only make system calls. If it allocates or
/// waits for a lock, it may be left behind as if it were stuck.
///
/// # Errors
/// The error of `work`, by its number; `TimedOut` if it takes longer than [`PATIENCE`], or if too many earlier children
/// did and are still there; the system's, if no child can be created.
pub fn run_in_child(
    user: u32,
    fds: &[BorrowedFd<'_>],
    answer: &mut [u8],
    work: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    within(PATIENCE, user, fds, answer, work)
}

fn within(
    patience: Duration,
    user: u32,
    fds: &[BorrowedFd<'_>],
    answer: &mut [u8],
    work: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    reap();
    if is_full(&left(), user) {
        let text = "earlier sockets still do not answer: another process keeps them locked";
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    let (reader, writer) = io::pipe()?;
    let mut kept: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    kept.push(writer.as_raw_fd());
    kept.sort_unstable();
    CHILDREN.fetch_add(1, Relaxed);
    let pid = fork(&kept, writer.as_raw_fd(), answer, work)?;
    drop(writer);
    let result = listen(reader.into(), patience, answer);
    if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        leave(pid, user);
    } else {
        // It has reported everything, or is dead: nothing can delay its end.
        wait(pid, 0);
    }
    result
}

/// Returns how many children this process has created so far.
#[doc(hidden)]
pub fn children_made() -> u64 {
    CHILDREN.load(Relaxed)
}

fn left() -> MutexGuard<'static, Vec<LeftChild>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_full(left: &[LeftChild], user: u32) -> bool {
    let own = left.iter().filter(|(_, of)| *of == user).count();
    left.len() >= MAX_LEFT
        || user != 0 && (own >= MAX_LEFT_PER_USER || left.len() >= MAX_LEFT - RESERVED_FOR_ROOT)
}

/// Collects the children that have ended.
fn reap() {
    left().retain(|(pid, _)| !wait(*pid, libc::WNOHANG));
}

/// Returns whether child `pid` has ended.
fn wait(pid: libc::pid_t, flags: i32) -> bool {
    loop {
        // SAFETY: asks for no status.
        match unsafe { libc::waitpid(pid, std::ptr::null_mut(), flags) } {
            0 => return false,
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return true,
        }
    }
}

/// Leaves a child behind: it ends as soon as its call allows.
fn leave(pid: libc::pid_t, user: u32) {
    if wait(pid, libc::WNOHANG) {
        return;
    }
    // SAFETY: the number is our child's, which was not waited for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    left().push((pid, user));
}

/// Reads the child's report: the number of its error, or 0 and the answer.
fn listen(pipe: OwnedFd, patience: Duration, answer: &mut [u8]) -> io::Result<()> {
    let mut pipe = Awaited { pipe: pipe.into(), end: Instant::now() + patience };
    let mut error = [0; 4];
    pipe.read_exact(&mut error)?;
    match i32::from_ne_bytes(error) {
        0 => pipe.read_exact(answer),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A pipe that can be read until a deadline.
struct Awaited {
    pipe: std::fs::File,
    end: Instant,
}

impl io::Read for Awaited {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let rest = self.end.saturating_duration_since(Instant::now());
        // Rounded up.
        let rest = i32::try_from(rest.as_millis()).map_or(i32::MAX, |ms| ms.saturating_add(1));
        let mut ready =
            libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is ours. `read_exact` retries after an interruption.
        match unsafe { libc::poll(&raw mut ready, 1, rest) } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let text = "the socket does not answer: another process keeps it locked";
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            _ => self.pipe.read(bytes),
        }
    }
}

/// Blocks all signals in this thread. Returns the previous mask.
fn block_signals() -> libc::sigset_t {
    // SAFETY: the sets are local.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Creates the child with all signals blocked: their handlers are the parent's.
fn fork(
    kept: &[RawFd],
    writer: RawFd,
    answer: &mut [u8],
    work: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<libc::pid_t> {
    // SAFETY: the set is local; the child has copies of all that it refers to, ends in `child`, and leaves the
    // parent's memory alone.
    unsafe {
        let parent = libc::getpid();
        let before = block_signals();
        let pid = libc::fork();
        if pid == 0 {
            child(parent, kept, writer, answer, work);
        }
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if pid < 0 { Err(error) } else { Ok(pid) }
    }
}

/// Ends the process, even when it unwinds: the frames above on the stack are the parent's.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
}

/// Makes only system calls, because other threads of the parent may have held any lock.
fn child(
    parent: libc::pid_t,
    kept: &[RawFd],
    writer: RawFd,
    answer: &mut [u8],
    work: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> ! {
    let _exit = ExitOnDrop;
    // SAFETY: takes numbers only.
    let orphan = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::getppid() != parent
    };
    if !orphan {
        let result = close_all_but(kept).and_then(|()| work(answer));
        let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let error = result.map_or_else(number, |()| 0);
        write_all(writer, &error.to_ne_bytes());
        write_all(writer, answer);
    }
    drop(_exit);
    unreachable!()
}

/// Closes all descriptors but `kept`, which is sorted.
fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    let mut first = 0;
    for fd in kept.iter().map(|fd| fd.cast_unsigned()) {
        if first < fd {
            close(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close(first, u32::MAX)
}

fn close(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the owners of these descriptors are the parent's, and do not run here.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts a thread with its own descriptor table, which contains only `fds`, which are passed to `work`, and the
/// standard descriptors. Descriptors that the thread opens later are in no other table: neither the process's nor a
/// child's. If the thread hangs while closing one, the process continues, and its end closes all but the thread's
/// descriptors.
///
/// When `work` starts, `fds` are closed in the caller's table, so the thread's copies are the last.
///
/// `work` must use no other descriptors: their numbers mean nothing in the thread.
///
/// # Errors
/// Fails if no thread can be created, or if the kernel cannot copy the table (`ENOMEM`). Returns `fds`, still open.
pub fn spawn_thread(
    name: &str,
    fds: Vec<OwnedFd>,
    work: impl FnOnce(Vec<OwnedFd>) + Send + 'static,
) -> Result<(), (io::Error, Vec<OwnedFd>)> {
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let (sender, separated) = mpsc::sync_channel(1);
    let (go, closed) = mpsc::sync_channel::<()>(1);
    let begin = move || {
        // Signal handlers write to descriptors of the process.
        block_signals();
        let result = separate_table(&numbers);
        let is_separated = result.is_ok();
        let _ = sender.send(result);
        if is_separated && closed.recv().is_ok() {
            // SAFETY: the numbers are those of this thread's copies, which nothing else uses.
            work(numbers.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }).collect());
        }
    };
    let started = thread::Builder::new().name(name.into()).spawn(begin);
    match started.and_then(|_| separated.recv().map_err(io::Error::other)?) {
        Ok(()) => {
            drop(fds);
            let _ = go.send(());
            Ok(())
        }
        Err(error) => Err((error, fds)),
    }
}

/// Gives this thread its own descriptor table, with `fds` and the standard descriptors.
fn separate_table(fds: &[RawFd]) -> io::Result<()> {
    // SAFETY: this thread uses only the descriptors that it keeps.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut kept = [&[0, 1, 2], fds].concat();
    kept.sort_unstable();
    close_all_but(&kept)
}

fn write_all(writer: RawFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the bytes are valid for their length.
        let written = unsafe { libc::write(writer, bytes.as_ptr().cast(), bytes.len()) };
        // Signals are blocked; without the parent there is nothing to report to.
        let Ok(written @ 1..) = usize::try_from(written) else { return };
        bytes = &bytes[written..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    const SHORT: Duration = Duration::from_millis(50);

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: takes numbers only.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    /// Waits for a byte from `pipe`: blocks as long as the pipe has a writer.
    fn read(pipe: RawFd) -> io::Result<()> {
        // SAFETY: the byte is ours.
        match unsafe { libc::read(pipe, [0_u8].as_mut_ptr().cast(), 1) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[test]
    fn the_answer_or_the_error_of_a_child_is_returned() {
        let mut answer = vec![0; 100_000];
        let fill = |answer: &mut [u8]| {
            answer.fill(7);
            Ok(())
        };
        run_in_child(1, &[], &mut answer, fill).unwrap();
        assert!(answer.iter().all(|byte| *byte == 7));
        let fails = |_: &mut [u8]| Err(io::Error::from_raw_os_error(libc::EXDEV));
        let error = run_in_child(1, &[], &mut answer, fails).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EXDEV));
        // SAFETY: ends the child.
        let error = run_in_child(1, &[], &mut answer, |_| unsafe { libc::_exit(1) }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(
            run_in_child(1, &[], &mut [], |_| panic!("in a child, which prints nothing")).is_err()
        );
    }

    #[test]
    fn a_child_has_the_descriptors_that_it_is_given_and_no_others() {
        let files: Vec<_> = (0..4).map(|_| std::fs::File::open("/proc/self").unwrap()).collect();
        let numbers: Vec<RawFd> = files.iter().map(|file| file.as_raw_fd()).collect();
        let mut open = [9; 4];
        let look = |open: &mut [u8]| {
            for (fd, open) in numbers.iter().zip(open) {
                *open = is_open(*fd).into();
            }
            Ok(())
        };
        run_in_child(2, &[files[3].as_fd(), files[1].as_fd()], &mut open, look).unwrap();
        assert_eq!(open, [0, 1, 0, 1]);
        assert!(numbers.iter().all(|fd| is_open(*fd)));
        assert!(
            run_in_child(2, &[], &mut [], |_| if is_open(0) {
                Ok(())
            } else {
                Err(io::ErrorKind::Other.into())
            })
            .is_err()
        );
    }

    #[test]
    fn a_child_that_is_stuck_is_left_behind_and_gone_once_it_has_ended() {
        const USER: u32 = 3;
        let own = || left().iter().filter(|(_, user)| *user == USER).count();
        let (reader, writer) = io::pipe().unwrap();
        let stuck = |patience, keep: &[BorrowedFd<'_>]| {
            within(patience, USER, keep, &mut [], |_| read(reader.as_raw_fd())).unwrap_err()
        };
        let keep = [reader.as_fd(), writer.as_fd()];
        for _ in 0..MAX_LEFT_PER_USER {
            assert_eq!(stuck(SHORT, &keep).kind(), io::ErrorKind::TimedOut);
        }
        // These end, because a signal interrupts their call.
        let begin = Instant::now();
        while own() > 0 {
            reap();
            assert!(begin.elapsed() < Duration::from_secs(60), "killed children remain");
        }
        run_in_child(USER, &[], &mut [], |_| Ok(())).unwrap();
    }

    #[test]
    fn children_left_behind_are_limited_per_user_with_room_for_root() {
        let left: Vec<LeftChild> = (0..MAX_LEFT_PER_USER).map(|_| (1, 7)).collect();
        assert!(is_full(&left, 7) && !is_full(&left[1..], 7) && !is_full(&left, 8));
        let mut left: Vec<LeftChild> =
            (100..).map(|user| (1, user)).take(MAX_LEFT - RESERVED_FOR_ROOT).collect();
        assert!(is_full(&left, 8) && !is_full(&left, 0));
        left.extend((0..RESERVED_FOR_ROOT).map(|_| (1, 0)));
        assert!(is_full(&left, 0));
    }

    #[test]
    fn an_isolated_thread_has_only_the_descriptors_it_is_given() {
        let (kept, other) = (std::fs::File::open("/").unwrap(), std::fs::File::open("/").unwrap());
        let (number, hidden) = (kept.as_raw_fd(), other.as_raw_fd());
        let (sender, answer) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        spawn_thread("test", vec![kept.into()], move |fds| {
            let of_thread = fds[0].as_raw_fd() == number && is_open(number) && !is_open(hidden);
            let new = std::fs::File::open("/").unwrap();
            // A number that the process does not use, whatever other tests open: far above.
            // SAFETY: makes a copy in this thread's table.
            let far = unsafe { libc::fcntl(new.as_raw_fd(), libc::F_DUPFD, 900) };
            sender.send((of_thread, far)).unwrap();
            let _ = wait.recv();
        })
        .unwrap();
        let (of_thread, far) = answer.recv().unwrap();
        assert!(of_thread && far >= 900);
        assert!(is_open(hidden) && !is_open(far));
        drop((done, other));
    }

    #[test]
    fn descriptors_given_to_an_isolated_thread_are_closed_here_before_it_starts() {
        let name = |fd: RawFd, table: &str| std::fs::read_link(format!("/proc/{table}/fd/{fd}"));
        let (sender, answer) = mpsc::channel();
        for _ in 0..100 {
            let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            let sender = sender.clone();
            spawn_thread("test", vec![socket.into()], move |fds| {
                let own = name(fds[0].as_raw_fd(), "thread-self").unwrap();
                let process = std::fs::read_dir("/proc/self/fd").unwrap();
                let mut names =
                    process.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
                sender.send(names.any(|name| name == own)).unwrap();
            })
            .unwrap();
            assert!(!answer.recv().unwrap(), "the process has it too");
        }
    }

    #[test]
    fn a_child_runs_with_signals_blocked() {
        let raise = |_: &mut [u8]| {
            // SAFETY: the set is local; the signal goes to the child, where it is blocked.
            unsafe {
                libc::raise(libc::SIGTERM);
            }
            Ok(())
        };
        run_in_child(4, &[], &mut [], raise).unwrap();
    }
}
