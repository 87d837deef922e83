//! Streams that a program splits into requests.

use std::io;
use std::os::fd::BorrowedFd;

use super::program::set_option;

/// Makes the program on a stream socket process the data that has already arrived. In a socket that joins a map of
/// sockets, the kernel looks for requests only when more data arrives, so earlier data would wait for that.
pub fn notice_data(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Setting the low-water mark makes the kernel report data to the program if at least that much has arrived. 1 is
    // the default.
    set_option(socket, libc::SO_RCVLOWAT, 1)
}
