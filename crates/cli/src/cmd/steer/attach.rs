//! `heddle attach`: a policy for a server that runs.

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
use super::living::epoll_note;
use super::wanted::Wanted;
use super::{below, follow, policy, refused, unexpected};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle attach`.
#[derive(clap::Args)]
#[command(mut_arg("ports", |port| port.required(true)), after_help = "\
Example:
  heddle attach --port 8000 --policy jiq
  heddle attach --pid 812 --port 8000 --policy jiq --follow
  heddle attach --port 5300 --protocol udp --policy sita:type-offset=0,scan=2
  heddle attach --port 53,853 --protocol udp,tcp --address 127.0.0.1,::1 --policy round-robin
  heddle attach --port 5300 --policy ./mine.c
  heddle attach --port 5300 --policy hash --hook cpu-redirect --interface eth0 --cpus 2-5

The server is not changed and not restarted. It must have a socket with SO_REUSEPORT for each
worker (gunicorn --reuse-port). `heddle detach` puts everything back.")]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// A shipped policy, with parameters after a colon; or FILE.c, compiled here with clang; or FILE.o.
    #[arg(long)]
    policy: String,
    /// Where the policy decides: socket-select (which socket of the server), or cpu-redirect (which CPU
    /// carries a packet through the network stack).
    #[arg(long, default_value = "socket-select", value_parser = hook)]
    hook: Hook,
    /// The interface whose packets it sees (cpu-redirect).
    #[arg(long, conflicts_with = "follow")]
    interface: Option<String>,
    /// The CPUs to choose among, such as 2-5 (cpu-redirect).
    #[arg(long, value_name = "LIST", value_parser = below::cpus)]
    cpus: Option<std::vec::Vec<u32>>,
    /// Stay, and add the sockets of workers that restart, each second; ends with the server. Ctrl-C
    /// detaches.
    #[arg(long)]
    follow: bool,
    /// Do not ask the daemon, even if it runs: for root.
    #[arg(long)]
    direct: bool,
    /// Print one JSON object; with --follow one a line for each event.
    #[arg(long)]
    json: bool,
}

fn hook(name: &str) -> Result<Hook, String> {
    Hook::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Hook::ALL.into_iter().map(Hook::name).collect();
        format!("there is no such hook; there are {}", names.join(", "))
    })
}

/// Attaches, and says what happened.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let policy = policy::parse(&args.policy)?;
    let steering = open(args.direct)?;
    let wanted = args.wanted;
    // Before there is something to undo.
    let stop = crate::interrupt::flag()?;
    if let Some(below) = below::wanted(args.hook, args.interface, args.cpus)? {
        let (places, notes) = below::places(&wanted)?;
        let one = |place| below::attach(&steering, &wanted, &policy, &below, place);
        let Some(attached) = each(&steering, places, &stop, one)? else {
            return Ok(Outcome::Interrupted);
        };
        return tell(&attached, &notes, args.json, false).map(|()| Outcome::Done);
    }
    let find::Eligible { groups, notes } = find::eligible(&wanted)?;
    let one_of_them = |group| one(&steering, &wanted, &policy, group);
    let Some(attached) = each(&steering, groups, &stop, one_of_them)? else {
        return Ok(Outcome::Interrupted);
    };
    tell(&attached, &notes, args.json, args.follow)?;
    if args.follow {
        return follow::run(&steering, &wanted, &policy, attached, &stop, args.json);
    }
    Ok(Outcome::Done)
}

/// What came of one group.
pub struct Attached {
    pub attachment: Attachment,
    pub group: Group,
    pub took: Duration,
}

/// Attaches to every group that is meant; to all or to none.
pub fn all(steering: &Steering, wanted: &Wanted, policy: &Policy) -> anyhow::Result<Vec<Attached>> {
    let groups = find::eligible(wanted)?.groups;
    let attached = each(steering, groups, &AtomicBool::new(false), |group| {
        one(steering, wanted, policy, group)
    })?;
    Ok(attached.unwrap_or_default())
}

/// Attaches to each of `places`, or, if one fails, to none; `None` if `stop` was set meanwhile.
fn each<P>(
    steering: &Steering,
    places: Vec<P>,
    stop: &AtomicBool,
    mut attach: impl FnMut(P) -> anyhow::Result<Attached>,
) -> anyhow::Result<Option<Vec<Attached>>> {
    let mut attached: Vec<Attached> = Vec::new();
    for place in places {
        match attach(place) {
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

/// Detaches what was attached, all of it that can be.
fn undo(steering: &Steering, attached: &[Attached]) -> anyhow::Result<()> {
    let mut result = Ok(());
    for Attached { attachment, .. } in attached {
        if let Err(error) = super::detach::one(steering, attachment) {
            let id = attachment.id;
            let text = format!(
                "attachment {id} was made and cannot be undone (`heddle detach {id}`): {error}"
            );
            result = result.and(Err(anyhow::anyhow!(text)));
        }
    }
    result
}

fn one(
    steering: &Steering,
    wanted: &Wanted,
    policy: &Policy,
    group: Group,
) -> anyhow::Result<Attached> {
    let begin = Instant::now();
    let pid = wanted.pid.or_else(|| process::server(&group.sockets)).unwrap_or(0);
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

fn tell(attached: &[Attached], notes: &[String], json: bool, follow: bool) -> anyhow::Result<()> {
    let warning = |one: &Attached| epoll_note(&one.attachment.policy, &one.group.sockets);
    let warnings: Vec<String> =
        attached.iter().filter_map(warning).chain(notes.iter().cloned()).collect();
    if json && follow {
        for one in attached {
            out::text(&format!("{}\n", follow::event("attached", as_json(one))))?;
        }
        return Ok(());
    }
    if json {
        let attachments: Vec<Value> = attached.iter().map(as_json).collect();
        return out::json(
            &json!({ "schema": 1, "attachments": attachments, "warnings": warnings }),
        );
    }
    out::text(&text(attached, follow))?;
    warnings.iter().for_each(|warning| eprintln!("Note: {warning}"));
    Ok(())
}

fn as_json(one: &Attached) -> Value {
    json!({ "attachment": one.attachment, "took_ms": one.took.as_secs_f64() * 1e3 })
}

/// What was attached: in detail if it is one attachment, else a line for each.
fn text(attached: &[Attached], follow: bool) -> String {
    let mut text: String = attached.iter().map(line).collect();
    if let [Attached { attachment, .. }] = attached {
        for (index, label) in attachment.executors.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  executor {index}: {label}");
        }
    }
    let ids: Vec<String> = attached.iter().map(|one| one.attachment.id.to_string()).collect();
    let ids = ids.join(" ");
    text += &format!("See: heddle stats {ids} --watch. Undo: heddle detach {ids}.\n");
    text + end(attached, follow)
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

/// How it ends, and what becomes of workers that restart.
fn end(attached: &[Attached], follow: bool) -> &'static str {
    if attached.iter().any(|one| one.attachment.interface.is_some()) {
        match attached {
            [_] => "It ends with the server.\n",
            _ => "They end with the server.\n",
        }
    } else if follow {
        "Following: workers that restart are added. Ctrl-C detaches.\n"
    } else {
        "A worker that restarts has a new socket, which gets only what the policy chose for one that is closed; --follow adds it.\n"
    }
}
