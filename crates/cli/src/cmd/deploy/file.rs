//! Deployment files: the text, checked as far as that is possible without looking at the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use heddle_agent::guardian::cpus;
use heddle_policies::{Visitor, with_policy};
use heddle_steer::hook::Hook;
use heddle_steer::policy::{read, set_params, shipped};
use heddle_steer::process::Protocol;
use heddle_steer::request::{PacketTarget, Policy};
use toml::de::DeValue;

use super::service::Service;
use super::toml_table::{FileError, Located, Source, Table, flag, list, number, text};
use crate::cmd::agent::time;
use crate::cmd::steer::selector::Selector;
use crate::cmd::steer::{packets, policy};

const TOP: [&str; 4] = ["name", "service", "steer", "agent"];
const SERVICE: [&str; 6] = ["unit", "cgroup", "pid", "command", "port", "protocol"];
const STEER: [&str; 8] =
    ["name", "policy", "hook", "port", "protocol", "address", "interface", "cpus"];
const AGENT: [&str; 11] = [
    "policy",
    "cpus",
    "backend",
    "agents",
    "spin",
    "class",
    "be",
    "class-map",
    "patience",
    "grace",
    "restarts",
];
/// The longest name, as of enclaves.
const LONGEST_NAME: usize = 32;

/// A service and its policies.
#[derive(Clone, Debug)]
pub struct DeploymentFile {
    pub path: PathBuf,
    pub text: String,
    /// The deployment's name: the key `name`, or the file's.
    pub name: String,
    pub service: Service,
    pub steer: Vec<SteerSection>,
    pub agent: Option<AgentSection>,
}

/// A `[[steer]]` table.
#[derive(Clone, Debug)]
pub struct SteerSection {
    pub name: String,
    pub line: usize,
    pub policy: Policy,
    /// The ports, protocols and addresses.
    pub selector: Selector,
    /// The interface and the CPUs, for `cpu-redirect`.
    pub packets: Option<PacketTarget>,
}

/// The `[agent]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSection {
    pub line: usize,
    pub policy: String,
    /// All options but the policy and the class map, as `heddle agent run` takes them.
    pub options: Vec<String>,
    /// The section whose attachment says what threads work on.
    pub class_map: Option<String>,
}

impl SteerSection {
    /// The hook at which the policy decides.
    pub fn hook(&self) -> Hook {
        if self.packets.is_some() { Hook::CpuRedirect } else { Hook::SocketSelect }
    }
}

/// Where the policies that a file names come from.
pub enum PolicySource<'a> {
    /// Names and files, relative to the deployment file's folder; C is compiled.
    Files,
    /// What was compiled when the file was applied.
    Stored(&'a BTreeMap<String, Policy>),
}

impl DeploymentFile {
    /// Reads and checks the file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow::anyhow!("cannot read {}: {error}", path.display()))?;
        let path = std::path::absolute(path)?;
        Self::parse(&path, text, &PolicySource::Files).map_err(super::usage)
    }

    /// Parses and checks the text.
    pub fn parse(path: &Path, text: String, from: &PolicySource<'_>) -> Result<Self, FileError> {
        let source = Source { file: path, text: &text };
        let parsed = source.parse()?;
        let top = Table::new(source, "", 1, parsed.get_ref(), &TOP)?;
        let name = name(&top, path)?;
        let service = service(&top)?;
        let steer = sections(&top, from)?;
        let agent = top.table("agent", "[agent]", &AGENT)?;
        let agent = agent.map(|table| agent_section(&table, &steer)).transpose()?;
        if steer.is_empty() && agent.is_none() {
            let problem = "no policy: give at least one [[steer]] table or an [agent] table";
            return Err(source.error(1, problem));
        }
        if let (Service::Any, [], Some(agent)) = (&service, &steer[..], &agent) {
            let problem = "[agent] needs a service whose threads to schedule: add a [service] table with \
                `unit`, `cgroup`, `command`, `port` or `pid`";
            return Err(source.error(agent.line, problem));
        }
        Ok(Self { path: path.into(), name, service, steer, agent, text })
    }

    /// Returns the policies as the file names them, for [`PolicySource::Stored`].
    pub fn policies(&self) -> BTreeMap<String, Policy> {
        self.steer.iter().map(|section| (section.name.clone(), section.policy.clone())).collect()
    }
}

