//! `heddle steer map`: the maps that a policy shares with programs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use heddle_bpf::{Map, MapKind};
use heddle_metrics::{Cell, Table};
use heddle_steer::request::MapInfo;
use serde_json::{Value, json};

use super::connect::open;
use super::map_values;
use super::refused;
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle steer map`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle steer map 1
  heddle steer map 1 quotas
  heddle steer map 1 quotas 7
  heddle steer map 1 quotas 7 1000
  heddle steer map 1 quotas 0x07 --delete
  heddle steer map 1 quotas --watch

Keys and values are integers, 17 or 0x11, or all bytes: hex:11000000. A wider value is a list of
eight-byte words, 3,4: the given words are set, the rest stay. Zero entries of an array are not
listed.")]
pub struct Args {
    /// The attachment's number (`heddle steer ls`).
    #[arg(value_name = "ID")]
    id: u32,
    /// The map's name in the policy [default: list the maps].
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The key [default: all].
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: Option<String>,
    /// The new value [default: show the current one].
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: Option<String>,
    /// Remove the key; in an array, set it to zero.
    #[arg(long, requires = "key", conflicts_with_all = ["value", "watch"])]
    delete: bool,
    /// Show changes each second, until Ctrl-C.
    #[arg(long, requires = "name", conflicts_with = "value")]
    watch: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object; with --watch, one per change and line.
    #[arg(long)]
    json: bool,
}

/// Lists, shows or sets.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let steering = open(args.direct)?;
    let maps = steering.maps(args.id).map_err(refused)?;
    let Some(name) = &args.name else {
        list(&maps, args.json)?;
        return Ok(Outcome::Done);
    };
    let map = named(args.id, name, maps)?;
    let key =
        args.key.as_deref().map(|text| sized("key", text, map.spec().key_size)).transpose()?;
    match (&key, &args.value) {
        (Some(key), Some(value)) => set(name, &map, key, value)?,
        (Some(key), None) if args.delete => delete(name, &map, key)?,
        _ if args.watch => return watch(&map, key.as_deref(), args.json),
        (key, _) => show(name, &map, key.as_deref(), args.json)?,
    }
    Ok(Outcome::Done)
}

fn list(maps: &[(MapInfo, OwnedFd)], json: bool) -> anyhow::Result<()> {
    if json {
        let maps: Vec<&MapInfo> = maps.iter().map(|(info, _)| info).collect();
        return out::json(&json!({ "schema": 1, "maps": maps }));
    }
    let mut table = Table::new("", ["map", "key bytes", "value bytes", "entries", "mappable"]);
    for (info, _) in maps {
        let MapInfo { name, key_size, value_size, entries, mappable } = info;
        let mut row = vec![Cell::text(name)];
        row.extend([key_size, value_size, entries].map(|n| Cell::number(n.to_string())));
        row.push(Cell::text(if *mappable { "yes" } else { "no" }));
        table.push(row);
    }
    table.notes.push(
        "Maps named hd_... are Heddle's own; maps whose name ends in constants are read-only."
            .into(),
    );
    Ok(out::text(&table.to_text(out::style()))?)
}

fn named(id: u32, name: &str, maps: Vec<(MapInfo, OwnedFd)>) -> anyhow::Result<Map> {
    let names: Vec<String> = maps.iter().map(|(info, _)| info.name.clone()).collect();
    let Some((_, fd)) = maps.into_iter().find(|(info, _)| info.name == name) else {
        let names = names.join(", ");
        return Err(Usage(format!("attachment {id} has no map `{name}`; it has {names}")).into());
    };
    Map::from_fd(fd).map_err(|error| anyhow::anyhow!("cannot use map `{name}`: {error}"))
}

fn sized(what: &str, text: &str, size: u32) -> Result<Vec<u8>, Usage> {
    map_values::parse(text, size as usize).map_err(|error| Usage(format!("{what} {error}")))
}

fn is_array(map: &Map) -> bool {
    map.spec().kind == MapKind::Array
}

/// Refuses writes to Heddle's own maps, except the executors' lines, which belong to the program.
fn refuse_own(name: &str, map: &Map) -> Result<(), Usage> {
    let kind = map.spec().kind;
    let writable = matches!(kind, MapKind::Array | MapKind::Hash) && !map.spec().read_only;
    if !writable || (name.starts_with("hd_") && name != "hd_lines") {
        let why = if name.starts_with("hd_") { "Heddle's own" } else { "constant" };
        return Err(Usage(format!("map `{name}` is {why}: it is read-only")));
    }
    Ok(())
}

fn set(name: &str, map: &Map, key: &[u8], value: &str) -> anyhow::Result<()> {
    refuse_own(name, map)?;
    let now = map.lookup(key).map_err(|error| explain(name, map, key, &error))?;
    let now = now.unwrap_or_else(|| vec![0; map.spec().value_size as usize]);
    let value =
        map_values::overwrite(value, &now).map_err(|error| Usage(format!("value {error}")))?;
    map.update(key, &value).map_err(|error| explain(name, map, key, &error))
}

fn delete(name: &str, map: &Map, key: &[u8]) -> anyhow::Result<()> {
    refuse_own(name, map)?;
    if is_array(map) {
        let zero = vec![0; map.spec().value_size as usize];
        return map.update(key, &zero).map_err(|error| explain(name, map, key, &error));
    }
    match map.remove(key) {
        Ok(true) => Ok(()),
        Ok(false) => Err(no_key(name, map, key)),
        Err(error) => Err(explain(name, map, key, &error)),
    }
}

fn no_key(name: &str, map: &Map, key: &[u8]) -> anyhow::Error {
    let (text, entries) = (map_values::format(key), map.spec().entries);
    let inside = map_values::number(key).is_some_and(|key| key < entries.into());
    if map.spec().kind == MapKind::Hash || inside {
        return anyhow::anyhow!("map `{name}` has nothing at key {text}");
    }
    Usage(format!("map `{name}` has keys 0 to {}, not {text}", entries.saturating_sub(1))).into()
}

fn explain(name: &str, map: &Map, key: &[u8], error: &io::Error) -> anyhow::Error {
    /// `E2BIG`: the kernel's error for a key beyond the end of an array, and for a full hash.
    const TOO_BIG: i32 = 7;
    let full = error.raw_os_error() == Some(TOO_BIG);
    match map.spec().kind {
        MapKind::Hash if full => anyhow::anyhow!(
            "map `{name}` is full ({} keys): remove one with --delete, or declare it larger in the policy",
            map.spec().entries
        ),
        _ if full => no_key(name, map, key),
        _ => anyhow::anyhow!("cannot write map `{name}`: {error}"),
    }
}

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

fn entries(map: &Map, key: Option<&[u8]>) -> io::Result<Vec<Entry>> {
    let keys = match key {
        Some(key) => vec![key.to_vec()],
        None => map.keys()?,
    };
    let mut entries = Vec::new();
    for one in keys {
        if let Some(value) = map.lookup(&one)?
            && (key.is_some() || map.spec().kind == MapKind::Hash || value.iter().any(|b| *b != 0))
        {
            entries.push((one, value));
        }
    }
    Ok(entries)
}

fn as_json((key, value): &Entry) -> Value {
    json!({ "key": map_values::as_json(key), "value": map_values::as_json(value) })
}

fn line((key, value): &Entry) -> String {
    format!("{} {}\n", map_values::format(key), map_values::format(value))
}

fn read(name: &str, map: &Map, key: Option<&[u8]>) -> anyhow::Result<Vec<Entry>> {
    entries(map, key).map_err(|error| anyhow::anyhow!("cannot read map `{name}`: {error}"))
}

fn show(name: &str, map: &Map, key: Option<&[u8]>, json: bool) -> anyhow::Result<()> {
    let entries = read(name, map, key)?;
    if let (Some(key), true) = (key, entries.is_empty()) {
        return Err(no_key(name, map, key));
    }
    if json {
        let entries: Vec<Value> = entries.iter().map(as_json).collect();
        return out::json(&json!({ "schema": 1, "map": name, "entries": entries }));
    }
    // For a single key, the value is enough.
    let text: String = match key {
        Some(_) => entries.iter().map(|(_, value)| map_values::format(value) + "\n").collect(),
        None => entries.iter().map(line).collect(),
    };
    Ok(out::text(&text)?)
}

fn watch(map: &Map, key: Option<&[u8]>, json: bool) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let mut before: Vec<Entry> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let now = read(&map.spec().name, map, key)?;
        for entry in now.iter().filter(|entry| !before.contains(entry)) {
            out::text(&if json { format!("{}\n", as_json(entry)) } else { line(entry) })?;
        }
        for (gone, _) in before.iter().filter(|(key, _)| now.iter().all(|(k, _)| k != key)) {
            let key = map_values::format(gone);
            out::text(&if json {
                format!("{}\n", json!({ "key": key, "value": null }))
            } else {
                format!("{key} -\n")
            })?;
        }
        before = now;
        for _ in 0..20 {
            if !stop.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(Outcome::Done)
}
