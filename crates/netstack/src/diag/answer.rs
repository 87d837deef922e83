//! Answers to clients, a record a line.

use super::PATIENCE;
use super::json::Line;
use crate::net::Net;
use crate::options::{Mode, Spin};
use heddle_tcp::{Info, ListenerInfo, Progress};
use rustix::io::retry_on_intr;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Weak;
use std::time::Instant;

/// The version of the answers; it changes if a client that knows the last one would misunderstand them.
const SCHEMA: u32 = 1;

/// Bytes that are gathered before they are written.
const GATHERED: usize = 32 << 10;

/// An answer that is being written.
struct Answer<'a> {
    client: &'a UnixStream,
    until: Instant,
    text: String,
}

/// Answers `question` to `client`. Ends early if the lanes end.
pub(super) fn write(question: &[u8], client: &UnixStream, net: &Weak<Net>) -> io::Result<()> {
    let mut answer = Answer { client, until: Instant::now() + PATIENCE, text: String::new() };
    match question.trim_ascii_end() {
        b"sockets" => answer.sockets(net)?,
        b"counters" => answer.counters(net)?,
        _ => return Ok(()),
    }
    Line::new(&mut answer.text, "end").end();
    answer.flush()
}

/// The lanes are used for a moment at a time, so that an answer does not keep them.
fn look<R>(net: &Weak<Net>, at: impl FnOnce(&Net) -> R) -> io::Result<R> {
    net.upgrade().map(|net| at(&net)).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

impl Answer<'_> {
    fn sockets(&mut self, net: &Weak<Net>) -> io::Result<()> {
        let lanes = self.head(net)?;
        for socket in look(net, Net::udp_sockets)? {
            let (received, dropped) = socket.counts();
            let line = Line::new(&mut self.text, "udp").text("local", socket.local());
            let line = match socket.peer() {
                Some(peer) => line.text("remote", peer),
                None => line.value("remote", "null"),
            };
            line.value("waiting", socket.waiting())
                .value("received", received)
                .value("dropped", dropped)
                .end();
            self.pass()?;
        }
        (0..lanes).try_for_each(|lane| self.listeners(net, lane))?;
        (0..lanes).try_for_each(|lane| self.connections(net, lane))
    }

    fn listeners(&mut self, net: &Weak<Net>, lane: usize) -> io::Result<()> {
        let mut first = 0;
        loop {
            let found = look(net, |net| net.lanes()[lane].next_listeners(first))?;
            if found.is_empty() {
                return Ok(());
            }
            first += found.len();
            found.iter().for_each(|listener| self.listener(lane, listener));
            self.pass()?;
        }
    }

    fn listener(&mut self, lane: usize, listener: &ListenerInfo) {
        Line::new(&mut self.text, "listener")
            .value("lane", lane)
            .text("local", listener.local)
            .value("waiting", listener.ready)
            .value("backlog", listener.backlog)
            .end();
    }

    fn connections(&mut self, net: &Weak<Net>, lane: usize) -> io::Result<()> {
        let (mut progress, mut found, mut more) = (Progress::default(), Vec::new(), true);
        while more {
            let step = |net: &Net| net.lanes()[lane].next_connections(&mut progress, &mut found);
            more = look(net, step)?;
            found.drain(..).for_each(|connection| self.connection(lane, &connection));
            self.pass()?;
        }
        Ok(())
    }

    fn connection(&mut self, lane: usize, of: &Info) {
        Line::new(&mut self.text, "connection")
            .value("lane", lane)
            .text("state", of.state)
            .text("local", of.local)
            .text("remote", of.remote)
            .value("recv_q", of.receive_queue)
            .value("send_q", of.send_queue)
            .value("out_of_order", of.out_of_order)
            .value("unsent", of.unsent)
            .value("unacked", of.unacked)
            .value("retransmits", of.retransmits)
            .value("backoff", of.backoff)
            .value("srtt_ns", of.srtt.0)
            .value("rttvar_ns", of.rttvar.0)
            .value("min_rtt_ns", of.min_rtt.0)
            .value("rto_ns", of.rto.0)
            .value("cwnd", of.cwnd)
            .value("ssthresh", of.ssthresh)
            .value("mss", of.mss)
            .value("send_window", of.send_window)
            .value("bytes_received", of.bytes_received)
            .value("bytes_sent", of.bytes_sent)
            .value("sack", of.sack)
            .value("timestamps", of.timestamps)
            .end();
    }

    fn counters(&mut self, net: &Weak<Net>) -> io::Result<()> {
        let lanes = self.head(net)?;
        for lane in 0..lanes {
            let counted = look(net, |net| net.lanes()[lane].counters())?;
            self.counts("packets", Some(lane), counted.packets.iter());
            self.counts("losses", Some(lane), counted.losses.iter());
            self.counts("tcp", Some(lane), counted.tcp.iter());
            self.pass()?;
        }
        let control = look(net, |net| net.control().counters())?;
        self.counts("control", None, control.iter());
        // What the kernel refuses is missing.
        let steering = look(net, |net| net.steering().counts())?.unwrap_or_default();
        self.counts("xdp", None, steering.into_iter());
        Ok(())
    }

    /// Adds counts of a lane, or of what there is once.
    fn counts(
        &mut self,
        of: &str,
        lane: Option<usize>,
        counts: impl Iterator<Item = (&'static str, u64)>,
    ) {
        let line = Line::new(&mut self.text, "counters").text("of", of);
        let line = match lane {
            Some(lane) => line.value("lane", lane),
            None => line.value("lane", "null"),
        };
        line.counts("counts", counts).end();
    }

    /// Says what the network is. Returns the number of lanes.
    fn head(&mut self, net: &Weak<Net>) -> io::Result<usize> {
        look(net, |net| {
            let (options, snapshot, lanes) =
                (net.options(), net.control().snapshot(), net.lanes().len());
            Line::new(&mut self.text, "net")
                .value("schema", SCHEMA)
                .text("interface", snapshot.name())
                .value("up", snapshot.is_up())
                .value("mtu", snapshot.mtu())
                .value("lanes", lanes)
                .value("queues", net.steering().queues())
                .text("mode", mode(net.steering().mode()))
                .text("policy", &options.policy)
                .text("spin", spin(options.spin))
                .text("congestion", options.congestion.unwrap_or_default().name())
                .end();
            lanes
        })
    }

    /// Writes what has gathered if it is enough.
    fn pass(&mut self) -> io::Result<()> {
        if self.text.len() < GATHERED { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.text.as_bytes();
        while !rest.is_empty() {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.client.set_write_timeout(Some(left))?;
            let sent = retry_on_intr(|| send(self.client, rest, SendFlags::NOSIGNAL))?;
            rest = &rest[sent..];
        }
        self.text.clear();
        Ok(())
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Auto => "auto",
        Mode::Native => "native",
        Mode::Generic => "generic",
    }
}

fn spin(spin: Spin) -> String {
    match spin {
        Spin::For(time) => time.to_string(),
        Spin::Forever => "forever".to_owned(),
    }
}
