//! A program whose file is read slowly, from a file system (FUSE) served by a process of its own, this test program
//! again. When it is executed, its first page comes at once and its second on command. By then the executing thread
//! has a new number.

use super::testbed::until;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SERVES: &str = "HEDDLE_SLOW_PROGRAM";
const PAGE: usize = 4096;

/// The file system and its server. Dropping it ends them; a thread that waits for the file then gets an error.
pub struct SlowProgram {
    server: Child,
    folder: tempfile::TempDir,
}

impl SlowProgram {
    pub fn new() -> SlowProgram {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("mount")).unwrap();
        let server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "slow_program::server", "--ignored", "--nocapture"])
            .env(SERVES, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let file = SlowProgram { server, folder };
        until("the file system is there", || file.folder.path().join("serves").exists());
        file
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mount/program")
    }

    /// Whether an executing thread waits for its second page.
    pub fn is_waited_for(&self) -> bool {
        self.folder.path().join("waits").exists()
    }

    /// Delivers the second page.
    pub fn go_on(&self) {
        std::fs::write(self.folder.path().join("go"), "").unwrap();
    }
}

impl Drop for SlowProgram {
    fn drop(&mut self) {
        // Then the kernel fails all requests.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = unmount(self.folder.path().join("mount"), UnmountFlags::DETACH);
    }
}

/// Not a test: the server.
#[test]
#[ignore = "is started by other tests"]
fn server() {
    let Some(folder) = std::env::var_os(SERVES).map(PathBuf::from) else { return };
    let mut device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let how = format!("fd={},rootmode=40755,user_id=0,group_id=0", device.as_raw_fd());
    let how = CString::new(how).unwrap();
    mount("slow", folder.join("mount"), "fuse", MountFlags::empty(), Some(&*how)).unwrap();
    std::fs::write(folder.join("serves"), "").unwrap();
    let mut request = vec![0; 1 << 17];
    while let Ok(length) = device.read(&mut request) {
        let Some(answer) = answer(&request[..length], &folder) else { continue };
        // The requester may have been killed meanwhile.
        let _ = device.write(&answer);
    }
}

/// The kernel's requests, by `linux/fuse.h`; this file system knows no others.
mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const RELEASE: u32 = 18;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const FORGET_SOME: u32 = 42;
}

/// `struct fuse_in_header` precedes each request.
const HEAD: usize = 40;
const NOT_KNOWN: i32 = -38;

fn u32_at(request: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(request[at..at + 4].try_into().unwrap())
}

fn u64_at(request: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(request[at..at + 8].try_into().unwrap())
}

/// Returns the answer to a request, with its header; some want none.
fn answer(request: &[u8], folder: &Path) -> Option<Vec<u8>> {
    let body = match u32_at(request, 4) {
        op::FORGET | op::INTERRUPT | op::FORGET_SOME => return None,
        op::INIT => Ok(init()),
        op::LOOKUP => Ok(entry()),
        op::GETATTR => Ok([words(&[3600, 0]), attributes(u64_at(request, 16))].concat()),
        op::OPEN => Ok(words(&[1, 0])),
        op::READ => Ok(read(u64_at(request, HEAD + 8) as usize, folder)),
        op::RELEASE | op::FLUSH => Ok(Vec::new()),
        _ => Err(NOT_KNOWN),
    };
    let error = *body.as_ref().err().unwrap_or(&0);
    let body = body.unwrap_or_default();
    let length = 16 + body.len() as u32;
    let head = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &request[8..16]].concat();
    Some([head, body].concat())
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_ne_bytes()).collect()
}

/// `struct fuse_init_out`: without read-ahead, so that each page is requested.
fn init() -> Vec<u8> {
    let mut all = halves(&[7, 31, 0, 0, 0, PAGE as u32, 1]);
    all.resize(64, 0);
    all
}

/// `struct fuse_entry_out`: every name is the program.
fn entry() -> Vec<u8> {
    [words(&[2, 0, 3600, 3600, 0]), attributes(2)].concat()
}

/// `struct fuse_attr`: number 1 is the folder, the other the program.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == 1 { (0o40755, 0) } else { (0o100_755, program().len() as u64) };
    [words(&[node, size, 8, 0, 0, 0]), halves(&[0, 0, 0, mode, 1, 0, 0, 0, PAGE as u32, 0])]
        .concat()
}

/// Returns a page of the program: the second one on command.
fn read(from: usize, folder: &Path) -> Vec<u8> {
    if from > 0 {
        std::fs::write(folder.join("waits"), "").unwrap();
        while !folder.join("go").exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    program().into_iter().skip(from).take(PAGE).collect()
}

/// Returns a program for x86-64, the guest's, which ends at once. It has a page of code, and one of data that is
/// partly zero: the kernel writes that when it loads it.
fn program() -> Vec<u8> {
    let (code, data, begin) = (0x40_0000, 0x40_2000, 64 + 2 * 56);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2_u16, 62].map(u16::to_ne_bytes).concat());
    file.extend(halves(&[1]));
    file.extend(words(&[code + begin, 64, 0]));
    file.extend(halves(&[0]));
    file.extend([64_u16, 56, 2, 64, 0, 0].map(u16::to_ne_bytes).concat());
    let page = PAGE as u64;
    for (flags, at, address, filled, size) in
        [(5, 0, code, page, page), (6, page, data + page, 8, 64)]
    {
        file.extend(halves(&[1, flags]));
        file.extend(words(&[at, address, address, filled, size, page]));
    }
    // xor edi, edi; mov eax, exit; syscall
    file.extend(b"\x31\xff\xb8\x3c\0\0\0\x0f\x05");
    file.resize(PAGE + 8, 0);
    file
}
