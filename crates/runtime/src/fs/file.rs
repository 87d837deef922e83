//! Open files.

use super::{FileTimes, Metadata, OpenOptions, Permissions};
use crate::blocking;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

/// An open file: `std::fs::File`, whose calls leave the CPU to other tasks.
///
/// ```
/// use heddle_rt::fs::File;
/// use std::io::{Read as _, Seek as _, Write as _};
///
/// let path = std::env::temp_dir().join(format!("heddle-doc-file-{}", std::process::id()));
/// let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
/// file.write_all(b"hello, file")?;
/// file.sync_all()?;
/// file.rewind()?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "hello, file");
/// heddle_rt::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct File(fs::File);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| fs::File::open(path)).map(File)
    }

    /// Opens a file for writing; creates it or discards its contents.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| fs::File::create(path)).map(File)
    }

    /// Creates a file and opens it for reading and writing.
    ///
    /// # Errors
    /// Returns the system's error: [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is one.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| fs::File::create_new(path)).map(File)
    }

    /// Returns options for opening a file.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over a file of the standard library; as `From`.
    pub fn from_std(file: fs::File) -> File {
        File(file)
    }

    /// Returns the standard library's file; as `From`.
    pub fn into_std(self) -> fs::File {
        self.0
    }

    /// Waits until contents and metadata are on the disk.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// Waits until the contents are on the disk, with the metadata that reading them takes.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Cuts the file to `size` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.0.set_len(size))
    }

    /// Returns size, times, permissions and type.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Changes the permissions.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Changes the times of access and modification.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        blocking(|| self.0.set_times(times))
    }

    /// Changes the time of modification.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        blocking(|| self.0.set_modified(time))
    }

    /// Creates a second handle to the open file. Both share one position.
    ///
    /// # Errors
    /// Fails if the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.try_clone().map(File)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        blocking(|| (&self.0).read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        blocking(|| (&self.0).read_vectored(bufs))
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        blocking(|| (&self.0).read_exact(buf))
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        blocking(|| (&self.0).read_to_end(buf))
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        blocking(|| (&self.0).read_to_string(buf))
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        blocking(|| (&self.0).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(|| (&self.0).write_vectored(bufs))
    }

    fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
        blocking(|| (&self.0).write_all(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        blocking(|| (&self.0).seek(position))
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        (&*self).read_exact(buf)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
        (&*self).write_all(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.read_at(buf, offset))
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        blocking(|| self.0.read_exact_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.write_at(buf, offset))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        blocking(|| self.0.write_all_at(buf, offset))
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        File(file)
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.0
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File(fd.into())
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.0.into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.0.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.0.into_raw_fd()
    }
}
