//! The server: threads that compute, each with a socket, in a process of its own.

use super::system::System;
use crate::steer::wire;
use heddle_bpf::{Map, MapKind, MapSpec, MapView};
use heddle_core::{Ns, line};
use heddle_load::Op;
use heddle_steer::client::{Deployment, Steering, policy_of};
use heddle_steer::executor::{self, Executor, LINES, Lines};
use heddle_steer::hook::Hook;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, thread as kernel};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Builder;

/// The child that calls [`serve`].
pub const SERVER: &str = "server";
/// The map in which the policy `classify` and its server keep classes.
const WORK: &str = "work";
/// Classes of work in that map and in lines without a policy.
const GET: u32 = 1;
const SCAN: u32 = 2;
/// The class that `scan-avoid` takes for a SCAN.
const AVOIDED: u32 = 3;
/// The nice value of all threads, and by hand that of those for SCANs.
const NICE_OF_ALL: i32 = -19;
const NICE_OF_SCANS: i32 = 0;

/// What the server is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSpec {
    /// The system's name.
    pub system: String,
    /// Threads, each with a socket.
    pub executors: usize,
    /// Of these, the first ones get no SCANs, as far as the system keeps them away.
    pub spared: usize,
    /// Its CPU.
    pub cpu: u32,
    /// CPU time of a GET and of a SCAN, ns.
    pub get_ns: u64,
    /// See above.
    pub scan_ns: u64,
    /// Microseconds for which a thread may compute at a real-time priority without sleeping.
    pub realtime_us: u64,
}

/// The line that the server prints when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where GETs go.
    pub get: SocketAddr,
    /// Where SCANs go: the same, unless pools have their own ports.
    pub scan: SocketAddr,
    /// The agent's class map.
    pub class_map: Option<String>,
}

/// Serves until standard input ends.
///
/// # Errors
/// System errors; those of attaching the policy.
pub fn serve(spec: &str) -> io::Result<()> {
    let spec: ServerSpec = serde_json::from_str(spec)?;
    let system: System = spec.system.parse().map_err(io::Error::other)?;
    kernel::pin(&[spec.cpu])?;
    be_undisturbed();
    scheduling::limit_realtime(spec.realtime_us)?;
    let ports = Ports::bind(&spec, matches!(system, System::Nice | System::Fifo))?;
    let steered = Steered::new(&spec, system, &ports)?;
    for (k, socket) in ports.sockets.iter().enumerate() {
        let serving = Executing {
            socket: socket.try_clone()?,
            marks: steered.marks(k)?,
            get: Ns(spec.get_ns),
            scan: Ns(spec.scan_ns),
        };
        let by_hand = by_hand(system, ports.is_for_gets(system, k));
        Builder::new().name(format!("executor-{k}")).spawn(move || {
            if let Err(error) = by_hand().and_then(|()| serving.run()) {
                eprintln!("executor {k}: {error}");
                std::process::exit(1);
            }
        })?;
    }
    let ready =
        Ready { get: ports.first()?, scan: ports.last()?, class_map: steered.class_map.clone() };
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&ready)?)?;
    out.flush()?;
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    steered.end(&ports.sockets)
}

/// Lets others on the machine take less of the server's CPU: as a session of its own, where the kernel has sessions
/// share a CPU, and by its nice value. Its threads stay equals. Without the privilege nothing changes.
fn be_undisturbed() {
    let _ = rustix::process::setsid();
    let _ = std::fs::write("/proc/self/autogroup", NICE_OF_ALL.to_string());
    let _ = scheduling::set_nice(0, NICE_OF_ALL);
}

/// What an operator would do for the calling thread, by itself.
fn by_hand(system: System, for_gets: bool) -> impl FnOnce() -> io::Result<()> + Send {
    move || match system {
        System::Nice if !for_gets => scheduling::set_nice(0, NICE_OF_SCANS),
        System::Fifo | System::SitaFifo if for_gets => scheduling::set(0, Scheduling::fifo(1)),
        _ => Ok(()),
    }
}

/// The sockets, in the order of the executors.
struct Ports {
    sockets: Vec<UdpSocket>,
    /// Executors that SCANs are kept away from.
    spared: usize,
}

impl Ports {
    /// Binds a group of sockets; if kinds have their own ports, two groups.
    fn bind(spec: &ServerSpec, own_ports: bool) -> io::Result<Ports> {
        let mut sockets: Vec<UdpSocket> = Vec::new();
        for k in 0..spec.executors {
            let begins = k == 0 || own_ports && k == spec.spared;
            let at: SocketAddr = match sockets.last() {
                Some(before) if !begins => before.local_addr()?,
                _ => (Ipv4Addr::LOCALHOST, 0).into(),
            };
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            socket.set_reuse_port(true)?;
            socket.bind(&at.into())?;
            sockets.push(socket.into());
        }
        Ok(Ports { sockets, spared: spec.spared })
    }

    fn first(&self) -> io::Result<SocketAddr> {
        self.sockets.first().ok_or_else(|| io::Error::other("no socket"))?.local_addr()
    }

    fn last(&self) -> io::Result<SocketAddr> {
        self.sockets.last().ok_or_else(|| io::Error::other("no socket"))?.local_addr()
    }

    /// Whether executor `k` gets GETs alone. `sita` gives SCANs the first ones, by hand they have the last.
    fn is_for_gets(&self, system: System, k: usize) -> bool {
        match system {
            System::SitaFifo => k >= self.sockets.len() - self.spared,
            _ => k < self.spared,
        }
    }
}

