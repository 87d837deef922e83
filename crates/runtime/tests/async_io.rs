//! Sockets, pipes and other descriptors, as futures and as `AsyncRead` and `AsyncWrite`.

mod common;

use common::{runtime, two_workers};
use futures::executor::ThreadPool;
use heddle_rt::io::{Pollable, pipe};
use heddle_rt::net::unix::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use heddle_rt::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use heddle_rt::{block_on, spawn};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Whether it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Flag {
    fn wait(&self) {
        common::wait_until(|| self.0.swap(false, Ordering::AcqRel));
    }
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future in a thread, in a task and on another library's executor.
fn everywhere<F: Future<Output = io::Result<()>> + Send + 'static>(
    make: impl Fn() -> F + Send + Clone + 'static,
) {
    block_on(make()).unwrap();
    futures::executor::block_on(make()).unwrap();
    let theirs = make.clone();
    two_workers("work-stealing:quantum=100us").run(move || block_on(theirs()).unwrap());
    let (done, wait) = std::sync::mpsc::channel();
    let pool = ThreadPool::builder().pool_size(2).create().unwrap();
    for _ in 0..4 {
        let (future, done) = (make(), done.clone());
        pool.spawn_ok(async move { done.send(future.await).unwrap() });
    }
    wait.iter().take(4).for_each(|result| result.unwrap());
}

async fn read_all(stream: &TcpStream, mut into: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut buf = [0; 1000];
    loop {
        match stream.read_async(&mut buf).await? {
            0 => return Ok(into),
            read => into.extend_from_slice(&buf[..read]),
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (head, tail) = bytes.split_at(bytes.len() / 2);
        let sent = stream.write_vectored_async(&[IoSlice::new(head), IoSlice::new(tail)]).await?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

#[test]
fn tcp_streams_carry_bytes_between_futures() {
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        // More than the buffers of both ends hold.
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
        let sent = data.clone();
        let (client, server) =
            futures::join!(TcpStream::connect_async(addr), listener.accept_async());
        let (client, (server, peer)) = (client?, server?);
        assert_eq!(peer, client.local_addr()?);
        let sends = async {
            write_all(&client, &sent).await?;
            client.shutdown(Shutdown::Write)
        };
        let mut first = [0; 3];
        let receives = async {
            server.peek_async(&mut first).await?;
            read_all(&server, Vec::new()).await
        };
        let (sends, received) = futures::join!(sends, receives);
        sends?;
        assert!(received? == data);
        assert_eq!(first[0], data[0]);
        Ok(())
    });
}

#[test]
fn a_name_is_looked_up_and_errors_are_returned() {
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let by_name = TcpStream::connect_async(("localhost", port)).await?;
        assert_eq!(by_name.peer_addr()?.port(), port);
        TcpStream::connect_async(format!("localhost:{port}")).await?;
        TcpStream::connect_async(&[listener.local_addr()?][..]).await?;
        drop(listener);
        let refused = TcpStream::connect_async(("127.0.0.1", port)).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let invalid = TcpStream::connect_async("127.0.0.1").await.unwrap_err();
        assert_eq!(invalid.kind(), io::ErrorKind::InvalidInput);
        assert!(TcpStream::connect_async("name.invalid:1").await.is_err());
        Ok(())
    });
}

#[test]
fn many_futures_accept_on_one_listener() {
    const CLIENTS: usize = 60;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let addr = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let accept = |each: usize| {
        let (listener, accepted) = (listener.clone(), accepted.clone());
        async move {
            for round in 0..each {
                // Some give up.
                if round % 2 == 0
                    && let Poll::Ready(stream) = poll_once(listener.accept_async())
                {
                    stream.unwrap();
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                listener.accept_async().await.unwrap();
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let accept = accept(CLIENTS);
            std::thread::spawn(move || futures::executor::block_on(accept))
        })
        .collect();
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let accept = accept(CLIENTS);
            spawn(move || block_on(accept))
        })
        .collect();
    let clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(addr).unwrap()).collect();
    common::wait_until(|| accepted.load(Ordering::Relaxed) >= CLIENTS);
    assert_eq!(accepted.load(Ordering::Relaxed), CLIENTS);
    // The rest of them end with the test.
    drop((threads, tasks, clients));
}

