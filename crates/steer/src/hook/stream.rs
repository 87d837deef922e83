//! Requests in TCP streams to the sockets of workers (Syrup, section 6.4). Experimental.
//!
//! The kernel cuts the streams of all connections into requests ([`Framing`]), asks the policy for each, and
//! moves the request from its connection to the socket of the chosen worker, where it can be read: one copy
//! less than a proxy, and no thread in between. The way back is up to the program: with [`Framing::tag`] each
//! request names the connection it came from, and [`Connections`] sends the answer there. Requests that a
//! policy passes stay with their own connection; those it drops are lost.
//!
//! `docs/steering/streams.md` says when this is worth its price, and its known problems. It requires Linux
//! 5.10, and the privileges `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`.
//!
//! - **S1** A request is never misframed: the parser reads where the kernel says the current message begins,
//!   and an impossible length ends its connection and affects no other.
//! - **S2** A worker sees whole requests, each with the cookie by which the kernel knows its connection.
//! - **S3** What waits for a worker is bounded by its receive buffer and 1024 requests. The excess is dropped
//!   and counted as failed.
//! - **S4** A policy is replaced by one store; a request meets the old one or the new one.

mod connections;
mod framing;
mod requests;
mod workers;

pub use connections::Connections;
pub use framing::{ByteOrder, Framing};
pub use requests::{Request, Requests};

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use heddle_bpf::{KernelTypes, Map, MapKind, MapSpec, Program, ProgramKind, notice_data};
use rustix::net::sockopt::socket_cookie;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use self::workers::Workers;
use super::counts::{self, Counts};
use crate::policy::{LoadError, Maps, Object, frame, link, load, verify_strictly};

/// The map with the policy's program.
const SLOT: &str = "hd_slot";
/// The constants of `bpf/include/stream.h`.
const FRAMING: &str = "hd_framing_constants";
/// The offset of the kernel's message offset and length: in the packet, at `cb`, a `struct sk_skb_cb`.
const PLACES: [&str; 2] = ["strp.strp.offset", "strp.strp.full_len"];
/// The maximum number of connections at a time.
const CONNECTIONS: u32 = 65536;

/// Why requests in streams cannot be scheduled.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// An invalid framing.
    #[error(transparent)]
    Framing(io::Error),
    /// The kernel lacks something; what, and what remains possible.
    #[error(
        "requests in streams: {what}: {error} (Linux 5.10 with CONFIG_BPF_STREAM_PARSER and BTF, \
         CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON do it; steering whole connections by socket-select \
         takes less)"
    )]
    Missing {
        /// What was attempted.
        what: &'static str,
        /// The resulting error.
        error: io::Error,
    },
    /// The policy.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The cost of the kernel's programs while their run time was counted ([`heddle_bpf::count_run_time`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamCost {
    /// Runs of the parser: one per request, and one more for each additional piece of a header.
    pub parsed: u64,
    /// Nanoseconds per run.
    pub parser_ns: f64,
    /// Runs of the verdict, the policy included.
    pub decided: u64,
    /// Nanoseconds per run.
    pub verdict_ns: f64,
}

/// Schedules the requests of connections to workers.
#[derive(Debug)]
pub struct StreamScheduler {
    maps: Maps,
    connections: Map,
    parser: Program,
    root: Program,
    workers: Workers,
}

