//! Unmodified gunicorn: workers that serve one request at a time, one listening socket each.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_core::Ns;
use heddle_metrics::{Progress, Row};
use heddle_netns::Namespace;
use heddle_steer::hook::observe::Observed;
use heddle_steer::process::serving;

use super::http::Http;
use super::{OutsideOptions, Subject, compare};
use crate::kv::ServerProcess;
use crate::steer::Group;
use heddle_load::{Arrivals, LoadRun, Mix, Op, Plan, drive};

/// The case in results.
pub const CASE: &str = "gunicorn-unmodified";

const WORKERS: usize = 6;
const PORT: u16 = 8000;
/// Requests per second: about a third of the workers' capacity.
const RATE: f64 = 100.0;
const WARMUP: Ns = Ns::from_ms(500);
const TIMEOUT: Ns = Ns::from_secs(10);
/// Python and six workers take a second or two to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// An ordinary program; nothing in it is specific to Heddle.
const APP: &str = r#"
import time

def app(environ, start_response):
    time.sleep(0.2 if environ["PATH_INFO"] == "/long" else 0.01)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"#;

/// The start script: the server ends when its standard input closes.
const CONFIG: &str = r#"
import os, signal, sys, threading

def watch():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)

def when_ready(server):
    threading.Thread(target=watch, daemon=True).start()
    print("ready", flush=True)
"#;

/// Why gunicorn is unavailable; `None` if it is available.
#[must_use]
pub fn missing() -> Option<String> {
    find().is_none().then(|| {
        "gunicorn is not there: scripts/setup --steer installs it, or set HEDDLE_GUNICORN".into()
    })
}

/// From the user's setting, the path, or the folder of `scripts/setup --steer`.
fn find() -> Option<PathBuf> {
    let said = env::var_os("HEDDLE_GUNICORN").map(PathBuf::from);
    let paths = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&paths).map(|folder| folder.join("gunicorn"));
    let here = env::current_exe().ok();
    let built = here.iter().flat_map(|exe| exe.ancestors().skip(1).take(3));
    let built = built.map(|folder| folder.join("gunicorn/bin/gunicorn"));
    said.into_iter().chain(on_path).chain(built).find(|file| file.is_file())
}

struct Gunicorn<'a> {
    options: &'a OutsideOptions,
    program: PathBuf,
    folder: tempfile::TempDir,
}

/// Measures.
///
/// # Errors
/// System errors; gunicorn is missing.
pub fn gunicorn(
    options: &OutsideOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let program = find().ok_or_else(|| io::Error::other(missing().unwrap_or_default()))?;
    let folder = tempfile::Builder::new().prefix("heddle-gunicorn-").tempdir()?;
    fs::write(folder.path().join("short_and_long.py"), APP)?;
    fs::write(folder.path().join("gunicorn.conf.py"), CONFIG)?;
    compare(&Gunicorn { options, program, folder }, options, stop, progress)
}

impl Gunicorn<'_> {
    fn start(&self, net: &Namespace, stop: &AtomicBool) -> io::Result<ServerProcess> {
        let mut command = net.command(&self.program.to_string_lossy());
        command.args(["--workers", &WORKERS.to_string(), "--worker-class", "sync"]);
        command.args(["--reuse-port", "--bind", &format!("127.0.0.1:{PORT}"), "--backlog", "2048"]);
        command.args(["--log-level", "error", "--chdir"]).arg(self.folder.path());
        command.arg("short_and_long:app").current_dir(self.folder.path());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let ready = |line: &str| (line == "ready").then_some(());
        let started = ServerProcess::start("gunicorn", command, stop, ready);
        let (server, ()) = started.map_err(io::Error::other)?;
        wait_for_workers(&server)?;
        Ok(server)
    }
}

/// Waits until each worker has its socket.
fn wait_for_workers(server: &ServerProcess) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let sockets = serving(Some(server.pid()), Some(PORT)).map_err(io::Error::other)?;
        if sockets.len() >= WORKERS {
            // A worker that has its socket is still loading the application.
            thread::sleep(Duration::from_millis(500));
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(io::Error::other(format!("gunicorn has not started its workers{}", server.said())))
}

impl Subject for Gunicorn<'_> {
    const CASE: &'static str = CASE;
    const KIND: Observed = Observed::Connections;

    fn measure(
        &self,
        net: &Namespace,
        round: u32,
        stop: &AtomicBool,
        attach: &dyn Fn(u32, u16) -> io::Result<Option<Group>>,
    ) -> io::Result<LoadRun> {
        let server = self.start(net, stop)?;
        let _group = attach(server.pid(), PORT)?;
        net.run(|| offer(self.options, round, stop))
    }
}

fn offer(options: &OutsideOptions, round: u32, stop: &AtomicBool) -> io::Result<LoadRun> {
    let mix: Mix = "get=95,scan=5".parse().map_err(io::Error::other)?;
    let plan = Plan { warmup: WARMUP, end: WARMUP + options.duration, timeout: TIMEOUT };
    let arrivals = Arrivals::new(options.seed.wrapping_add(round.into()), RATE, mix, 1);
    let mut http = Http::new(([127, 0, 0, 1], PORT).into())?;
    let mut clock = http.clock();
    let go_on = |_: heddle_load::Moment<'_>| !stop.load(Ordering::Relaxed);
    drive(plan, RATE, arrivals, (&mut clock, &mut http), [None; Op::ALL.len()], go_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        assert_eq!(missing().is_none(), find().is_some());
        assert!(missing().is_none_or(|why| why.contains("scripts/setup --steer")));
        assert!(find().is_none_or(|file| file.is_file()));
    }
}