#[test]
fn datagrams_reach_futures() {
    everywhere(|| async {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let mut buf = [0; 16];
        let mut receive = Box::pin(b.recv_from_async(&mut buf));
        assert!(poll_once(receive.as_mut()).is_pending());
        assert_eq!(a.send_to_async(b"first", b.local_addr()?).await?, 5);
        let (len, peer) = receive.await?;
        assert_eq!((&buf[..len], peer), (&b"first"[..], a.local_addr()?));
        b.connect_async(("localhost", a.local_addr()?.port())).await?;
        b.send_async(b"second").await?;
        assert_eq!(a.peek_from_async(&mut buf).await?.0, 6);
        assert_eq!(a.recv_async(&mut buf).await?, 6);

        let (a, b) = UnixDatagram::pair()?;
        // Until the queue of the peer is full.
        let mut sent = 0;
        while let Poll::Ready(len) = poll_once(a.send_async(b"datagram")) {
            assert_eq!(len?, 8);
            sent += 1;
        }
        let mut one_more = Box::pin(a.send_async(b"the last"));
        assert!(poll_once(one_more.as_mut()).is_pending());
        for _ in 0..sent {
            assert_eq!(b.recv_async(&mut buf).await?, 8);
        }
        one_more.await?;
        assert_eq!(b.peek_async(&mut buf).await?, 8);
        assert_eq!(b.recv_from_async(&mut buf).await?.0, 8);
        assert_eq!(&buf[..8], b"the last");
        Ok(())
    });
}

/// An abstract name that no other test uses.
fn name() -> UnixAddr {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let name = format!("heddle-async-io-{}-{number}", std::process::id());
    UnixAddr::from_abstract_name(name).unwrap()
}

#[test]
fn unix_sockets_connect_and_wait_for_room() {
    everywhere(|| async {
        let addr = name();
        let listener = UnixListener::bind_addr(&addr)?;
        let mut clients = Vec::new();
        // Until the backlog is full.
        let mut waits = loop {
            let mut connect = Box::pin(UnixStream::connect_addr_async(&addr));
            match poll_once(connect.as_mut()) {
                Poll::Ready(client) => clients.push(client?),
                Poll::Pending => break connect,
            }
            if clients.len() == 10_000 {
                // The system's backlog has no practical limit.
                return Ok(());
            }
        };
        assert!(poll_once(waits.as_mut()).is_pending());
        let (server, _) = listener.accept_async().await?;
        let client = waits.await?;
        clients[0].write_async(b"from the first").await?;
        let mut buf = [0; 14];
        assert_eq!(server.peek_async(&mut buf).await?, 14);
        assert_eq!(server.read_async(&mut buf).await?, 14);
        drop(client);

        // To a full queue of a socket that is not connected.
        let (to, from) = (UnixDatagram::bind_addr(&name())?, UnixDatagram::unbound()?);
        let addr = to.local_addr()?;
        let mut sends = loop {
            let mut send = Box::pin(from.send_to_addr_async(b"x", &addr));
            if poll_once(send.as_mut()).is_pending() {
                break send;
            }
        };
        assert!(poll_once(sends.as_mut()).is_pending());
        assert_eq!(to.recv_async(&mut buf).await?, 1);
        assert_eq!(sends.await?, 1);
        Ok(())
    });
}

#[test]
fn a_pollable_is_ready_for_futures() {
    everywhere(|| async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
        let ours = Pollable::new(ours)?;
        ours.set_nonblocking(true)?;
        ours.writable_async().await?;
        let mut readable = Box::pin(ours.readable_async());
        assert!(poll_once(readable.as_mut()).is_pending());
        theirs.write_all(b"ready")?;
        readable.await?;
        ours.readable_async().await?;
        let mut text = [0; 9];
        assert_eq!(ours.read_with_async(|mut io| io.read(&mut text)).await?, 5);
        ours.write_with_async(|mut io| io.write(b"back")).await?;
        theirs.read_exact(&mut text[..4])?;
        assert_eq!(&text[..4], b"back");
        drop(theirs);
        let end = poll_fn(|cx| ours.poll_read_with(cx, |mut io| io.read(&mut [0])));
        assert_eq!(end.await?, 0);
        let broken = poll_fn(|cx| ours.poll_write_with(cx, |mut io| io.write(b"x"))).await;
        assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        Ok(())
    });
}