impl StreamScheduler {
    /// Loads `policy` and the programs around it. Nothing is scheduled until workers and connections are
    /// added.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn new(policy: &Object, framing: Framing) -> Result<Self, StreamError> {
        framing.check().map_err(StreamError::Framing)?;
        let missing = |what| move |error| StreamError::Missing { what, error };
        let mut maps = Maps::new();
        maps.insert(
            FRAMING.into(),
            constants(&framing).map_err(missing("reading the kernel's types"))?,
        );
        let connections = connection_map().map_err(missing("making a map of sockets"))?;
        let parser =
            load_program("hd_parser", ProgramKind::StreamParser, "stream_parser", &mut maps)?;
        let root = load_program("hd_stream", ProgramKind::StreamVerdict, "stream_root", &mut maps)?;
        for (program, kind) in
            [(&parser, ProgramKind::StreamParser), (&root, ProgramKind::StreamVerdict)]
        {
            program
                .attach_stream(kind, connections.as_fd())
                .map_err(missing("attaching to a map of sockets"))?;
        }
        let mut this = Self { maps, connections, parser, root, workers: Workers::default() };
        this.replace(policy)?;
        Ok(this)
    }

    /// Makes `policy` the current one. Its maps start empty, except those shared with the old policy by name.
    ///
    /// # Errors
    /// Those of loading: then the old one stays.
    pub fn replace(&mut self, policy: &Object) -> Result<(), StreamError> {
        let mut maps = self.kept(policy)?;
        let frames = ["stream_verdict", "common", "observe_stream"].map(frame);
        let [hook, common, observe] = &frames;
        let image = link(&[hook, common, observe, policy]).map_err(LoadError::from)?;
        let failed = |what| move |error| StreamError::Missing { what, error };
        verify_strictly(policy, &mut maps)?;
        workers::prepare(&image, &mut maps).map_err(failed("reading the kernel's types"))?;
        let program = load("hd_policy", ProgramKind::StreamVerdict, &image, &mut maps)?;
        self.workers.publish(&maps).map_err(failed("telling the policy its workers"))?;
        slot(&maps)
            .and_then(|slot| slot.put_fd(0, program.as_fd()))
            .map_err(failed("putting the policy in its place"))?;
        self.maps = maps;
        Ok(())
    }

    /// Returns the maps that outlive a change of policy: Heddle's, and those that the new policy declares by
    /// the same name. Never its variables and parameters.
    fn kept(&self, policy: &Object) -> Result<Maps, StreamError> {
        let stays = |name: &str| {
            name.starts_with("hd_") || policy.map(name).is_some_and(|map| !map.is_data())
        };
        let kept = self.maps.iter().filter(|(name, _)| stays(name));
        let clone = |(name, map): (&String, &Map)| Ok((name.clone(), map.try_clone()?));
        kept.map(clone)
            .collect::<io::Result<_>>()
            .map_err(|error| StreamError::Missing { what: "another descriptor of a map", error })
    }

    /// Removes the policy: requests stay with their connections until there is another.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_policy(&self) -> io::Result<bool> {
        slot(&self.maps)?.remove(&0_u32.to_ne_bytes())
    }

    /// Makes a connected stream socket the next worker's; returns its index, the policy's `k`. Requests are
    /// read from this very socket ([`worker_socket`] makes one).
    ///
    /// # Errors
    /// If there are 64 already, or the kernel's: `EOPNOTSUPP` for a socket that is not connected.
    pub fn add_worker(&mut self, socket: BorrowedFd<'_>) -> io::Result<u32> {
        self.workers.add(&self.maps, socket)
    }

    /// Gives worker `index` another socket, after its first one was closed.
    ///
    /// # Errors
    /// If there was no such worker, or the kernel's.
    pub fn put_worker(&mut self, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.workers.put(&self.maps, index, socket)
    }

    /// Removes worker `index`; returns whether it existed. The others keep their indices. What the policy
    /// still sends there stays with its connection and is counted as failed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_worker(&mut self, index: u32) -> io::Result<bool> {
        self.workers.remove(&self.maps, index)
    }

    /// Schedules the requests of a TCP connection from now on, including those that arrived before; returns
    /// its cookie, which tags carry. A connection that closes is removed by itself.
    ///
    /// # Errors
    /// The kernel's: `E2BIG` if there are 65536 already, `EOPNOTSUPP` for a socket that is not connected.
    pub fn add_connection(&self, socket: BorrowedFd<'_>) -> io::Result<u64> {
        use std::os::fd::AsRawFd as _;
        let cookie = socket_cookie(socket)?;
        self.connections.update(&cookie.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())?;
        notice_data(socket)?;
        Ok(cookie)
    }

    /// Returns the stream of the connection of `cookie` to its own reader; returns whether it existed. A
    /// partly received request is lost.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_connection(&self, cookie: u64) -> io::Result<bool> {
        self.connections.remove(&cookie.to_ne_bytes())
    }

    /// Returns the outcomes of the requests.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counts(&self) -> io::Result<Counts> {
        counts::read(&self.maps)
    }

    /// Returns the cost while run time was counted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn cost(&self) -> io::Result<StreamCost> {
        let mean = |time: u64, runs: u64| if runs > 0 { time as f64 / runs as f64 } else { 0.0 };
        let (parser, root) = (self.parser.info()?, self.root.info()?);
        Ok(StreamCost {
            parsed: parser.runs,
            parser_ns: mean(parser.run_time, parser.runs),
            decided: root.runs,
            verdict_ns: mean(root.run_time, root.runs),
        })
    }

    /// The policy's maps by name, and Heddle's: `hd_lines` for [`crate::executor::Lines`].
    #[must_use]
    pub fn maps(&self) -> &Maps {
        &self.maps
    }
}

/// Returns a socket from which a worker reads requests ([`Requests`]), and its other end, which must stay
/// open as long: closing it ends the worker's stream and loses what is in flight.
///
/// # Errors
/// The system's.
pub fn worker_socket() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    socketpair(family, SocketType::STREAM, flags, None).map_err(Into::into)
}

fn load_program(
    name: &str,
    kind: ProgramKind,
    of: &str,
    maps: &mut Maps,
) -> Result<Program, LoadError> {
    load(name, kind, &link(&[&frame(of)])?, maps)
}

fn constants(framing: &Framing) -> io::Result<Map> {
    let types = KernelTypes::read()?;
    let mut numbers = Vec::new();
    for place in PLACES {
        numbers.push(types.offset("sk_buff", "cb")? + types.offset("sk_skb_cb", place)?);
    }
    numbers.extend(framing.constants());
    super::observe::constant_map(FRAMING, &numbers)
}

fn connection_map() -> io::Result<Map> {
    Map::create(&MapSpec {
        name: "hd_connections".into(),
        kind: MapKind::SocketHash,
        key_size: 8,
        value_size: 4,
        entries: CONNECTIONS,
        read_only: false,
    })
}

fn map<'a>(maps: &'a Maps, name: &str) -> io::Result<&'a Map> {
    maps.get(name).ok_or_else(|| io::Error::other(format!("no map `{name}`")))
}

fn slot(maps: &Maps) -> io::Result<&Map> {
    map(maps, SLOT)
}