fn name(top: &Table<'_>, path: &Path) -> Result<String, FileError> {
    let given = top.text("name", "the deployment's name, in quotes")?;
    let (name, line) = match given {
        Some(Located { value, line }) => (value, line),
        None => (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), 1),
    };
    match is_name(&name) {
        true => Ok(name),
        false => Err(top.source.error(
            line,
            format!(
                "`{name}` is not a valid name of a deployment: use letters, digits, `-` and `_`, at most \
                    {LONGEST_NAME}, in the file's name or in the key `name` at the top"
            ),
        )),
    }
}

/// Whether `name` can name a deployment, and the enclave of its agent.
pub fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_fine)
        && name.len() <= LONGEST_NAME
}

fn service(top: &Table<'_>) -> Result<Service, FileError> {
    let Some(table) = top.table("service", "[service]", &SERVICE)? else { return Ok(Service::Any) };
    let unit = table.text("unit", "a systemd unit, in quotes, such as \"nginx\"")?;
    let cgroup = table.text("cgroup", "a cgroup's path, in quotes")?;
    let command = table.text("command", "a program's name, in quotes, such as \"nginx\"")?;
    let pid = table.get("pid", |value| number(value, i32::MAX.cast_unsigned()))?;
    let port = table.get("port", port)?;
    let protocol = table.get("protocol", protocol)?;
    if let (None, Some(one)) = (&port, &protocol) {
        return Err(table.wrong(one.line, "protocol", "is for `port`, which is not given"));
    }
    let given = [
        unit.map(|it| (it.line, Service::Unit(it.value))),
        cgroup.map(|it| (it.line, Service::Cgroup(it.value.into()))),
        command.map(|it| (it.line, Service::Command(it.value))),
        pid.map(|it| (it.line, Service::Pid(it.value))),
        port.map(|it| (it.line, Service::Port(it.value, protocol.map(|it| it.value)))),
    ];
    let mut given = given.into_iter().flatten();
    let (_, service) = given.next().ok_or_else(|| {
        let text = "[service] is empty: give `unit`, `cgroup`, `command`, `port` or `pid`";
        table.source.error(table.line, text)
    })?;
    match given.next() {
        None => Ok(service),
        Some((line, _)) => Err(table.source.error(
            line,
            "[service] names the service twice: keep one of `unit`, `cgroup`, `command`, `port`, `pid`",
        )),
    }
}

fn port(value: &DeValue<'_>) -> Result<u16, String> {
    let number = number(value, u32::from(u16::MAX))?;
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or_else(|| "port 0 is no port".into())
}

fn protocol(value: &DeValue<'_>) -> Result<Protocol, String> {
    let name = text(value, "\"udp\" or \"tcp\"")?;
    Protocol::from_name(&name).ok_or_else(|| format!("`{name}`: expected \"udp\" or \"tcp\""))
}

fn address(value: &DeValue<'_>) -> Result<IpAddr, String> {
    let address = text(value, "an address, in quotes, such as \"127.0.0.1\"")?;
    address.parse().map_err(|_| format!("`{address}` is not an IP address"))
}

fn sections(top: &Table<'_>, from: &PolicySource<'_>) -> Result<Vec<SteerSection>, FileError> {
    let tables = top.tables("steer", "[[steer]]", &STEER)?;
    let mut names = BTreeSet::new();
    let mut sections = Vec::new();
    for (n, table) in tables.iter().enumerate() {
        let section = steer_section(table, n, from)?;
        if !names.insert(section.name.clone()) {
            let problem = format!("two [[steer]] tables are called `{}`", section.name);
            return Err(table.source.error(table.line, problem));
        }
        sections.push(section);
    }
    Ok(sections)
}