/// Steering, and where the threads say what they work on.
struct Steered {
    attached: Option<(Steering, u32)>,
    lines: Option<Lines>,
    work: Option<Arc<MapView>>,
    /// What a SCAN is called.
    scan: u32,
    class_map: Option<String>,
    pin: Option<PathBuf>,
}

impl Steered {
    fn new(spec: &ServerSpec, system: System, ports: &Ports) -> io::Result<Steered> {
        let policy = system.policy(spec.executors - spec.spared, spec.spared);
        match policy {
            Some(policy) => Steered::attach(system, &policy, ports),
            None if system == System::Threads => Steered::own_lines(),
            None => Ok(Steered::nothing()),
        }
    }

    fn nothing() -> Steered {
        Steered { attached: None, lines: None, work: None, scan: SCAN, class_map: None, pin: None }
    }

    fn attach(system: System, policy: &str, ports: &Ports) -> io::Result<Steered> {
        let steering = Steering::open(false).map_err(io::Error::other)?;
        let mut deployment =
            Deployment::new(policy_of(policy).map_err(io::Error::other)?, Hook::SocketSelect);
        for (k, socket) in ports.sockets.iter().enumerate() {
            let socket = socket.as_fd().try_clone_to_owned()?;
            deployment = deployment.executor(format!("executor {k}"), socket);
        }
        let id = steering.attach(deployment).map_err(io::Error::other)?.id;
        let open = |name: &str| {
            let (_, fd) = steering.map(id, name).map_err(io::Error::other)?;
            Map::from_fd(fd)
        };
        let lines = Some(Lines::new(&open(LINES)?)?);
        let is_classified = matches!(system, System::Steer | System::Both);
        let work = is_classified.then(|| open(WORK).and_then(|map| MapView::new(&map)));
        let work = work.transpose()?.map(Arc::new);
        let class_map = is_classified.then(|| format!("{id}:{WORK}"));
        let scan = if system == System::ScanAvoid { AVOIDED } else { SCAN };
        Ok(Steered { attached: Some((steering, id)), lines, work, scan, class_map, pin: None })
    }

    /// Lines without a steering policy: a pinned map, whose path the agent is given.
    fn own_lines() -> io::Result<Steered> {
        let map = Map::create(&MapSpec {
            name: LINES.into(),
            kind: MapKind::Array,
            key_size: 4,
            value_size: line::BYTES,
            entries: line::MOST as u32,
            read_only: false,
        })?;
        let pin = PathBuf::from(format!("/sys/fs/bpf/heddle-bench-{}", std::process::id()));
        map.pin(&pin)?;
        let class_map = Some(pin.to_string_lossy().into_owned());
        let lines = Some(Lines::new(&map)?);
        Ok(Steered { lines, class_map, pin: Some(pin), ..Steered::nothing() })
    }

    fn marks(&self, k: usize) -> io::Result<Marks> {
        let at = u32::try_from(k).map_err(io::Error::other)?;
        let line = self.lines.as_ref().map(|lines| lines.executor(at)).transpose()?;
        Ok(Marks { k, line, work: self.work.clone(), scan: self.scan })
    }

    fn end(self, sockets: &[UdpSocket]) -> io::Result<()> {
        if let Some(pin) = &self.pin {
            std::fs::remove_file(pin)?;
        }
        let Some((steering, id)) = self.attached else { return Ok(()) };
        let first = sockets.iter().take(1).map(|socket| socket.as_fd().try_clone_to_owned());
        steering.detach(id, first.collect::<io::Result<_>>()?).map_err(io::Error::other)
    }
}

/// Where a thread says what it works on: in the policy's map, or in its line.
struct Marks {
    k: usize,
    line: Option<Executor>,
    work: Option<Arc<MapView>>,
    scan: u32,
}

impl Marks {
    fn mark(&self, class: u32) {
        match (&self.work, &self.line) {
            (Some(work), _) => work.half(self.k, 0).store(class, Relaxed),
            (None, Some(line)) => line.busy(class),
            (None, None) => {}
        }
    }
}

/// A thread and its socket.
struct Executing {
    socket: UdpSocket,
    marks: Marks,
    get: Ns,
    scan: Ns,
}

impl Executing {
    fn run(self) -> io::Result<()> {
        if let Some(line) = &self.marks.line {
            executor::register(line.clone());
        }
        let mut buffer = [0; wire::LEN + 1];
        loop {
            let (length, from) = match self.socket.recv_from(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received?,
            };
            let Some((op, id)) = wire::asked(&buffer[..length]) else { continue };
            let (class, service) = match op {
                Op::Scan => (self.marks.scan, self.scan),
                Op::Get | Op::Set => (GET, self.get),
            };
            self.marks.mark(class);
            let took = compute(service);
            // The client may be gone: no answer is needed then.
            let _ = self.socket.send_to(&wire::answer(id, took), from);
            self.marks.mark(line::IDLE);
        }
    }
}

/// Computes for `service` of the thread's own CPU time; returns how long that was.
fn compute(service: Ns) -> Ns {
    let begin = clock::thread_cpu_time();
    loop {
        let took = clock::thread_cpu_time() - begin;
        if took >= service {
            return took;
        }
        (0..16).for_each(|_| std::hint::spin_loop());
    }
}
