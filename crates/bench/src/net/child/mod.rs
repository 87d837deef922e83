//! One end of a run in a process of its own, which the runner starts as `heddle bench net --child JOB`. JOB and what a
//! client prints are JSON.

mod epoll;
mod look;
mod stream;
mod tcp;
mod udp;
mod window;

use super::measured::Measured;
use super::system::{System, Waiting};
use heddle::Runtime;
use heddle_core::Ns;
use heddle_netns::{FAR, NEAR};
use serde::{Deserialize, Serialize};
use std::io::{self, Write as _};
use std::net::SocketAddr;

/// Bytes of a request and of its answer.
pub(super) const SIZE: usize = 64;

/// What a child does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Its only CPU.
    pub(super) cpu: u32,
    /// Whose sockets it uses.
    pub(super) system: System,
    pub(super) waiting: Waiting,
    /// The shortest retransmission timeout of lanes in nanoseconds, if not the default.
    pub(super) rto_min: Option<u64>,
    pub(super) role: Role,
}

/// Which end it is. Servers print `port N`, serve, and end with standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Returns datagrams.
    UdpServer,
    /// Returns what it reads on each connection.
    TcpServer,
    /// Receives a stream, or sends one, as the first byte of a connection says.
    StreamServer {
        /// Its name, if not the default.
        congestion_control: Option<String>,
    },
    /// Accepts connections and keeps them.
    Keeper,
    /// Prints [`look::Look`].
    Look { duration: u64 },
    /// Prints [`Measured`].
    Client(Client),
}

/// Where a client sends its load, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) target: SocketAddr,
    /// The server's process id.
    pub(super) server: u32,
    pub(super) duration: u64,
    pub(super) load: Load,
}

/// The load of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Load {
    /// So many datagrams at a time.
    Udp { in_flight: u16 },
    /// A request at a time on each of so many connections.
    Tcp { connections: u16 },
    /// One stream to the server.
    Send,
    /// One stream from the server.
    Receive,
}

pub(super) use look::Look;

/// What precedes a child's result on its line.
pub(super) const RESULT: &str = "result ";

/// Does what `job` says.
///
/// # Errors
/// `job` is not the runner's; the system's.
pub fn run(job: &str) -> io::Result<()> {
    let wrong = |error| io::Error::other(format!("--child: not a job of the runner: {error}"));
    let job: Job = serde_json::from_str(job).map_err(wrong)?;
    heddle_sys::thread::pin(&[job.cpu])?;
    match &job.role {
        Role::UdpServer => udp::serve(&job),
        Role::TcpServer => tcp::serve(&job),
        Role::StreamServer { congestion_control } => {
            stream::serve(&job, congestion_control.as_deref())
        }
        Role::Keeper => tcp::keep(&job),
        Role::Look { duration } => print(&look::measure(&job, Ns(*duration))?),
        Role::Client(client) => print(&ask(&job, client)?),
    }
}

fn ask(job: &Job, client: &Client) -> io::Result<Measured> {
    match client.load {
        Load::Udp { in_flight } => udp::ask(job, client, in_flight.into()),
        Load::Tcp { connections } => tcp::ask(client, connections.into()),
        Load::Send => stream::send(client),
        Load::Receive => stream::receive(client),
    }
}

fn print(result: &impl Serialize) -> io::Result<()> {
    println!("{RESULT}{}", serde_json::to_string(result)?);
    io::stdout().flush()
}

/// Builds the runtime of a job, with one worker, at the end that `interface` names.
fn runtime(job: &Job, interface: &str) -> io::Result<Runtime> {
    let congestion = match &job.role {
        Role::StreamServer { congestion_control } => congestion_control.as_deref(),
        _ => None,
    };
    let rto_min = job.rto_min.map(Ns);
    let network = job.system.network(interface, job.waiting, rto_min, congestion);
    Runtime::builder().workers(1).net(network).build().map_err(io::Error::other)
}

/// The same for a server.
fn server_runtime(job: &Job) -> io::Result<Runtime> {
    runtime(job, NEAR)
}

/// The same for a client.
fn client_runtime(job: &Job) -> io::Result<Runtime> {
    runtime(job, FAR)
}

/// Tells the runner the server's port, and waits until that closes standard input.
fn announce_and_wait(port: u16) -> ! {
    println!("port {port}");
    // An error of either means that the runner has gone.
    let _ = io::stdout().flush();
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_runner_writes_is_read() {
        let role = Role::Client(Client {
            target: ([10, 0, 0, 1], 80).into(),
            server: 1,
            duration: 2,
            load: Load::Tcp { connections: 3 },
        });
        let (system, waiting) = (System::Xdp, Waiting::Spin);
        let job = Job { cpu: 0, system, waiting, rto_min: Some(5), role };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        assert!(run("{}").unwrap_err().to_string().starts_with("--child: not a job"));
    }
}
