//! Maps.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use heddle_bpf::{Map, MapKind, MapView};
use heddle_steer::request::{Error, ErrorKind};

use crate::error::{failed, invalid, number_of};
use crate::steering::steering;
use crate::text::{text, values};

/// `struct hd_map`: opaque to C.
pub struct HdMap {
    map: Map,
    view: OnceLock<MapView>,
}

/// `struct hd_map_shape`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Shape {
    key_size: u32,
    value_size: u32,
    entries: u32,
    stride: u32,
}

impl HdMap {
    /// Returns another descriptor of the map.
    pub fn descriptor(&self) -> Result<OwnedFd, Error> {
        let copy = self.map.try_clone().map(OwnedFd::from);
        copy.map_err(|error| Error::system("cannot copy a descriptor", &error))
    }
}

/// Opens map `name` of attachment `id`, given as `7/state`.
pub fn open(path: &str) -> Result<Map, Error> {
    let parts = path.split_once('/').and_then(|(id, name)| Some((id.parse().ok()?, name)));
    let (id, name) = parts.ok_or_else(|| {
        invalid(&format!(
            "`{path}` is not the name of a map: give NUMBER/NAME, of the attachment and the map"
        ))
    })?;
    let (_, fd) = steering()?.map(id, name)?;
    Map::from_fd(fd).map_err(|error| Error::system(format!("map {path}"), &error))
}

/// See the header.
///
/// # Safety
/// `path` is a string.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_map_open(path: *const c_char) -> *mut HdMap {
    // SAFETY: as the caller promises.
    match unsafe { text(path, "the map's name") }.and_then(open) {
        Ok(map) => Box::into_raw(Box::new(HdMap { map, view: OnceLock::new() })),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// `map` is null, or from [`hd_map_open`] and not closed; the program does not use it or its memory any more.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_map_close(map: *mut HdMap) {
    if !map.is_null() {
        // SAFETY: made by `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(map) });
    }
}

/// # Safety
/// `map` is null, or from [`hd_map_open`] and open for as long as the result is used.
unsafe fn opened<'a>(map: *const HdMap) -> Result<&'a HdMap, Error> {
    // SAFETY: as the caller promises.
    unsafe { map.as_ref() }.ok_or_else(|| invalid("the map is NULL"))
}

fn kernel(error: &std::io::Error) -> Error {
    Error::system("the map", error)
}

/// See the header.
///
/// # Safety
/// `map` is open; `key` and `value` have the map's sizes.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_map_lookup(
    map: *const HdMap,
    key: *const c_void,
    value: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    let lookup = || unsafe {
        let map = &opened(map)?.map;
        let key = values(key.cast::<u8>(), map.spec().key_size as usize, "the key")?;
        if value.is_null() {
            return Err(invalid("the value is NULL"));
        }
        let none = || Error::new(ErrorKind::NotFound, "the map has no value for this key");
        let found = map.lookup(key).map_err(|error| kernel(&error))?.ok_or_else(none)?;
        let size = found.len().min(map.spec().value_size as usize);
        value.cast::<u8>().copy_from_nonoverlapping(found.as_ptr(), size);
        Ok(0)
    };
    number_of(lookup())
}

/// See the header.
///
/// # Safety
/// `map` is open; `key` and `value` have the map's sizes.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_map_update(
    map: *const HdMap,
    key: *const c_void,
    value: *const c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    let update = || unsafe {
        let map = &opened(map)?.map;
        let key = values(key.cast::<u8>(), map.spec().key_size as usize, "the key")?;
        let value = values(value.cast::<u8>(), map.spec().value_size as usize, "the value")?;
        map.update(key, value).map_err(|error| kernel(&error))?;
        Ok(0)
    };
    number_of(update())
}

/// See the header.
///
/// # Safety
/// `map` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_map_mmap(map: *const HdMap) -> *mut c_void {
    // SAFETY: as the caller promises.
    match unsafe { opened(map) }.and_then(memory) {
        Ok(at) => at,
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

fn memory(map: &HdMap) -> Result<*mut c_void, Error> {
    let view = match map.view.get() {
        Some(view) => view,
        None => {
            let view = MapView::new(&map.map).map_err(|error| kernel(&error))?;
            map.view.get_or_init(|| view)
        }
    };
    Ok(view.word(0, 0).as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `map` is open, and `shape` may be written to.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_map_shape(map: *const HdMap, shape: *mut Shape) -> c_int {
    // SAFETY: as the caller promises.
    let write = || unsafe {
        let spec = opened(map)?.map.spec();
        let stride =
            if spec.kind == MapKind::Array { spec.value_size.next_multiple_of(8) } else { 0 };
        let (key_size, value_size, entries) = (spec.key_size, spec.value_size, spec.entries);
        let shape = shape.as_mut().ok_or_else(|| invalid("the shape is NULL"))?;
        *shape = Shape { key_size, value_size, entries, stride };
        Ok(0)
    };
    number_of(write())
}
