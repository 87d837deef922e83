//! An echo server whose threads share one event queue: `events-echo [ADDRESS [POLICY [THREADS]]]`.

use heddle::events::{EventOptions, EventQueue, Interest};
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, RwLock};

/// The listener's token; connections use their descriptor numbers.
const LISTENER: u64 = u64::MAX;

type Connections = RwLock<HashMap<u64, Arc<TcpStream>>>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Echoes received bytes. Returns false at end of file.
fn echo(mut connection: &TcpStream) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    match connection.read(&mut bytes)? {
        0 => Ok(false),
        // Blocks this thread if the client does not read. `heddle kv serve --protocol echo` does better, and is longer.
        n => connection.write_all(&bytes[..n]).map(|()| true),
    }
}

fn serve(queue: &EventQueue, listener: &TcpListener, all: &Connections) -> Result<(), Failure> {
    let mut worker = queue.worker()?;
    loop {
        for event in worker.wait(None)? {
            if event.token() == LISTENER {
                let connection = Arc::new(listener.accept()?.0);
                let token = connection.as_raw_fd() as u64;
                // Stored before it is registered: another thread can get its event at once.
                all.write().unwrap().insert(token, Arc::clone(&connection));
                queue.register(&*connection, Interest::READ, token, EventOptions::default())?;
                continue;
            }
            let connection = Arc::clone(&all.read().unwrap()[&event.token()]);
            if !echo(&connection).unwrap_or(false) {
                queue.deregister(event.id())?;
                all.write().unwrap().remove(&event.token());
            }
        }
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: &str| arguments.next().unwrap_or_else(|| default.into());
    let listener = TcpListener::bind(argument("127.0.0.1:7000"))?;
    let queue = EventQueue::builder().policy(&argument("hybrid")).build()?;
    let threads: usize = argument("4").parse()?;
    queue.register(&listener, Interest::READ, LISTENER, EventOptions::default())?;
    println!("ready {}", listener.local_addr()?);
    let all = Connections::default();
    std::thread::scope(|scope| {
        let workers = (0..threads).map(|_| scope.spawn(|| serve(&queue, &listener, &all)));
        let workers: Vec<_> = workers.collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })
}
