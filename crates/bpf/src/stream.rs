//! Streams whose requests a program cuts.

use std::io;
use std::os::fd::BorrowedFd;

use super::program::set_option;

/// Makes the program that watches a stream socket look at what the socket holds already. A socket that joins a map of
/// sockets is cut into requests from the next arrival on only, so what came before would wait for it.
pub fn notice_data(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Setting the mark makes the kernel tell the socket's watcher that there are data, if there are that many. 1 is
    // what the mark is without it.
    set_option(socket, libc::SO_RCVLOWAT, 1)
}