#[derive(Clone, Debug)]
enum Op {
    /// The peer sends so many bytes.
    Send(usize),
    /// Reads at most so many bytes in a poll, with this one of three wakers.
    Poll(usize, usize),
    /// A future of an `async` function is polled once and dropped.
    PollFuture(usize),
    /// Waits until the waker of the latest pending poll is called; skipped if nothing is there.
    Await,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1usize..20).prop_map(Op::Send),
        4 => (1usize..30, 0usize..3).prop_map(|(len, waker)| Op::Poll(len, waker)),
        1 => (1usize..30).prop_map(Op::PollFuture),
        3 => Just(Op::Await),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn polls_of_a_socket_pair_miss_no_edge(ops in prop::collection::vec(op(), 1..50)) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let flags: [Arc<Flag>; 3] = Default::default();
        let wakers = flags.clone().map(Waker::from);
        // Bytes under way, and the flag of the latest pending poll since which there was none.
        let (mut sent, mut next) = (VecDeque::new(), 0u8);
        let mut waits: Option<usize> = None;
        for op in ops {
            let mut buf = [0; 30];
            let read = match op {
                Op::Send(len) => {
                    let bytes: Vec<u8> = (0..len).map(|_| { next = next.wrapping_add(1); next }).collect();
                    (&theirs).write_all(&bytes).unwrap();
                    sent.extend(bytes);
                    continue;
                }
                Op::Poll(len, waker) => {
                    flags.iter().for_each(|flag| flag.0.store(false, Ordering::Release));
                    let read = ours.poll_read(&mut Context::from_waker(&wakers[waker]), &mut buf[..len]);
                    waits = read.is_pending().then_some(waker);
                    read
                }
                Op::PollFuture(len) => poll_once(ours.read_async(&mut buf[..len])),
                Op::Await if waits.is_some() && !sent.is_empty() => {
                    flags[waits.take().unwrap()].wait();
                    continue;
                }
                Op::Await => continue,
            };
            match read {
                // The edge may not have been fetched yet: `Await` waits for it.
                Poll::Pending => {}
                Poll::Ready(read) => {
                    let read = read.unwrap();
                    let expected: Vec<u8> = sent.drain(..read).collect();
                    assert_eq!(&buf[..read], &expected[..]);
                }
            }
        }
        drop(theirs);
        // Whatever happened before, the rest and the end are read.
        let mut buf = [0; 7];
        loop {
            let read = block_on(poll_fn(|cx| ours.poll_read(cx, &mut buf))).unwrap();
            assert_eq!(&buf[..read], &sent.drain(..read).collect::<Vec<u8>>()[..]);
            if read == 0 { break; }
        }
        assert!(sent.is_empty());
    }
}