fn steer_section(
    table: &Table<'_>,
    n: usize,
    from: &PolicySource<'_>,
) -> Result<SteerSection, FileError> {
    let missing = |key: &str, example: &str| {
        let problem = format!("[[steer]] has no `{key}`: for example, {example}");
        table.source.error(table.line, problem)
    };
    let name = table.text("name", "the section's name, in quotes")?;
    let name = name.map_or_else(|| format!("steer-{}", n + 1), |name| name.value);
    let given = table.text("policy", "a steering policy, in quotes, such as \"jiq\"")?;
    let given = given.ok_or_else(|| missing("policy", "policy = \"jiq\""))?;
    let policy = match from {
        PolicySource::Stored(stored) => stored.get(&name).cloned().ok_or_else(|| {
            table.wrong(given.line, "policy", "is not in the deployment's record: apply it again")
        })?,
        PolicySource::Files => steer_policy(&given.value, table.source.file)
            .map_err(|problem| table.wrong(given.line, "policy", &problem))?,
    };
    let ports = table.get("port", |value| list(value, port))?;
    let ports = ports.ok_or_else(|| missing("port", "port = 8000"))?;
    let protocols = table.get("protocol", |value| list(value, protocol))?;
    let addresses = table.get("address", |value| list(value, address))?;
    let selector = Selector {
        ports: ports.value,
        protocols: protocols.map(|it| it.value).unwrap_or_default(),
        addresses: addresses.map(|it| it.value).unwrap_or_default(),
        ..Selector::default()
    };
    let packets = packet_target(table)?;
    Ok(SteerSection { name, line: table.line, policy, selector, packets })
}

fn packet_target(table: &Table<'_>) -> Result<Option<PacketTarget>, FileError> {
    let hook = table.get("hook", |value| {
        let name = text(value, "\"socket-select\" or \"cpu-redirect\"")?;
        Hook::from_name(&name).ok_or_else(|| {
            format!("there is no hook `{name}`; expected \"socket-select\" or \"cpu-redirect\"")
        })
    })?;
    let line = hook.as_ref().map_or(table.line, |hook| hook.line);
    let hook = hook.map_or(Hook::SocketSelect, |hook| hook.value);
    let interface = table.text("interface", "an interface, in quotes, such as \"eth0\"")?;
    let cpus = table.get("cpus", |value| {
        packets::cpus(&text(value, "a list of CPUs, in quotes, such as \"2-5\"")?)
    })?;
    packets::options(hook, interface.map(|it| it.value), cpus.map(|it| it.value)).map_err(|error| {
        // The message is about the options of the command line.
        let problem = error.0.replace("--hook ", "hook ").replace("--", "");
        table.wrong(line, "hook", &problem)
    })
}

