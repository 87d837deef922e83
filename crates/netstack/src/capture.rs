//! Frames of lanes in a file that Wireshark reads: `pcap=FILE`.
//!
//! Lanes copy frames to a bounded queue, and a thread of its own writes them: under a lane's lock nothing waits for a
//! disk. Frames for which the queue has no room are missing from the file, and counted.

use crate::pcap::{Direction, InterfaceId, PcapWriter};
use crate::wire::{Segmentation, Transmit};
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Frames that wait to be written, at most.
const QUEUE: usize = 4096;

/// How long frames may stay in memory if no more come.
const FLUSH: Duration = Duration::from_millis(100);

/// A frame of a lane.
struct Frame {
    lane: usize,
    time: u64,
    direction: Direction,
    bytes: Box<[u8]>,
}

/// Where a lane's frames are recorded.
#[derive(Clone, Debug)]
pub struct Capture {
    lane: usize,
    queue: SyncSender<Frame>,
    dropped: Arc<AtomicU64>,
}

/// Begins to record the frames of `lanes` lanes of `interface` in the file `path`, which is overwritten. Recording ends
/// when all captures are dropped.
///
/// # Errors
/// The system's, if the file cannot be created or a thread not started.
pub fn start(path: &str, interface: &str, lanes: usize) -> io::Result<Vec<Capture>> {
    let mut writer = PcapWriter::new(BufWriter::new(File::create(path)?), 0)?;
    let names = (0..lanes).map(|lane| format!("{interface}, lane {lane}"));
    let ids = names.map(|name| writer.add_interface(&name)).collect::<io::Result<Vec<_>>>()?;
    let (queue, frames) = sync_channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let lost = Arc::clone(&dropped);
    let path = path.to_owned();
    std::thread::Builder::new().name("heddle-pcap".into()).spawn(move || {
        if let Err(error) = write(&mut writer, &ids, &frames, &lost) {
            eprintln!("heddle: the capture in {path} ends here: {error}");
        }
    })?;
    Ok((0..lanes)
        .map(|lane| Capture { lane, queue: queue.clone(), dropped: dropped.clone() })
        .collect())
}

fn write(
    writer: &mut PcapWriter<BufWriter<File>>,
    ids: &[InterfaceId],
    frames: &Receiver<Frame>,
    dropped: &AtomicU64,
) -> io::Result<()> {
    loop {
        let frame = match frames.recv_timeout(FLUSH) {
            Ok(frame) => Some(frame),
            Err(_) => {
                writer.flush()?;
                frames.recv().ok()
            }
        };
        let Some(frame) = frame else { break };
        writer.frame(ids[frame.lane], frame.time, frame.direction, &frame.bytes)?;
    }
    writer.dropped(ids[0], now(), dropped.load(Ordering::Relaxed))?;
    writer.flush()
}

/// Returns the time since 1970, in nanoseconds.
fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Capture {
    /// Records a frame. Does not wait.
    pub(crate) fn record(&self, direction: Direction, bytes: &[u8]) {
        let frame = Frame { lane: self.lane, time: now(), direction, bytes: bytes.into() };
        if self.queue.try_send(frame).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A place to put frames, with a capture that gets a copy of each.
pub(crate) struct Tap<'a, T> {
    pub(crate) transmit: &'a mut T,
    pub(crate) capture: Option<&'a Capture>,
}

impl<T: Transmit> Transmit for Tap<'_, T> {
    #[inline]
    fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.transmit.send_with(length, recorded(self.capture, write))
    }

    fn has_large(&self) -> bool {
        self.transmit.has_large()
    }

    fn largest(&mut self) -> usize {
        self.transmit.largest()
    }

    fn send_large(
        &mut self,
        how: Segmentation,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.transmit.send_large(how, length, recorded(self.capture, write))
    }

    #[inline]
    fn batch(&self) -> Option<u16> {
        self.transmit.batch()
    }

    fn send_behind(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.transmit.send_behind(length, recorded(self.capture, write))
    }
}

/// Returns a function that writes a frame with `write` and records it.
#[inline]
fn recorded(capture: Option<&Capture>, write: impl FnOnce(&mut [u8])) -> impl FnOnce(&mut [u8]) {
    move |frame| {
        write(frame);
        if let Some(capture) = capture {
            capture.record(Direction::Sent, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_lanes_are_in_the_file() {
        let folder = heddle_test_support::temp_dir();
        let path = folder.path().join("lanes.pcapng");
        let captures = start(path.to_str().unwrap(), "eth0", 2).unwrap();
        captures[0].record(Direction::Received, b"a frame that came");
        captures[1].record(Direction::Sent, b"a frame that went");
        drop(captures);
        heddle_test_support::until("the frames are in the file", || {
            let file = std::fs::read(&path).unwrap();
            let has = |part: &[u8]| file.windows(part.len()).any(|window| window == part);
            has(b"eth0, lane 1") && has(b"a frame that came") && has(b"a frame that went")
        });
        assert!(start("/nowhere/lanes.pcapng", "eth0", 1).is_err());
    }
}
