//! A broker in a thread, and members in processes that say what the test tells them.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use heddle_broker::{AppReport, Broker, Config, End, Options, Report, query};
use heddle_share::abi::{AppHeader, BrokerHeader, CpuSlot, VERSION};
use heddle_share::connect_to;
use heddle_share::handover::State;
use heddle_share::wire::{self, Message};
use heddle_sys::scheduling::{self, Scheduling};
use heddle_test_support::{Running, TempDir, temp_dir, until};
use rustix::pipe::{PipeFlags, pipe_with};

/// The variable with which a process of this test becomes a member: socket, class and name, between tabs.
const MEMBER: &str = "HEDDLE_TEST_MEMBER";

/// Before each line of a member, among those of the test program.
const MARK: &str = "member: ";

/// A broker of one CPU.
pub struct Share {
    pub socket: PathBuf,
    pub cpu: u32,
    _folder: TempDir,
    stop: UnixStream,
    thread: Option<JoinHandle<std::io::Result<End>>>,
}

impl Share {
    /// Starts a broker whose members are ordinary threads.
    pub fn new() -> Share {
        Share::with("realtime = \"never\"", Options::default())
    }

    /// Starts a broker with more lines of its file.
    pub fn with(lines: &str, options: Options) -> Share {
        let folder = temp_dir();
        let socket = folder.path().join("share.sock");
        let broker = start(&folder.path().join("share.toml"), &socket, lines, options).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = Some(thread::spawn(move || broker.run(stopped)));
        Share { socket, cpu: a_cpu(), _folder: folder, stop, thread }
    }

    pub fn report(&self) -> Report {
        query(&self.socket).unwrap()
    }

    /// Returns the member with this name.
    pub fn app(&self, name: &str) -> AppReport {
        let apps = self.report().apps;
        apps.iter()
            .find(|app| app.name == name)
            .unwrap_or_else(|| panic!("no {name}: {apps:?}"))
            .clone()
    }

    /// Returns how often this happened, by the last events.
    pub fn count(&self, event: &str) -> usize {
        self.report().events.iter().filter(|it| it.event == event).count()
    }

