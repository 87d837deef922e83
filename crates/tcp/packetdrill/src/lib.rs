//! packetdrill's interface (`packetdrill.h`, 30 functions) over `heddle-tcp` in virtual time.
//!
//! packetdrill calls from two threads at most: one runs the script, the other a call that blocks. A lock is enough.

mod addresses;
mod host;
mod values;

use addresses::{read_address, write_address};
use heddle_core::Ns;
use heddle_tcp::{ConnectionId, Shutdown, State};
use host::Host;
use libc::{
    c_char, c_int, c_long, c_longlong, c_void, size_t, sockaddr, socklen_t, ssize_t, timeval,
};
use std::ffi::CStr;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Duration;
use values::{errno, events, option};

type User = *mut c_void;
type Call = *const c_void;

/// The table that packetdrill wants filled, in its order. Functions that are not served are null but for those that it
/// may call in any script.
#[repr(C)]
pub struct Interface {
    userdata: User,
    calls: [Call; 32],
}

static HOST: Mutex<Option<Host>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut Host) -> R) -> R {
    let mut host = HOST.lock().expect("no call panics");
    f(host.as_mut().expect("packetdrill initialises first"))
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the pointer is to this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Tries `f` until it does not block, if the descriptor blocks. The script's thread lets time pass meanwhile.
fn wait<R>(fd: c_int, mut f: impl FnMut(&mut Host) -> Result<R, c_int>) -> Result<R, c_int> {
    loop {
        let (result, blocks) = with(|host| (f(host), host.is_blocking(fd)));
        match result {
            Err(libc::EAGAIN) if blocks => std::thread::sleep(Duration::from_micros(200)),
            result => return result,
        }
    }
}

fn answer(result: Result<usize, c_int>) -> ssize_t {
    result.map_or_else(|errno| fail(errno) as ssize_t, |count| count as ssize_t)
}

fn status(result: Result<(), c_int>) -> c_int {
    result.map_or_else(fail, |()| 0)
}

fn id(host: &Host, fd: c_int) -> Result<ConnectionId, c_int> {
    host.connection(fd).ok_or(libc::ENOTCONN)
}

extern "C" fn free(_: User) {}

extern "C" fn socket(_: User, domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    if domain == libc::AF_INET { with(Host::open) } else { fail(libc::EAFNOSUPPORT) }
}

extern "C" fn bind(_: User, fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: packetdrill passes an address with its length.
    let Some(address) = (unsafe { read_address(address, length) }) else {
        return fail(libc::EINVAL);
    };
    with(|host| host.bind(fd, address));
    0
}

extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    // Linux takes one connection more than the backlog.
    with(|host| host.listen(fd, backlog as usize + 1)).map_or_else(|| fail(libc::EINVAL), |()| 0)
}

extern "C" fn accept(_: User, fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match wait(fd, |host| host.accept(fd).ok_or(libc::EAGAIN)) {
        Ok((new, remote)) => {
            // SAFETY: packetdrill passes room for an address, or null.
            unsafe { write_address(remote, address, length) };
            new
        }
        Err(errno) => fail(errno),
    }
}

extern "C" fn connect(_: User, fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: packetdrill passes an address with its length.
    let Some(remote) = (unsafe { read_address(address, length) }) else {
        return fail(libc::EINVAL);
    };
    let known = with(|host| host.connection(fd));
    let Some(id) = known.or_else(|| with(|host| host.connect(fd, remote))) else {
        return fail(libc::EINVAL);
    };
    let is_up = |host: &mut Host| match host.stack.info(id).map(|info| info.state) {
        Ok(State::SynSent | State::SynReceived) => Err(libc::EAGAIN),
        Ok(State::Closed) => {
            Err(host.stack.take_error(id).ok().flatten().map_or(libc::ECONNABORTED, errno))
        }
        _ => Ok(()),
    };
    match wait(fd, is_up) {
        Err(libc::EAGAIN) => fail(if known.is_some() { libc::EALREADY } else { libc::EINPROGRESS }),
        result => status(result),
    }
}

extern "C" fn read(_: User, fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
    if to.is_null() {
        return fail(libc::EFAULT) as ssize_t;
    }
    // SAFETY: packetdrill passes `count` bytes.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), count) };
    answer(wait(fd, |host| {
        let id = id(host, fd)?;
        host.read(id, to).map_err(errno)
    }))
}

extern "C" fn recv(
    user: User,
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    _flags: c_int,
) -> ssize_t {
    read(user, fd, to, count)
}

extern "C" fn write(_: User, fd: c_int, from: *const c_void, count: size_t) -> ssize_t {
    if from.is_null() {
        return fail(libc::EFAULT) as ssize_t;
    }
    // SAFETY: packetdrill passes `count` bytes.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count) };
    let mut done = 0;
    // A blocking write ends when all is taken.
    let result = wait(fd, |host| {
        let id = id(host, fd)?;
        done += host.write(id, &from[done..]).map_err(errno)?;
        if done < count && host.is_blocking(fd) { Err(libc::EAGAIN) } else { Ok(()) }
    });
    match result {
        Err(errno) if done == 0 => fail(errno) as ssize_t,
        _ => done as ssize_t,
    }
}

extern "C" fn send(
    user: User,
    fd: c_int,
    from: *const c_void,
    count: size_t,
    _flags: c_int,
) -> ssize_t {
    write(user, fd, from, count)
}

