//! A plain HTTP server on tokio, which knows nothing of Heddle: GET /get/N is short, GET /scan/N long. A task that
//! computes holds its worker, as in most servers: there is no `await` in a computation.
//!
//! Usage: `tokio_server --calibrate`, which prints `{"ns_per_loop": 1.9}`, or `tokio_server GET_LOOPS SCAN_LOOPS
//! WORKERS`, which prints `ready http=127.0.0.1:PORT` and serves until its standard input ends.
//! `heddle bench posix --only tokio` runs it.

use std::hint::black_box;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

const MOST_HEAD: usize = 1024;

/// Steps of computation in a short and in a long request.
#[derive(Clone, Copy)]
struct Loops {
    get: u64,
    scan: u64,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["--calibrate"] {
        println!("{{\"ns_per_loop\": {:.4}}}", calibrate());
        return ExitCode::SUCCESS;
    }
    let numbers: Option<Vec<u64>> =
        args.iter().map(|arg| arg.parse().ok().filter(|&number| number > 0)).collect();
    let Some(&[get, scan, workers]) = numbers.as_deref() else {
        eprintln!("usage: tokio_server --calibrate | tokio_server GET_LOOPS SCAN_LOOPS WORKERS");
        return ExitCode::from(2);
    };
    match serve(Loops { get, scan }, workers as usize) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(loops: Loops, workers: usize) -> io::Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_io().build()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    println!("ready http={}", listener.local_addr()?);
    io::stdout().flush()?;
    runtime.spawn(accept(listener, loops));
    io::stdin().read_to_end(&mut Vec::new())?;
    // Connections that are open end with the program.
    runtime.shutdown_background();
    Ok(())
}

async fn accept(listener: TcpListener, loops: Loops) {
    // An error belongs to a client that has gone.
    loop {
        if let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(connection_of(connection, loops));
        }
    }
}

/// One request at a time, until the client goes or sends something else.
async fn connection_of(mut connection: TcpStream, loops: Loops) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut head = [0; MOST_HEAD];
    loop {
        let mut length = 0;
        while !head[..length].ends_with(b"\r\n\r\n") {
            match connection.read(&mut head[length..]).await? {
                0 => return Ok(()),
                count => length += count,
            }
        }
        let steps = match &head[..length] {
            head if head.starts_with(b"GET /get/") => loops.get,
            head if head.starts_with(b"GET /scan/") => loops.scan,
            _ => {
                return connection
                    .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    .await;
            }
        };
        let result = compute(steps, length as u64);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{result:016x}");
        connection.write_all(answer.as_bytes()).await?;
    }
}

fn compute(steps: u64, seed: u64) -> u64 {
    let mut x = seed | 1;
    for _ in 0..black_box(steps) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// Nanoseconds of a step: the fastest of many short runs, because others only add time.
fn calibrate() -> f64 {
    const STEPS: u64 = 200_000;
    let took = |seed| {
        let begin = Instant::now();
        black_box(compute(STEPS, seed));
        begin.elapsed().as_nanos() as f64
    };
    (0..50).map(took).fold(f64::MAX, f64::min) / STEPS as f64
}
