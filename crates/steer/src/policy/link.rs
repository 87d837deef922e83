//! Links objects into one program: Heddle's own frame of a hook, the policy in it, and what the policy uses
//! of Heddle.
//!
//! A policy is compiled once and knows nothing of hooks. Linking puts it into the frame of one
//! (`bpf/steer/hooks`): the frame reads the input, calls `hd_policy`, and enforces the result. So a policy
//! cannot enforce anything else, whatever bytes it consists of.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::instruction::{CALL, Instruction, LOAD_64, call, load};
use super::object::{Function, Line, MapDecl, Object, Target};

/// A program whose maps are still names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its instructions; calls are resolved.
    pub instructions: Vec<u64>,
    /// Which loads refer to which map.
    pub map_uses: Vec<MapUse>,
    /// The maps that it uses.
    pub maps: Vec<MapDecl>,
    /// The source lines of instructions, in order of instructions.
    pub lines: Vec<Line>,
    /// Its functions, in order: the first instruction, and the name.
    pub functions: Vec<(usize, String)>,
}

/// A load of a map's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// The instruction's index.
    pub at: usize,
    /// The map's name.
    pub map: String,
    /// For data: the byte of the only value.
    pub offset: Option<u32>,
}

/// Why objects cannot be linked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// An undefined name.
    #[error(
        "`{function}` uses `{name}`, which is not defined: policies can call what heddle.h declares and \
         what they define themselves"
    )]
    Undefined {
        /// Where it is used.
        function: String,
        /// What is missing.
        name: String,
    },
    /// It reads the executors' sockets, but they have none here.
    #[error(
        "this policy calls `{0}`, which looks at sockets: it decides at socket-select only, where the \
         executors are sockets"
    )]
    NoSockets(String),
    /// Two objects define it.
    #[error("`{0}` is defined twice: names that begin with hd_ are Heddle's")]
    Twice(String),
    /// A reference without an instruction, or an instruction without the reference it needs.
    #[error("a damaged policy: the references of `{0}` do not fit its instructions")]
    Damaged(String),
}

/// The function that a program begins with.
const ENTRY: &str = "hd_main";

/// Links `objects` into the program that begins at `hd_main`. Unreachable functions are left out.
pub fn link(objects: &[&Object]) -> Result<Image, LinkError> {
    let names = Names::of(objects)?;
    let order = names.reachable()?;
    let starts: BTreeMap<&str, usize> = order
        .iter()
        .scan(0, |next, function| {
            let start = *next;
            *next += function.code.len();
            Some((function.name.as_str(), start))
        })
        .collect();
    let mut image = Image {
        instructions: Vec::new(),
        map_uses: Vec::new(),
        maps: Vec::new(),
        lines: Vec::new(),
        functions: order.iter().map(|f| (starts[f.name.as_str()], f.name.clone())).collect(),
    };
    for function in &order {
        place(&mut image, function, &names, &starts)?;
    }
    let used: BTreeSet<&str> = image.map_uses.iter().map(|map_use| map_use.map.as_str()).collect();
    let maps = names.maps.values().filter(|map| used.contains(map.name.as_str()));
    let maps = maps.map(|map| (*map).clone()).collect();
    Ok(Image { maps, ..image })
}

/// All definitions of the objects.
struct Names<'a> {
    functions: BTreeMap<&'a str, &'a Function>,
    maps: BTreeMap<&'a str, &'a MapDecl>,
}

impl<'a> Names<'a> {
    fn of(objects: &[&'a Object]) -> Result<Self, LinkError> {
        let mut names = Self { functions: BTreeMap::new(), maps: BTreeMap::new() };
        for object in objects {
            for function in &object.functions {
                if names.functions.insert(&function.name, function).is_some() {
                    return Err(LinkError::Twice(function.name.clone()));
                }
            }
            for map in &object.maps {
                if names.maps.insert(&map.name, map).is_some() {
                    return Err(LinkError::Twice(map.name.clone()));
                }
            }
        }
        Ok(names)
    }

    /// Returns the functions reachable from the entry, itself first.
    fn reachable(&self) -> Result<Vec<&'a Function>, LinkError> {
        let undefined = |function: &str, name: &str| LinkError::Undefined {
            function: function.into(),
            name: name.into(),
        };
        let entry = *self.functions.get(ENTRY).ok_or_else(|| undefined("the program", ENTRY))?;
        let mut order: Vec<&Function> = vec![entry];
        let mut known = BTreeSet::from([ENTRY]);
        let mut open = VecDeque::from([entry]);
        while let Some(function) = open.pop_front() {
            for reference in &function.references {
                let Target::Name(name) = &reference.to else { continue };
                match self.functions.get(name.as_str()) {
                    Some(found) if known.insert(&found.name) => {
                        order.push(found);
                        open.push_back(found);
                    }
                    None if !self.maps.contains_key(name.as_str()) => {
                        return Err(undefined(&function.name, name));
                    }
                    _ => {}
                }
            }
        }
        Ok(order)
    }
}

