//! What hyper asks of a runtime, so that its servers and clients run on this one: an executor, a timer, and streams.
//!
//! ```
//! use heddle_rt::hyper::{Executor, Io, Timer};
//! use heddle_rt::net::{TcpListener, TcpStream};
//! use hyper::{Request, Response, body::Incoming, client, server, service::service_fn};
//!
//! async fn answer(_: Request<Incoming>) -> Result<Response<String>, std::convert::Infallible> {
//!     Ok(Response::new("hello".to_owned()))
//! }
//!
//! let runtime = heddle_rt::RuntimeBuilder::new().policy("two-queue:quantum=100us").build()?;
//! let status = runtime.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let mut server = server::conn::http1::Builder::new();
//!     server.timer(Timer);
//!     drop(heddle_rt::futures::spawn(async move {
//!         while let Ok((stream, _)) = listener.accept_async().await {
//!             // A task for each connection.
//!             drop(heddle_rt::futures::spawn(
//!                 server.serve_connection(Io(stream), service_fn(answer)),
//!             ));
//!         }
//!     }));
//!     let stream = TcpStream::connect_async(address).await?;
//!     let (mut sender, connection) = client::conn::http1::handshake(Io(stream)).await?;
//!     drop(heddle_rt::futures::spawn(connection));
//!     let request = Request::get("/").body(String::new())?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sender.send_request(request).await?.status())
//! })?;
//! assert_eq!(status, 200);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! With hyper-util, `server::conn::auto::Builder::new(Executor)` serves HTTP/1 and HTTP/2, and `TowerToHyperService`
//! makes a service of axum's `Router` or tonic's `Routes`: those run here without a runtime of tokio's.

use crate::futures::spawn;
use crate::io::{Polled, ReadUninit};
use crate::net::TcpStream;
use crate::net::unix::UnixStream;
use crate::poller::Interest;
use crate::sleep_future::{Sleep, sleep_until_async};
use crate::time::now;
use heddle_core::Ns;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Runs what hyper spawns as async tasks of the caller's runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(spawn(future));
    }
}

/// hyper's timeouts, by the runtime's timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

/// A [`Sleep`] of hyper's.
struct HyperSleep(Sleep);

impl HyperSleep {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut Sleep> {
        // SAFETY: the only field is pinned with this.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }
    }
}

impl Future for HyperSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.inner().poll(cx)
    }
}

impl hyper::rt::Sleep for HyperSleep {}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(sleep_until_async(now() + Ns::from(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(sleep) => {
                let left = new_deadline.saturating_duration_since(Instant::now());
                sleep.inner().reset(now() + Ns::from(left));
            }
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

/// A stream, as hyper reads and writes it.
#[derive(Debug)]
pub struct Io<S>(pub S);

/// Streams that are made of a [`Polled`].
trait Stream: Unpin {
    type Io: ReadUninit;
    fn polled(&self) -> &Polled<Self::Io>;
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;
    fn poll_write_all(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>])
    -> Poll<io::Result<usize>>;
    fn end_writing(&self) -> io::Result<()>;
}

macro_rules! impl_stream {
    ($($type:ty: $std:ty),*) => {$(
        impl Stream for $type {
            type Io = $std;

            fn polled(&self) -> &Polled<$std> {
                &self.0
            }

            fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                <$type>::poll_write(self, cx, buf)
            }

            fn poll_write_all(
                &self,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_vectored(cx, bufs)
            }

            fn end_writing(&self) -> io::Result<()> {
                self.shutdown(std::net::Shutdown::Write)
            }
        }
    )*};
}

impl_stream!(TcpStream: crate::net::StreamIo, UnixStream: std::os::unix::net::UnixStream);

impl<S: Stream> Read for Io<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: nothing is made uninitialised in it.
        let unfilled = unsafe { buf.as_mut() };
        let read =
            ready!(self.0.polled().poll_io(Interest::Read, cx, |io| { io.read_uninit(unfilled) }))?;
        // SAFETY: the system has written so many bytes.
        unsafe { buf.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> Write for Io<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Stream::poll_write(&self.0, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.end_writing())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_all(cx, bufs)
    }
}
