//! A fork, as a program may make one.

use super::server::ECHO;
use heddle::net::TcpListener;

/// Forks a child that drops a listener of its parent, as it would at its end, and waits for it.
pub fn child_that_drops_its_sockets() {
    let listener = TcpListener::bind(("::", ECHO + 100)).unwrap();
    // SAFETY: the child drops one socket, and ends without destructors.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        drop(listener);
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let ended = heddle::blocking(|| unsafe { libc::waitpid(pid, &raw mut status, 0) });
    assert_eq!((ended, status), (pid, 0));
    println!("port={}", listener.local_addr().unwrap().port());
    heddle::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            heddle::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
}