/// A blocking reader, a future and a poll share the direction of one socket: each datagram reaches one of them, and
/// each gets its end.
#[test]
fn all_kinds_of_waiters_share_a_direction() {
    const DATAGRAMS: usize = 5_000;
    for _ in 0..3 {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let pollable = Arc::new(
            Pollable::new(std::os::unix::net::UnixDatagram::from(std::os::fd::OwnedFd::from(ours)))
                .unwrap(),
        );
        pollable.set_nonblocking(true).unwrap();
        let received = Arc::new(AtomicUsize::new(0));
        let receive = |socket: &std::os::unix::net::UnixDatagram| socket.recv(&mut [0; 8]);
        let count = |received: &AtomicUsize, len: usize| {
            if len == 1 {
                received.fetch_add(1, Ordering::Relaxed);
            }
            len == 1
        };
        let (p, r) = (pollable.clone(), received.clone());
        let blocking = spawn(move || while count(&r, p.read_with(receive).unwrap()) {});
        let (p, r) = (pollable.clone(), received.clone());
        let thread = std::thread::spawn(move || while count(&r, p.read_with(receive).unwrap()) {});
        let (p, r) = (pollable.clone(), received.clone());
        let future = spawn(move || {
            block_on(async { while count(&r, p.read_with_async(receive).await.unwrap()) {} });
        });
        let (p, r) = (pollable.clone(), received.clone());
        let polled = std::thread::spawn(move || {
            let read = || poll_fn(|cx| p.poll_read_with(cx, receive));
            futures::executor::block_on(async { while count(&r, read().await.unwrap()) {} });
        });
        for _ in 0..DATAGRAMS {
            theirs.send(b"x").unwrap();
        }
        // One of two bytes for each of them.
        for _ in 0..4 {
            theirs.send(b"xx").unwrap();
        }
        blocking.join().unwrap();
        future.join().unwrap();
        thread.join().unwrap();
        polled.join().unwrap();
        assert_eq!(received.load(Ordering::Relaxed), DATAGRAMS);
    }
}

#[test]
fn a_dropped_future_passes_its_edge_on() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let mut buf = [[0; 1]; 2];
    let [one, two] = &mut buf;
    let flags: [Arc<Flag>; 2] = Default::default();
    let wakers = flags.clone().map(Waker::from);
    let mut first = Box::pin(ours.recv_async(one));
    let mut second = Box::pin(ours.recv_async(two));
    assert!(first.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    theirs.send(b"x").unwrap();
    flags[0].wait();
    assert!(!flags[1].0.load(Ordering::Acquire));
    drop(first);
    flags[1].wait();
    assert!(poll_once(second.as_mut()).is_ready());
}

/// The slot of a socket is used again by the next; wakers and futures that were left there take no edge of it.
#[test]
fn a_leaked_future_does_not_disturb_the_next_socket() {
    for _ in 0..100 {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let flag = Arc::<Flag>::default();
        let waker = Waker::from(flag.clone());
        let buf = Box::leak(Box::new([0; 1]));
        let mut leaked = Box::pin(ours.recv_async(buf));
        assert!(leaked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        std::mem::forget(leaked);
        drop((ours, theirs));
        assert!(flag.0.load(Ordering::Acquire), "taken out");
        assert_eq!(Arc::strong_count(&flag), 2);
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let receiver = spawn(move || ours.recv(&mut [0; 8]));
        theirs.send(b"xyz").unwrap();
        assert_eq!(receiver.join().unwrap().unwrap(), 3);
        let (reader, writer) = pipe().unwrap();
        let waker = Waker::from(Arc::<Flag>::default());
        assert!(reader.poll_read(&mut Context::from_waker(&waker), &mut [0]).is_pending());
        drop((reader, writer));
    }
}

#[test]
fn pipes_are_read_and_written_by_futures() {
    everywhere(|| async {
        let (reader, writer) = pipe()?;
        let mut buf = vec![0; 1 << 20];
        let mut sent = 0;
        while let Poll::Ready(len) = poll_once(writer.write_async(&buf)) {
            sent += len?;
        }
        let mut write = Box::pin(writer.write_async(b"more"));
        assert!(poll_once(write.as_mut()).is_pending());
        let mut received = 0;
        while received < sent {
            received += reader.read_async(&mut buf).await?;
        }
        assert_eq!(write.await?, 4);
        assert_eq!(reader.read_async(&mut buf).await?, 4);
        drop(writer);
        assert_eq!(reader.read_async(&mut buf).await?, 0);
        Ok(())
    });
}

/// The handle's limit and its mode concern blocking operations.
#[test]
fn a_future_waits_on_a_handle_that_does_not_block() {
    runtime("fifo").run(|| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let task = spawn(move || {
            let mut buf = [0; 2];
            block_on(ours.read_async(&mut buf))
        });
        heddle_rt::sleep(std::time::Duration::from_millis(1));
        theirs.write_all(b"ok").unwrap();
        assert_eq!(task.join().unwrap().unwrap(), 2);
    });
}

