//! `heddle steer attach`: attaches a policy to a running server.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heddle_steer::client::Steering;
use heddle_steer::hook::Hook;
use heddle_steer::process;
use heddle_steer::request::{Answer, Attachment, Policy, Request, Role};
use serde_json::{Value, json};

use super::connect::open;
use super::find::{self, Group};
use super::selector::Selector;
use super::{follow, packets, policy, refused, unexpected};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle steer attach`.
#[derive(clap::Args)]
#[command(mut_arg("ports", |port| port.required(true)), after_help = "\
Example:
  heddle steer attach --port 8000 --policy jiq
  heddle steer attach --pid 812 --port 8000 --policy jiq --follow
  heddle steer attach --port 5300 --protocol udp --policy sita:type-offset=0,scan=2
  heddle steer attach --port 53,853 --protocol udp,tcp --address 127.0.0.1,::1 --policy round-robin
  heddle steer attach --port 5300 --policy ./mine.c
  heddle steer attach --port 5300 --policy hash --hook cpu-redirect --interface eth0 --cpus 2-5

The server is neither changed nor restarted. It must have a socket with SO_REUSEPORT for each
worker (gunicorn --reuse-port). `heddle steer detach` undoes everything.")]
pub struct Args {
    #[command(flatten)]
    selector: Selector,
    /// A shipped policy, with parameters after a colon; or FILE.c, compiled here with clang; or FILE.o.
    #[arg(long)]
    policy: String,
    /// What the policy chooses: socket-select (a socket of the server), or cpu-redirect (the CPU that
    /// carries a packet through the network stack).
    #[arg(long, default_value = "socket-select", value_parser = hook)]
    hook: Hook,
    /// The interface whose packets it handles (cpu-redirect).
    #[arg(long, conflicts_with = "follow")]
    interface: Option<String>,
    /// The CPUs to choose among, such as 2-5 (cpu-redirect).
    #[arg(long, value_name = "LIST", value_parser = packets::cpus)]
    cpus: Option<std::vec::Vec<u32>>,
    /// Keep running and, each second, add the sockets of restarted workers; ends with the server. Ctrl-C
    /// detaches.
    #[arg(long)]
    follow: bool,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print one JSON object; with --follow, one per event and line.
    #[arg(long)]
    json: bool,
}

fn hook(name: &str) -> Result<Hook, String> {
    Hook::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Hook::ALL.into_iter().map(Hook::name).collect();
        format!("unknown hook; available: {}", names.join(", "))
    })
}

/// Attaches, and prints the result.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let policy = policy::parse(&args.policy)?;
    let steering = open(args.direct)?;
    let selector = args.selector;
    // Before there is anything to undo.
    let stop = crate::interrupt::flag()?;
    if let Some(below) = packets::options(args.hook, args.interface, args.cpus)? {
        let (targets, notes) = packets::targets(&selector)?;
        let attach = |target| packets::attach(&steering, &selector, &policy, &below, target);
        let Some(attached) = attach_each(&steering, targets, &stop, attach)? else {
            return Ok(Outcome::Interrupted);
        };
        return print(&attached, &notes, args.json, false).map(|()| Outcome::Done);
    }
    let find::Eligible { groups, notes } = find::eligible(&selector)?;
    let attach = |group| attach_group(&steering, &selector, &policy, group);
    let Some(attached) = attach_each(&steering, groups, &stop, attach)? else {
        return Ok(Outcome::Interrupted);
    };
    print(&attached, &notes, args.json, args.follow)?;
    if args.follow {
        return follow::run(&steering, &selector, &policy, attached, &stop, args.json);
    }
    Ok(Outcome::Done)
}

/// A new attachment, with its sockets.
pub struct Attached {
    pub attachment: Attachment,
    pub group: Group,
    pub took: Duration,
}

/// Attaches to every selected group, or to none.
pub fn all(
    steering: &Steering,
    selector: &Selector,
    policy: &Policy,
) -> anyhow::Result<Vec<Attached>> {
    let groups = find::eligible(selector)?.groups;
    let attached = attach_each(steering, groups, &AtomicBool::new(false), |group| {
        attach_group(steering, selector, policy, group)
    })?;
    Ok(attached.unwrap_or_default())
}

/// Attaches to each of `targets`, or to none if one fails. Returns `None` if `stop` was set meanwhile.
fn attach_each<T>(
    steering: &Steering,
    targets: Vec<T>,
    stop: &AtomicBool,
    mut attach: impl FnMut(T) -> anyhow::Result<Attached>,
) -> anyhow::Result<Option<Vec<Attached>>> {
    let mut attached: Vec<Attached> = Vec::new();
    for target in targets {
        match attach(target) {
            Ok(one) => attached.push(one),
            Err(error) => {
                return Err(match undo(steering, &attached) {
                    Ok(()) => error,
                    Err(left) => error.context(left),
                });
            }
        }
        if stop.load(Ordering::Relaxed) {
            return undo(steering, &attached).map(|()| None);
        }
    }
    Ok(Some(attached))
}

/// Detaches what was attached, as far as possible.
fn undo(steering: &Steering, attached: &[Attached]) -> anyhow::Result<()> {
    let mut result = Ok(());
    for Attached { attachment, .. } in attached {
        if let Err(error) = super::detach::one(steering, attachment) {
            let id = attachment.id;
            let text = format!(
                "attachment {id} was made and cannot be undone: {error} (try `heddle steer detach {id}`)"
            );
            result = result.and(Err(anyhow::anyhow!(text)));
        }
    }
    result
}

/// Attaches to one group.
pub fn attach_group(
    steering: &Steering,
    selector: &Selector,
    policy: &Policy,
    group: Group,
) -> anyhow::Result<Attached> {
    let begin = Instant::now();
    let pid = selector.pid.or_else(|| process::server(&group.sockets)).unwrap_or(0);
    let labels = group.sockets.iter().map(process::Serving::label);
    let request = Request::Attach {
        policy: policy.clone(),
        hook: Hook::SocketSelect,
        below: None,
        pid,
        command: process::command(pid),
        roles: (0..).zip(labels).map(|(index, label)| Role::Executor { index, label }).collect(),
    };
    let copies = group.copies().map_err(refused)?;
    match steering.serve(request, copies).map_err(refused)?.0 {
        Answer::Attached(attachment) => Ok(Attached { attachment, group, took: begin.elapsed() }),
        other => Err(unexpected(&other)),
    }
}

fn print(attached: &[Attached], notes: &[String], json: bool, follow: bool) -> anyhow::Result<()> {
    if json && follow {
        for one in attached {
            out::text(&format!("{}\n", follow::event("attached", as_json(one))))?;
        }
        return Ok(());
    }
    if json {
        let attachments: Vec<Value> = attached.iter().map(as_json).collect();
        return out::json(&json!({ "schema": 1, "attachments": attachments, "warnings": notes }));
    }
    out::text(&text(attached, follow))?;
    notes.iter().for_each(|note| eprintln!("Note: {note}"));
    Ok(())
}

fn as_json(one: &Attached) -> Value {
    json!({ "attachment": one.attachment, "took_ms": one.took.as_secs_f64() * 1e3 })
}

/// How many executors of a new attachment are listed.
const SHOWN: usize = 64;

/// Describes what was attached: in detail for one attachment, else a line each.
fn text(attached: &[Attached], follow: bool) -> String {
    let mut text: String = attached.iter().map(line).collect();
    if let [Attached { attachment, .. }] = attached {
        for (index, label) in attachment.executors.iter().enumerate().take(SHOWN) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  executor {index}: {label}");
        }
        let more = attachment.executors.len().saturating_sub(SHOWN);
        if more > 0 {
            let _ = writeln!(text, "  and {more} more (heddle steer stats {})", attachment.id);
        }
    }
    let ids: Vec<String> = attached.iter().map(|one| one.attachment.id.to_string()).collect();
    let ids = ids.join(" ");
    text += &format!("See: heddle steer stats {ids} --watch. Undo: heddle steer detach {ids}.\n");
    text + lifetime(attached, follow)
}

fn line(one: &Attached) -> String {
    let Attachment { id, policy: name, parameters, protocol, address, executors, .. } =
        &one.attachment;
    let policy = policy::display(name, parameters);
    let ms = one.took.as_secs_f64() * 1e3;
    let what = match &one.attachment.interface {
        Some(interface) => format!("CPUs for packets from {interface} to"),
        None => "sockets at".into(),
    };
    format!(
        "Attachment {id}: {policy} chooses among {} {what} {protocol} {address} (took {ms:.0} ms).\n",
        executors.len()
    )
}

/// When the attachments end, and what happens to restarted workers.
fn lifetime(attached: &[Attached], follow: bool) -> &'static str {
    if attached.iter().any(|one| one.attachment.interface.is_some()) {
        match attached {
            [_] => "It ends with the server.\n",
            _ => "They end with the server.\n",
        }
    } else if follow {
        "Following: restarted workers are added. Ctrl-C detaches.\n"
    } else {
        "A restarted worker has a new socket, which gets only inputs that the policy chose for a closed one; \
            --follow adds it.\n"
    }
}
