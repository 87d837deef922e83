//! Maps that a policy uses instead of its own: how two policies, at two hooks or in two programs, share one.

use heddle_bpf::{Map, MapKind};
use rustix::fs::{OFlags, fcntl_getfl};

use super::{TypedDescriptors, invalid};
use crate::policy::{Maps, Object, declared};
use crate::request::{Error, ErrorKind, Role};

/// Takes the shared maps out of the descriptors given.
pub fn take(given: &mut TypedDescriptors, object: &Object) -> Result<Maps, Error> {
    let (maps, rest) = std::mem::take(given)
        .into_iter()
        .partition(|(role, _): &(Role, _)| matches!(role, Role::Map { .. }));
    *given = rest;
    let mut shared = Maps::new();
    for (role, fd) in maps {
        let Role::Map { name } = role else { continue };
        // A program can write to a map whatever the descriptor's mode, so the giver must already have write
        // access.
        let access = fcntl_getfl(&fd).map_err(|error| Error::system("no map", &error.into()))?;
        if access & OFlags::RWMODE != OFlags::RDWR {
            let text = format!("the descriptor for map `{name}` may not read and write it");
            return Err(Error::new(ErrorKind::Denied, text));
        }
        let map = Map::from_fd(fd)
            .map_err(|error| Error::system(format!("what was given for map `{name}`"), &error))?;
        check(&name, &map, object)?;
        shared.insert(name, map);
    }
    Ok(shared)
}

fn check(name: &str, map: &Map, object: &Object) -> Result<(), Error> {
    let decl = object.map(name).filter(|decl| !decl.is_data());
    let decl = decl.ok_or_else(|| {
        let names: Vec<&str> =
            object.maps.iter().filter(|m| !m.is_data()).map(|m| m.name.as_str()).collect();
        invalid(format!("the policy declares no map `{name}`; it has: {}", names.join(", ")))
    })?;
    let spec = map.spec();
    if !matches!(spec.kind, MapKind::Array | MapKind::Hash) || !declared(decl, spec) {
        return Err(invalid(format!(
            "map `{name}` of the policy is {} x {} bytes (key {}), the one to share is {} x {} (key \
             {}): they must be alike",
            decl.entries,
            decl.value_size,
            decl.key_size,
            spec.entries,
            spec.value_size,
            spec.key_size
        )));
    }
    Ok(())
}