    /// Starts a process that asks to be a member.
    pub fn member(&self, name: &str, class: u32) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "member_process", "--nocapture", "--test-threads=1"]);
        command.env(MEMBER, format!("{}\t{class}\t{name}", self.socket.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(&mut command);
        let output = running.child().stdout.take().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test program's own output may stand before it in the line.
                if let Some((_, line)) = line.split_once(MARK) {
                    heard.lock().unwrap().push(line.to_owned());
                }
            }
        });
        Process { running, lines }
    }

    /// Stops the broker.
    pub fn stop(&mut self) -> End {
        let _ = (&self.stop).write_all(&[0]);
        self.thread.take().unwrap().join().unwrap().unwrap()
    }

    /// Waits until the broker ends by itself.
    pub fn ended(&mut self) -> End {
        until("the broker ends", || self.thread.as_ref().unwrap().is_finished());
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

/// Starts a broker that listens at `socket`.
pub fn start(
    file: &std::path::Path,
    socket: &std::path::Path,
    lines: &str,
    options: Options,
) -> Result<Broker, String> {
    let socket = socket.display();
    let cpu = a_cpu();
    let text = format!("cpus = \"{cpu}\"\nsocket = \"{socket}\"\nwhole_machine = true\n{lines}\n");
    fs::write(file, text).unwrap();
    let config = Config::read(file).map_err(|error| error.to_string())?;
    Broker::start(config, file, options).map_err(|error| error.to_string())
}

/// Returns a CPU on which this process may run.
pub fn a_cpu() -> u32 {
    let mask = scheduling::mask(0).unwrap();
    let has = |cpu: &u32| mask[*cpu as usize / 64] & (1 << (cpu % 64)) != 0;
    (0..1024).find(has).unwrap()
}

/// A process that is a member, or was refused.
pub struct Process {
    pub running: Running,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Sends it a command: see [`member`].
    pub fn send(&mut self, what: &str) {
        writeln!(self.running.child().stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    /// Returns whether it has printed a line that starts so.
    pub fn has_said(&self, start: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.starts_with(start))
    }

    /// Waits until it has printed a line that starts so, and returns the rest of the line.
    #[track_caller]
    pub fn said(&self, start: &str) -> String {
        until(&format!("a line `{start}`"), || self.has_said(start));
        let lines = self.lines.lock().unwrap();
        let line = lines.iter().find_map(|line| line.strip_prefix(start)).unwrap();
        line.trim().to_owned()
    }
}

/// In a process that a test has started: is the member that it was started as. Its input has a command in each line.
pub fn member() {
    let Ok(what) = std::env::var(MEMBER) else { return };
    let [socket, class, name] =
        <[&str; 3]>::try_from(what.split('\t').collect::<Vec<_>>()).unwrap();
    let socket = connect_to(socket.as_ref()).unwrap();
    let (class, name) = (class.parse().unwrap(), name.to_owned());
    wire::send(&socket, &Message::Join { version: VERSION, class, name }, &[]).unwrap();
    let fds = match wire::receive(&socket).unwrap() {
        Some((Message::Admitted { app, .. }, fds)) => {
            say(&format!("admitted {app}"));
            fds
        }
        Some((Message::Refused(why), _)) => return say(&format!("refused {why}")),
        other => panic!("{other:?}"),
    };
    let [broker, own] = <[OwnedFd; 2]>::try_from(fds).unwrap().map(File::from);
    write_tid(&own);
    // The pipe's reading end stays open for as long as the process lives.
    let (_reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let hearing = socket.try_clone().unwrap();
    thread::spawn(move || hear(&hearing));
    let mut count = 0;
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let mut word = |state: State| {
            count += 4;
            write_word(&own, state.after(count));
        };
        match &*line {
            "ready" => wire::send(&socket, &Message::Ready, &[writer.as_fd()]).unwrap(),
            "active" => word(State::Active),
            "wanting" => word(State::Wanting),
            "idle" => word(State::Idle),
            "alert" => wire::send(&socket, &Message::Alert(0), &[]).unwrap(),
            "members" => say(&format!("members {}", members(&broker))),
            "fifo" => {
                let result = scheduling::set(0, Scheduling::fifo(1));
                say(&format!("fifo {}", result.is_ok()));
            }
            "spin" => drop(thread::spawn(spin)),
            "class" => say(&format!("class {:?}", scheduling::of(0).unwrap().class)),
            "hang up" => rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).unwrap(),
            other => panic!("what is `{other}`?"),
        }
    }
}

/// Computes in real time, and sleeps just enough that the kernel does not end the process.
fn spin() {
    scheduling::set(0, Scheduling::fifo(1)).unwrap();
    loop {
        let begin = std::time::Instant::now();
        while begin.elapsed().as_millis() < 3 {}
        thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// Prints what the broker says.
fn hear(socket: &OwnedFd) {
    loop {
        match wire::receive(socket) {
            Ok(Some((Message::Peer(app), fds))) => say(&format!("peer {app} with {}", fds.len())),
            Ok(Some((Message::Left(app), _))) => say(&format!("left {app}")),
            Ok(Some((Message::Refused(why), _))) => say(&format!("removed {why}")),
            Ok(Some(other)) => say(&format!("heard {other:?}")),
            Ok(None) | Err(_) => return say("alone"),
        }
    }
}

fn say(what: &str) {
    // In one piece, and past the test program's own buffer.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}{what}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Writes the member's word for its CPU.
fn write_word(own: &File, word: u32) {
    let at = size_of::<AppHeader>() + offset_of!(CpuSlot, state);
    own.write_all_at(&word.to_ne_bytes(), at as u64).unwrap();
}

fn write_tid(own: &File) {
    let at = size_of::<AppHeader>() + offset_of!(CpuSlot, tid);
    own.write_all_at(&heddle_sys::thread::id().to_ne_bytes(), at as u64).unwrap();
}

/// Reads the set of members.
fn members(broker: &File) -> u32 {
    let mut bytes = [0; 4];
    broker.read_exact_at(&mut bytes, offset_of!(BrokerHeader, members) as u64).unwrap();
    u32::from_ne_bytes(bytes)
}