#[cfg(feature = "futures-io")]
mod futures_io {
    use super::{IoSlice, TcpListener, TcpStream, UnixStream, block_on, everywhere, pipe};
    use futures::io::{AsyncReadExt, AsyncWriteExt, copy};

    #[test]
    fn streams_and_pipes_implement_the_traits() {
        everywhere(|| async {
            let (mut here, there) = UnixStream::pair()?;
            let (mut read, mut write) = there.into_split();
            let echo = async {
                copy(&mut read, &mut write).await?;
                write.close().await
            };
            let talk = async {
                let bufs = [IoSlice::new(b"to "), IoSlice::new(b"and fro")];
                let sent = (&here).write_vectored(&bufs).await?;
                assert_eq!(sent, 10, "both buffers in one call");
                (&mut &here).flush().await?;
                let mut text = [0; 10];
                (&here).read_exact(&mut text).await?;
                assert_eq!(&text, b"to and fro");
                here.close().await?;
                let mut rest = String::new();
                here.read_to_string(&mut rest).await
            };
            let (echo, talk) = futures::join!(echo, talk);
            echo?;
            assert_eq!(talk?, 0);

            let (mut reader, mut writer) = pipe()?;
            writer.write_all(b"through a pipe").await?;
            writer.close().await?;
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text).await?;
            assert_eq!(text, "through a pipe");
            Ok(())
        });
    }

    #[test]
    fn closing_a_connection_that_is_gone_succeeds() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        drop(listener);
        while std::io::Write::write(&mut client, b"x").is_ok() {}
        block_on(client.close()).unwrap();
    }
}

#[cfg(feature = "tokio-io")]
mod tokio_io {
    use super::{IoSlice, TcpListener, TcpStream, UnixStream, block_on, everywhere, pipe, poll_fn};
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy};

    #[test]
    fn streams_and_pipes_implement_the_traits() {
        everywhere(|| async {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let mut here = TcpStream::connect_async(listener.local_addr()?).await?;
            let (there, _) = poll_fn(|cx| listener.poll_accept(cx)).await?;
            assert!(here.is_write_vectored());
            let (mut read, mut write) = there.into_split();
            assert!(write.is_write_vectored());
            let echo = async {
                copy(&mut read, &mut write).await?;
                write.shutdown().await
            };
            let talk = async {
                let bufs = [IoSlice::new(b"to "), IoSlice::new(b"and fro")];
                assert_eq!(here.write_vectored(&bufs).await?, 10, "both buffers in one call");
                here.flush().await?;
                let mut text = [0; 10];
                here.read_exact(&mut text).await?;
                assert_eq!(&text, b"to and fro");
                AsyncWriteExt::shutdown(&mut here).await?;
                here.read_to_end(&mut Vec::new()).await
            };
            let (echo, talk) = futures::join!(echo, talk);
            echo?;
            assert_eq!(talk?, 0);

            let (mut reader, mut writer) = pipe()?;
            writer.write_all(b"through a pipe").await?;
            writer.shutdown().await?;
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text).await?;
            assert_eq!(text, "through a pipe");
            Ok(())
        });
    }

    #[test]
    fn a_read_fills_what_is_not_filled_of_a_buffer() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut there, b"bytes").unwrap();
        let mut memory = [std::mem::MaybeUninit::uninit(); 8];
        let mut buf = ReadBuf::uninit(&mut memory);
        buf.put_slice(b"12345");
        let read = |buf: &mut ReadBuf<'_>, here: &mut UnixStream| {
            block_on(poll_fn(|cx| AsyncRead::poll_read(std::pin::Pin::new(&mut *here), cx, buf)))
        };
        read(&mut buf, &mut here).unwrap();
        assert_eq!(buf.filled(), b"12345byt");
        assert_eq!(buf.remaining(), 0);
        buf.clear();
        read(&mut buf, &mut here).unwrap();
        assert_eq!(buf.filled(), b"es");
        assert_eq!(buf.initialized(), b"es345byt");
    }
}
