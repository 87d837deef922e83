//! What policies see of the kernel's sockets. Needs root, BPF and clang; otherwise skips, and says so.

#[path = "common/engine.rs"]
mod bench;

use bench::group;
use std::io::{PipeReader, PipeWriter, pipe};
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use heddle_bpf::Program;

use heddle_steer::hook::observe::{self, Observed};
use heddle_steer::hook::reuseport;
use heddle_steer::policy::{Maps, compile, read};
use heddle_test_support::until;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, epoll, poll};

/// Records what it sees of both sockets, and takes the first.
const SOURCE: &str = "#include <heddle.h>
HD_TABLE(seen, u64, 4);
static u32 schedule(struct hd_in *in)
{
	for (u32 k = 0; k < 2; k++) {
		u64 *length = hd_at(seen, k), *idle = hd_at(seen, 2 + k);
		if (length && idle) {
			*length = hd_qlen(k);
			*idle = hd_idle(k);
		}
	}
	return 0;
}";
/// The queue length of an absent executor: `bpf/steer/hooks/observe.c`.
const ABSENT: u64 = 0x7fff_ffff;

/// What a policy sees of two sockets.
struct Observer {
    sockets: Vec<UdpSocket>,
    maps: Maps,
    _loaded: (Program, Program),
}

impl Observer {
    /// `None`, with a message, where nothing can be attached.
    fn new() -> Option<Observer> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: attaching takes root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("seen.c");
        std::fs::write(&file, SOURCE).expect("written");
        let object = read(&compile(&file).expect("it compiles")).expect("readable");
        let sockets = group(2, "127.0.0.1:0");
        let mut maps = Maps::new();
        let root = reuseport::load_root(&mut maps).expect("a root");
        let program = reuseport::load_policy("seen", &object, &mut maps).expect("loaded");
        for (index, socket) in (0..).zip(&sockets) {
            reuseport::put_executor(&maps, index, socket.as_fd()).expect("an executor");
            let place = [(index, socket.as_fd(), Observed::Datagrams)];
            observe::put_sockets(&mut maps, &place).expect("observed");
        }
        reuseport::put_policy(&maps, &program).expect("in place");
        root.attach_reuseport(sockets[0].as_fd()).expect("attached");
        Some(Observer { sockets, maps, _loaded: (root, program) })
    }

    /// Sends a datagram, which the first socket gets behind `waiting` others, and takes them all. Returns what the
    /// policy saw before it: the lengths of both queues, and which sockets are idle.
    fn seen_behind(&self, waiting: usize) -> [u64; 4] {
        bench::ask(&self.sockets, 1);
        bench::received(&self.sockets, waiting + 1);
        let at = |index: u32| self.maps["seen"].lookup(&index.to_ne_bytes()).expect("read");
        let number =
            |index| u64::from_ne_bytes(at(index).expect("there").try_into().expect("eight"));
        [0, 1, 2, 3].map(number)
    }

    /// Which sockets are idle, when nothing waits in either.
    fn idle(&self) -> [u64; 2] {
        let [first, second, idle @ ..] = self.seen_behind(0);
        assert_eq!([first, second], [0, 0]);
        idle
    }
}

#[test]
fn a_policy_sees_nothing_of_a_closed_socket() {
    let Some(mut observer) = Observer::new() else { return };
    assert_eq!(observer.seen_behind(0), [0, 0, 0, 0], "nothing waits, and no thread");
    bench::ask(&observer.sockets, 1);
    until("a datagram waits", || observer.sockets[0].peek(&mut [0; 8]).is_ok());
    assert_eq!(observer.seen_behind(1), [1, 0, 0, 0]);
    drop(observer.sockets.pop());
    // Its memory may hold anything now, and the policy's map was not updated.
    let others = group(64, "127.0.0.1:0");
    bench::ask(&others, 64);
    // Another test that lists this process's files may hold it for a moment: then it is as empty as it was.
    until("it is gone", || {
        let [_, length, _, idle] = observer.seen_behind(0);
        assert!([0, ABSENT].contains(&length) && idle == 0, "{length} {idle}");
        length == ABSENT
    });
}

/// A thread that waits for `socket` until it is dropped.
struct Waiting {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Starts a thread that calls `wait` with a descriptor that becomes readable at the end.
    fn start(wait: impl FnOnce(PipeReader) + Send + 'static) -> Waiting {
        let (reader, stop) = pipe().expect("a pipe");
        Waiting { stop: Some(stop), thread: Some(std::thread::spawn(|| wait(reader))) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// An epoll that holds `sockets`.
fn epoll_of<'a>(sockets: impl IntoIterator<Item = BorrowedFd<'a>>) -> OwnedFd {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    for socket in sockets {
        epoll::add(&epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .expect("added");
    }
    epoll
}

#[test]
fn a_socket_is_idle_while_a_thread_waits_in_the_epoll_that_holds_it() {
    let Some(observer) = Observer::new() else { return };
    let _busy = epoll_of([observer.sockets[0].as_fd()]);
    let second = epoll_of([observer.sockets[1].as_fd()]);
    assert_eq!(observer.idle(), [0, 0], "both threads are busy");
    let waiting = Waiting::start(move |stop| {
        epoll::add(&second, &stop, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .expect("added");
        let mut events = Vec::with_capacity(1);
        epoll::wait(&second, spare_capacity(&mut events), None).expect("an event");
        // Busy: it holds its epoll and does not wait.
        std::mem::forget(second);
    });
    until("the second thread is seen to wait", || observer.idle() == [0, 1]);
    drop(waiting);
    assert_eq!(observer.idle(), [0, 0], "it is busy again");
}

#[test]
fn a_socket_is_idle_while_a_thread_waits_in_poll_beside_another_s_epoll() {
    let Some(observer) = Observer::new() else { return };
    // As after a fork: the parent's epoll holds the socket, the child polls it.
    let _other = epoll_of([observer.sockets[1].as_fd()]);
    let socket = observer.sockets[1].try_clone().expect("a copy");
    let waiting = Waiting::start(move |stop| {
        let mut both = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        poll(&mut both, None).expect("polled");
    });
    until("it is seen to wait", || observer.idle() == [0, 1]);
    drop(waiting);
    assert_eq!(observer.idle(), [0, 0]);
}