/// Resolves a policy, and checks its parameters and, for a file, that it may be deployed.
fn steer_policy(given: &str, file: &Path) -> Result<Policy, String> {
    let beside = |name: &str| {
        let is_file = name.ends_with(".c") || name.ends_with(".o");
        let folder = file.parent().filter(|_| is_file);
        folder.map(|folder| folder.join(name).to_string_lossy().into_owned())
    };
    let (name, _) = heddle_steer::policy::split_params(given);
    let resolved = beside(name).map(|path| given.replacen(name, &path, 1));
    let policy = policy::parse(resolved.as_deref().unwrap_or(given));
    let mut policy = policy.map_err(|error| format!("{error:#}"))?;
    let object = policy.object.as_deref().or_else(|| shipped(&policy.name));
    let object = object.ok_or_else(|| format!("there is no policy `{}`", policy.name))?;
    let mut object = read(object).map_err(|error| format!("{name}: {error}"))?;
    // As an attachment lists them.
    policy.parameters =
        set_params(&mut object, &policy.parameters).map_err(|error| format!("{name}: {error}"))?;
    if policy.object.is_some() {
        heddle_steer::policy::check(&object).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(policy)
}

/// Checks a thread policy.
struct Exists;

impl Visitor for Exists {
    type Out = ();

    fn visit<P: heddle_core::Policy>(self, _: P) {}
}

fn agent_section(table: &Table<'_>, sections: &[SteerSection]) -> Result<AgentSection, FileError> {
    let policy = table.get("policy", |value| {
        let name = text(value, "a thread policy, in quotes, such as \"shinjuku:quantum=1ms\"")?;
        with_policy(&name, Exists).map_err(|error| error.to_string())?;
        Ok(name)
    })?;
    let policy = policy.ok_or_else(|| {
        table.source.error(table.line, "[agent] has no `policy`: for example, policy = \"fifo\"")
    })?;
    let mut options = Vec::new();
    let mut option = |name: &str, value: Option<Located<String>>| {
        if let Some(value) = value {
            options.extend([format!("--{name}"), value.value]);
        }
    };
    option("cpus", table.get("cpus", cpu_list)?);
    for (name, allowed) in
        [("backend", &["auto", "scx", "fair", "rt"][..]), ("agents", &["central", "local"])]
    {
        option(name, table.get(name, |value| one_of(value, allowed))?);
    }
    for name in ["patience", "grace"] {
        option(name, table.get(name, duration)?);
    }
    let restarts = table.get("restarts", |value| Ok(number(value, 1000)?.to_string()))?;
    option("restarts", restarts);
    for name in ["class", "be"] {
        let texts =
            |value: &DeValue<'_>| list(value, |one| text(one, "a rule, in quotes, or several"));
        let rules = table.get(name, texts)?;
        let line = rules.as_ref().map_or(0, |rules| rules.line);
        for rule in rules.map(|rules| rules.value).unwrap_or_default() {
            check_rule(name, &rule).map_err(|problem| table.wrong(line, name, &problem))?;
            option(name, Some(Located { value: rule, line }));
        }
    }
    if table.get("spin", flag)?.is_some_and(|spin| spin.value) {
        options.push("--spin".into());
    }
    let class_map = table.text("class-map", "the name of a [[steer]] table, in quotes")?;
    if let Some(named) = &class_map
        && sections.iter().all(|section| section.name != named.value)
    {
        let names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        let problem = format!("no [[steer]] table is called `{}`; there are: {names}", named.value);
        return Err(table.wrong(named.line, "class-map", &problem));
    }
    let class_map = class_map.map(|named| named.value);
    Ok(AgentSection { line: table.line, policy: policy.value, options, class_map })
}

fn cpu_list(value: &DeValue<'_>) -> Result<String, String> {
    let list = text(value, "a list of CPUs, in quotes, such as \"2-7,9\"")?;
    cpus::parse(&list).map(|cpus| cpus::format(&cpus))
}

fn one_of(value: &DeValue<'_>, allowed: &[&str]) -> Result<String, String> {
    let expected = format!("one of {}, in quotes", allowed.join(", "));
    let name = text(value, &expected)?;
    let is_allowed = allowed.contains(&name.as_str());
    is_allowed.then_some(name).ok_or_else(|| format!("expected {expected}"))
}

fn duration(value: &DeValue<'_>) -> Result<String, String> {
    let given = text(value, "a duration, in quotes, such as \"2s\" or \"500ms\"")?;
    time::parse(&given).map(|_| given)
}

fn check_rule(key: &str, rule: &str) -> Result<(), String> {
    let rule = if key == "be" { format!("be={rule}") } else { rule.to_owned() };
    let parsed = rule.parse::<heddle_agent::classes::Rule>();
    parsed.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DeploymentFile, String> {
        DeploymentFile::parse(Path::new("/a/kv.toml"), text.into(), &PolicySource::Files)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_becomes_the_options_of_the_commands() {
        let file = parse(
            "[service]\nport = 80\nprotocol = \"tcp\"\n\
            [[steer]]\nport = [53, 853]\nprotocol = [\"udp\", \"tcp\"]\naddress = \"::1\"\npolicy = \"sita:scan=2\"\n\
            [[steer]]\nport = 80\npolicy = \"hash\"\nhook = \"cpu-redirect\"\ninterface = \"eth0\"\ncpus = \"2-3\"\n\
            [agent]\npolicy = \"fifo\"\ncpus = \"2-3,5\"\nspin = true\nbe = [\"a*\", \"b*\"]\nrestarts = 0\n\
            class-map = \"steer-1\"\n",
        )
        .unwrap();
        assert_eq!(
            (file.name.as_str(), &file.service),
            ("kv", &Service::Port(80, Some(Protocol::Tcp)))
        );
        let [first, second] = &file.steer[..] else { panic!("two sections") };
        assert_eq!(first.selector.to_string(), "udp or tcp port 53 or 853 at ::1");
        assert_eq!(
            (first.name.as_str(), first.line, first.hook()),
            ("steer-1", 4, Hook::SocketSelect)
        );
        assert_eq!(second.packets.as_ref().unwrap().cpus, [2, 3]);
        assert_eq!(second.hook(), Hook::CpuRedirect);
        let agent = file.agent.unwrap();
        assert_eq!(
            agent.options,
            ["--cpus", "2-3,5", "--restarts", "0", "--be", "a*", "--be", "b*", "--spin"]
        );
        assert_eq!(agent.class_map.as_deref(), Some("steer-1"));
    }

    #[test]
    fn a_stored_policy_needs_no_file() {
        let text = "[[steer]]\nname = \"a\"\nport = 1\npolicy = \"./gone.c\"\n";
        let policy = Policy { name: "gone".into(), parameters: Vec::new(), object: Some(vec![1]) };
        let stored = BTreeMap::from([("a".to_owned(), policy.clone())]);
        let from = PolicySource::Stored(&stored);
        let file = DeploymentFile::parse(Path::new("/a/kv.toml"), text.into(), &from).unwrap();
        assert_eq!(file.policies(), stored);
        assert!(parse(text).unwrap_err().starts_with("/a/kv.toml:4: [[steer]] `policy`: "));
    }

    #[test]
    fn names_are_those_of_enclaves() {
        let steer = "[[steer]]\nport = 1\npolicy = \"hash\"\n";
        let named = |name: &str| parse(&format!("name = \"{name}\"\n{steer}"));
        assert_eq!(named("lc-2").unwrap().name, "lc-2");
        for wrong in ["-a", "a/b", "../a", "a.b", &"a".repeat(33)] {
            let error = named(wrong).unwrap_err();
            assert!(error.contains("kv.toml:1: ") && error.contains("not a valid name"), "{error}");
        }
    }

    #[test]
    fn what_is_written_twice_or_in_vain_is_refused() {
        let steer = "[[steer]]\nname = \"a\"\nport = 1\npolicy = \"hash\"\n";
        for (text, says) in [
            (format!("{steer}{steer}"), ":5: two [[steer]] tables are called `a`"),
            (format!("[service]\n{steer}"), ":1: [service] is empty"),
            (
                format!("[service]\nunit = \"a\"\nprotocol = \"udp\"\n{steer}"),
                ":3: [service] `protocol`",
            ),
            ("steer = 1\n".to_owned(), ":1: `steer`: expected tables"),
            ("service = 1\n".to_owned(), ":1: `service`: expected a table"),
            (format!("{steer}[agent]\n"), ":5: [agent] has no `policy`"),
            (
                format!("{steer}[agent]\npolicy = \"fifo\"\nspin = 1\n"),
                ":7: [agent] `spin`: expected true or false",
            ),
            (format!("{steer}[agent]\npolicy = \"fifo\"\ngrace = \"1\"\n"), "not a duration"),
            (
                format!("{steer}[agent]\npolicy = \"fifo\"\nbackend = \"cfs\"\n"),
                "one of auto, scx, fair, rt",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
