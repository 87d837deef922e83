//! Requests in TCP streams to workers: `hd_stream_*`.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd as _, IntoRawFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use heddle_steer::client::policy_of;
use heddle_steer::hook::stream::{ByteOrder, Framing, StreamError, StreamScheduler, worker_socket};
use heddle_steer::policy::{Object, check, read, set_params, shipped};
use heddle_steer::request::{Error, ErrorKind};

use crate::deploy::to_c;
use crate::error::{failed, invalid, number_of};
use crate::text::{copy, text};

/// `struct hd_framing`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HdFraming {
    length_offset: u32,
    length_size: u32,
    little_endian: u32,
    counts_header: u32,
    header: u32,
    tag: i32,
    most: u32,
}

/// `struct hd_stream`: opaque to C.
pub struct HdStream(Mutex<State>);

struct State {
    scheduler: StreamScheduler,
    /// The other ends of workers' sockets, which stay open with the stream.
    ends: Vec<OwnedFd>,
}

impl HdStream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<HdFraming> for Framing {
    fn from(given: HdFraming) -> Self {
        Self {
            length_offset: given.length_offset,
            length_size: given.length_size,
            order: if given.little_endian == 0 { ByteOrder::Big } else { ByteOrder::Little },
            counts_header: given.counts_header != 0,
            header: given.header,
            tag: u32::try_from(given.tag).ok(),
            most: if given.most == 0 { Self::MOST } else { given.most },
        }
    }
}

/// Reads a policy, and sets its parameters.
fn object(policy: &str) -> Result<Object, Error> {
    let policy = policy_of(policy)?;
    let bytes = policy.object.as_deref().or_else(|| shipped(&policy.name)).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("there is no policy `{}`", policy.name))
    })?;
    let mut object = read(bytes).map_err(|error| invalid(&error.to_string()))?;
    set_params(&mut object, &policy.parameters).map_err(|error| invalid(&error.to_string()))?;
    if policy.object.is_some() {
        check(&object).map_err(|error| invalid(&error.to_string()))?;
    }
    Ok(object)
}

fn refused(error: &StreamError) -> Error {
    let kind = match error {
        StreamError::Framing(_) => ErrorKind::Invalid,
        StreamError::Missing { .. } => ErrorKind::Unsupported,
        StreamError::Load(_) => ErrorKind::System,
    };
    Error::new(kind, error.to_string())
}

fn kernel(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::system(what, &error)
}

/// # Safety
/// `stream` is null, or from [`hd_stream_open`] and open for as long as the result is used.
unsafe fn opened<'a>(stream: *const HdStream) -> Result<&'a HdStream, Error> {
    // SAFETY: as the caller promises.
    unsafe { stream.as_ref() }.ok_or_else(|| invalid("the stream is NULL"))
}

/// See the header.
///
/// # Safety
/// `policy` is a string, and `framing` is null or points to a framing.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_stream_open(
    policy: *const c_char,
    framing: *const HdFraming,
) -> *mut HdStream {
    // SAFETY: as the caller promises.
    let given = unsafe { text(policy, "the policy").map(|policy| (policy, framing.as_ref())) };
    let open = |(policy, framing): (&str, Option<&HdFraming>)| {
        let framing = framing.ok_or_else(|| invalid("the framing is NULL"))?;
        let scheduler = StreamScheduler::new(&object(policy)?, Framing::from(*framing));
        scheduler.map_err(|error| refused(&error))
    };
    match given.and_then(open) {
        Ok(scheduler) => {
            Box::into_raw(Box::new(HdStream(Mutex::new(State { scheduler, ends: Vec::new() }))))
        }
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// `stream` is null, or from [`hd_stream_open`] and not closed; the program does not use it any more.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_stream_close(stream: *mut HdStream) {
    if !stream.is_null() {
        // SAFETY: made by `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(stream) });
    }
}

/// See the header.
///
/// # Safety
/// `stream` is null, or from [`hd_stream_open`] and open; `fd` is null, or points to a number.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_stream_worker(stream: *mut HdStream, fd: *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    let given = unsafe { opened(stream).map(|stream| (stream, fd.as_mut())) };
    number_of(given.and_then(|(stream, fd)| {
        let fd = fd.ok_or_else(|| invalid("the place for the descriptor is NULL"))?;
        let (socket, end) = worker_socket().map_err(kernel("cannot make a worker's socket"))?;
        let mut state = stream.lock();
        let index = state.scheduler.add_worker(socket.as_fd());
        let index = to_c(index.map_err(kernel("cannot add a worker"))?)?;
        state.ends.push(end);
        *fd = socket.into_raw_fd();
        Ok(index)
    }))
}

/// See the header.
///
/// # Safety
/// `stream` is null, or from [`hd_stream_open`] and open; `cookie` is null, or points to a number.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_stream_connection(
    stream: *mut HdStream,
    fd: c_int,
    cookie: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let given = unsafe { opened(stream).map(|stream| (stream, cookie.as_mut())) };
    number_of(given.and_then(|(stream, cookie)| {
        // The kernel keeps the connection and not the descriptor.
        let connection = copy(fd)?;
        let added = stream.lock().scheduler.add_connection(connection.as_fd());
        let added = added.map_err(kernel("cannot add a connection"))?;
        if let Some(cookie) = cookie {
            *cookie = added;
        }
        Ok(0)
    }))
}

/// See the header.
///
/// # Safety
/// `stream` is null, or from [`hd_stream_open`] and open; `policy` is a string.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_stream_replace(stream: *mut HdStream, policy: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let given = unsafe { opened(stream).and_then(|it| Ok((it, text(policy, "the policy")?))) };
    number_of(given.and_then(|(stream, policy)| {
        let replaced = stream.lock().scheduler.replace(&object(policy)?);
        replaced.map(|()| 0).map_err(|error| refused(&error))
    }))
}