// In C the last argument of these two is variadic; on x86-64 and AArch64 a word arrives the same way.
extern "C" fn fcntl(_: User, fd: c_int, command: c_int, argument: c_long) -> c_int {
    match command {
        libc::F_SETFL => {
            with(|host| host.set_nonblocking(fd, argument as c_int & libc::O_NONBLOCK != 0))
        }
        libc::F_GETFL if with(|host| !host.is_blocking(fd)) => {
            return libc::O_RDWR | libc::O_NONBLOCK;
        }
        libc::F_GETFL => return libc::O_RDWR,
        _ => {}
    }
    0
}

extern "C" fn ioctl(_: User, fd: c_int, request: libc::c_ulong, value: *mut c_int) -> c_int {
    if request != libc::FIONREAD || value.is_null() {
        return fail(libc::EINVAL);
    }
    let count = with(|host| Ok(host.stack.readable(id(host, fd)?).unwrap_or(0)));
    match count {
        Ok(count) => {
            // SAFETY: packetdrill passes a place for the number.
            unsafe { value.write(count as c_int) };
            0
        }
        Err(errno) => fail(errno),
    }
}

extern "C" fn close(_: User, fd: c_int) -> c_int {
    with(|host| host.close(fd)).map_or_else(|| fail(libc::EBADF), |()| 0)
}

extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        _ => Shutdown::Both,
    };
    status(with(|host| host.shutdown(id(host, fd)?, how).map_err(errno)))
}

extern "C" fn getsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let Some(bytes) = with(|host| option(host, fd, level, name)) else {
        return fail(libc::ENOPROTOOPT);
    };
    // SAFETY: packetdrill passes a place for the value and its length.
    unsafe {
        let count = bytes.len().min(*length as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count);
        *length = count as socklen_t;
    }
    0
}

extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    _length: socklen_t,
) -> c_int {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
            // SAFETY: the value of this option is a word.
            let is_set = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            status(with(|host| host.set_nodelay(id(host, fd)?, is_set).map_err(errno)))
        }
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_SNDBUF | libc::SO_RCVBUF) => 0,
        _ => fail(libc::ENOPROTOOPT),
    }
}

extern "C" fn poll(_: User, fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    // SAFETY: packetdrill passes `count` entries.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let look = |host: &mut Host| {
        for entry in fds.iter_mut() {
            entry.revents = events(host, entry.fd) & (entry.events | libc::POLLHUP | libc::POLLERR);
        }
        fds.iter().filter(|entry| entry.revents != 0).count() as c_int
    };
    let mut look = look;
    loop {
        match with(&mut look) {
            0 if timeout != 0 => std::thread::sleep(Duration::from_micros(200)),
            ready => return ready,
        }
    }
}

extern "C" fn netdev_send(_: User, packet: *const c_void, count: size_t) -> c_int {
    // SAFETY: packetdrill passes `count` bytes.
    let packet = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), count) };
    with(|host| host.inject(packet));
    0
}

extern "C" fn netdev_receive(
    _: User,
    to: *mut c_void,
    count: *mut size_t,
    time: *mut c_longlong,
) -> c_int {
    let packet = with(Host::next_packet);
    // SAFETY: packetdrill passes room for `count` bytes and places for the numbers.
    unsafe {
        let Some((at, bytes)) = packet else {
            *count = 0;
            return 0;
        };
        let length = bytes.len().min(*count);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), length);
        (*count, *time) = (length, (at.0 / 1000) as c_longlong);
    }
    0
}

extern "C" fn usleep(_: User, time: libc::useconds_t) -> c_int {
    with(|host| host.pass(Ns::from_us(u64::from(time))));
    0
}

extern "C" fn gettimeofday(_: User, time: *mut timeval, _zone: *mut c_void) -> c_int {
    // packetdrill spins on the clock, so each look at it takes a microsecond.
    let now = with(|host| {
        host.pass(Ns::from_us(1));
        host.now()
    });
    let (tv_sec, tv_usec) = ((now.0 / 1_000_000_000) as _, (now.0 / 1000 % 1_000_000) as _);
    // SAFETY: packetdrill passes a place for the time.
    unsafe { time.write(timeval { tv_sec, tv_usec }) };
    0
}

extern "C" fn not_served() -> c_long {
    c_long::from(fail(libc::ENOSYS))
}

/// Called by packetdrill first. `flags` is the local address.
///
/// # Safety
/// `interface` must be valid for writing, `flags` null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    // SAFETY: it is a C string.
    let text = (!flags.is_null()).then(|| unsafe { CStr::from_ptr(flags) }.to_string_lossy());
    let local = text.and_then(|text| text.parse().ok()).unwrap_or(Ipv4Addr::new(192, 168, 0, 1));
    *HOST.lock().expect("no call panics") = Some(Host::new(local));
    let none = not_served as Call;
    let calls = [
        free as Call,
        socket as Call,
        bind as Call,
        listen as Call,
        accept as Call,
        connect as Call,
        read as Call,
        none,
        recv as Call,
        none,
        none,
        write as Call,
        none,
        send as Call,
        none,
        none,
        fcntl as Call,
        ioctl as Call,
        close as Call,
        shutdown as Call,
        getsockopt as Call,
        setsockopt as Call,
        poll as Call,
        netdev_send as Call,
        netdev_receive as Call,
        usleep as Call,
        gettimeofday as Call,
        none,
        none,
        none,
        none,
        none,
    ];
    // SAFETY: the caller says so.
    unsafe { interface.write(Interface { userdata: std::ptr::null_mut(), calls }) };
}