fn place(
    image: &mut Image,
    function: &Function,
    names: &Names<'_>,
    starts: &BTreeMap<&str, usize>,
) -> Result<(), LinkError> {
    let damaged = || LinkError::Damaged(function.name.clone());
    let start = image.instructions.len();
    let inside = function.lines.iter().filter(|line| line.at < function.code.len());
    image.lines.extend(inside.map(|line| Line { at: start + line.at, ..line.clone() }));
    let mut references = function.references.iter().peekable();
    let mut at = 0;
    while let Some(instruction) = function.code.get(at).copied().map(Instruction) {
        image.instructions.push(instruction.0);
        if instruction.opcode() == LOAD_64 {
            image.instructions.push(*function.code.get(at + 1).ok_or_else(damaged)?);
        }
        let reference = references.next_if(|reference| reference.at == at).map(|r| &r.to);
        match (instruction.opcode(), instruction.source()) {
            (CALL, call::FUNCTION) => {
                let called = reference.and_then(|to| starts.get(to.function()?));
                let distance = called.and_then(|called| distance(start + at, *called));
                image.instructions[start + at] =
                    instruction.with_immediate(distance.ok_or_else(damaged)?).0;
            }
            (LOAD_64, load::NUMBER) => {
                if let Some(to) = reference {
                    image.map_uses.push(map_use(names, start + at, to).ok_or_else(damaged)?);
                }
            }
            (LOAD_64, _) => return Err(damaged()),
            _ if reference.is_some() => return Err(damaged()),
            _ => {}
        }
        at += instruction.slots();
    }
    // Each in order and at an instruction, or it is left over here.
    if references.next().is_some() { Err(damaged()) } else { Ok(()) }
}

/// Returns the distance of a call at `from` to a function at `to`, as calls encode it.
fn distance(from: usize, to: usize) -> Option<i32> {
    i32::try_from(i64::try_from(to).ok()? - i64::try_from(from).ok()? - 1).ok()
}

fn map_use(names: &Names<'_>, at: usize, to: &Target) -> Option<MapUse> {
    let (map, offset) = match to {
        Target::Name(name) => (name, None),
        Target::Data { map, offset } => (map, Some(*offset)),
    };
    let decl = names.maps.get(map.as_str())?;
    // Data referred to by name means its first byte, and only data has byte offsets.
    let offset = offset.or_else(|| decl.is_data().then_some(0));
    (offset.is_none() || decl.is_data()).then(|| MapUse { at, map: map.clone(), offset })
}

impl Target {
    fn function(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Data { .. } => None,
        }
    }
}

impl MapDecl {
    /// Returns whether it is a data section.
    #[must_use]
    pub fn is_data(&self) -> bool {
        matches!(self.kind, super::object::DeclKind::Data { .. })
    }
}

impl Image {
    /// Returns the instructions with the maps' descriptors in them.
    pub(crate) fn with_maps(
        &self,
        descriptor: impl Fn(&str) -> Option<i32>,
    ) -> Result<Vec<u64>, LinkError> {
        let mut instructions = self.instructions.clone();
        for map_use in &self.map_uses {
            let damaged = || LinkError::Damaged(map_use.map.clone());
            let fd = descriptor(&map_use.map).ok_or_else(damaged)?;
            let kind = if map_use.offset.is_some() { load::MAP_VALUE } else { load::MAP };
            let offset = i32::try_from(map_use.offset.unwrap_or(0)).map_err(|_| damaged())?;
            let here = instructions.get_mut(map_use.at..).unwrap_or_default();
            let [first, second, ..] = here else { return Err(damaged()) };
            *first = Instruction(*first).with_source(kind).with_immediate(fd).0;
            *second = Instruction(*second).with_immediate(offset).0;
        }
        Ok(instructions)
    }
}
