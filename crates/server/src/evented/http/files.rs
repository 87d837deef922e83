//! Files beneath a directory, opened anew for each request as in SKQ's web server (section 6.7).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use super::status::Status;

/// Attempts at an open that a concurrent rename disturbs.
const TRIES: usize = 8;
/// The file served for a directory.
const INDEX: &[u8] = b"index.html";

/// A directory.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// The part of a file that is not yet sent.
#[derive(Debug)]
pub(super) struct Body {
    file: File,
    at: u64,
    pub(super) left: u64,
}

impl Root {
    pub(super) fn open(dir: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root(open(dir, flags, Mode::empty())?))
    }

    /// Returns the file that a path names, or its directory's index, and its type. No path leads out of the directory.
    pub(super) fn find(&self, path: &[u8]) -> Result<(Body, &'static str), Status> {
        let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
        let mut name = path[slashes..].to_vec();
        if name.is_empty() {
            name.extend_from_slice(INDEX);
        }
        let mut file = self.beneath(&name)?;
        let mut about = file.metadata().map_err(|_| Status::FAILED)?;
        if about.is_dir() {
            name.push(b'/');
            name.extend_from_slice(INDEX);
            file = self.beneath(&name)?;
            about = file.metadata().map_err(|_| Status::FAILED)?;
        }
        // Pipes and devices have no length, and may block.
        if !about.is_file() {
            return Err(Status::FORBIDDEN);
        }
        Ok((Body { file, at: 0, left: about.len() }, kind(&name)))
    }

    fn beneath(&self, name: &[u8]) -> Result<File, Status> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            match openat2(&self.0, name, flags, Mode::empty(), how) {
                Ok(fd) => return Ok(File::from(fd)),
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(status_of(error)),
            }
        }
        Err(Status::BUSY)
    }
}

fn status_of(error: Errno) -> Status {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Status::NOT_FOUND,
        // EXDEV: the path leads out of the directory.
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::NXIO => Status::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::BUSY,
        _ => Status::FAILED,
    }
}

impl Body {
    /// Adds up to `most` bytes to `out`. False if the file has become shorter than it was.
    pub(super) fn fill(&mut self, most: usize, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        let wanted = self.left.min(most as u64) as usize;
        out.resize(begin + wanted, 0);
        let read = self.file.read_at(&mut out[begin..], self.at).unwrap_or(0);
        out.truncate(begin + read);
        self.at += read as u64;
        self.left -= read as u64;
        read > 0 || wanted == 0
    }
}

/// A file's type, by its name.
fn kind(name: &[u8]) -> &'static str {
    let extension = Path::new(OsStr::from_bytes(name)).extension().and_then(OsStr::to_str);
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("pdf") => "application/pdf",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("wasm") => "application/wasm",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}
