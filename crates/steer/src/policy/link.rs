//! From objects to one program: Heddle's own frame of a hook, the policy in it, and what the policy asks of Heddle.
//!
//! A policy is compiled once and knows nothing of hooks. Linking puts it into the frame of one (`bpf/steer/hooks`):
//! the frame reads the input, calls `hd_policy`, and enforces what it says. So a policy cannot enforce anything else,
//! whatever bytes it is made of.

use std::collections::{BTreeMap, VecDeque};

use super::instruction::{Instruction, load};
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
    /// Which line an instruction came from, in order of instructions.
    pub lines: Vec<Line>,
}

/// A load of a map's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// The instruction's index.
    pub at: usize,
    /// The map's name.
    pub map: String,
    /// For data: which byte of the one value.
    pub offset: Option<u32>,
}

/// Why objects make no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nobody defines a name.
    #[error(
        "`{function}` uses `{name}`, which is not defined: policies can call what heddle.h declares and what they define themselves"
    )]
    Undefined {
        /// Where it is used.
        function: String,
        /// What is missing.
        name: String,
    },
    /// It asks the executors' sockets, and they are none.
    #[error(
        "this policy calls `{0}`, which looks at sockets: it decides at socket-select only, where the executors are sockets"
    )]
    NoSockets(String),
    /// Two objects define it.
    #[error("`{0}` is defined twice: names that begin with hd_ are Heddle's")]
    Twice(String),
    /// A reference has no instruction.
    #[error("a damaged policy: function `{0}`")]
    Damaged(String),
}

/// The function that a program begins with.
const ENTRY: &str = "hd_main";

/// Links `objects` into the program that begins at `hd_main`. Functions that it does not reach are left out.
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
    };
    for function in &order {
        place(&mut image, function, &names, &starts)?;
    }
    let used = |map: &&MapDecl| image.map_uses.iter().any(|u| u.map == map.name);
    image.maps = names.maps.values().copied().filter(used).cloned().collect();
    Ok(image)
}

/// All that objects define.
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

    /// The functions that the entry reaches, itself first.
    fn reachable(&self) -> Result<Vec<&'a Function>, LinkError> {
        let undefined = |function: &str, name: &str| LinkError::Undefined {
            function: function.into(),
            name: name.into(),
        };
        let entry = *self.functions.get(ENTRY).ok_or_else(|| undefined("the program", ENTRY))?;
        let mut order: Vec<&Function> = vec![entry];
        let mut open = VecDeque::from([entry]);
        while let Some(function) = open.pop_front() {
            for reference in &function.references {
                let Target::Name(name) = &reference.to else { continue };
                match self.functions.get(name.as_str()) {
                    Some(found) if !order.iter().any(|f| f.name == found.name) => {
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
    image.instructions.extend(&function.code);
    image
        .lines
        .extend(function.lines.iter().map(|line| Line { at: start + line.at, ..line.clone() }));
    for reference in &function.references {
        let at = start.checked_add(reference.at).ok_or_else(damaged)?;
        let instruction = Instruction(*image.instructions.get(at).ok_or_else(damaged)?);
        let (map, offset) = match &reference.to {
            Target::Name(name) => match starts.get(name.as_str()) {
                Some(target) if instruction.calls_function() => {
                    let distance = i64::try_from(*target)
                        .ok()
                        .zip(i64::try_from(at).ok())
                        .map(|(to, from)| to - from - 1);
                    let distance = distance
                        .and_then(|distance| i32::try_from(distance).ok())
                        .ok_or_else(damaged)?;
                    image.instructions[at] = instruction.with_immediate(distance).0;
                    continue;
                }
                _ => {
                    (name, names.maps.get(name.as_str()).and_then(|map| map.is_data().then_some(0)))
                }
            },
            Target::Data { map, offset } => (map, Some(*offset)),
        };
        let loads = instruction.opcode() == super::instruction::LOAD_64
            && at + 1 < image.instructions.len();
        if !loads || !names.maps.contains_key(map.as_str()) {
            return Err(damaged());
        }
        image.map_uses.push(MapUse { at, map: map.clone(), offset });
    }
    Ok(())
}

impl MapDecl {
    /// Whether it is a section of data.
    #[must_use]
    pub fn is_data(&self) -> bool {
        matches!(self.kind, super::object::DeclKind::Data { .. })
    }
}

impl Image {
    /// The instructions with the maps' descriptors in them.
    pub(crate) fn with_maps(
        &self,
        descriptor: impl Fn(&str) -> Option<i32>,
    ) -> Result<Vec<u64>, LinkError> {
        let mut instructions = self.instructions.clone();
        for map_use in &self.map_uses {
            let damaged = || LinkError::Damaged(map_use.map.clone());
            let fd = descriptor(&map_use.map).ok_or_else(damaged)?;
            let kind = if map_use.offset.is_some() { load::MAP_VALUE } else { load::MAP };
            let first = Instruction(instructions[map_use.at]).with_source(kind).with_immediate(fd);
            let offset = i32::try_from(map_use.offset.unwrap_or(0)).map_err(|_| damaged())?;
            instructions[map_use.at] = first.0;
            instructions[map_use.at + 1] =
                Instruction(instructions[map_use.at + 1]).with_immediate(offset).0;
        }
        Ok(instructions)
    }
}
