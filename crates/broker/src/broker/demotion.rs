//! Members that keep a CPU: they lose their priority, and then their membership.

use heddle_core::Ns;
use heddle_share::abi::APPS;
use heddle_sys::scheduling::Scheduling;

use super::{Broker, Leaving};
use crate::admission;
use crate::events::Kind as Event;
use crate::member::{Member, Overtime};
use crate::overtime::{Observation, judge};
use crate::realtime;

/// How long a demoted member may go on before it is removed.
const REMOVE_AFTER: Ns = Ns::from_ms(1000);

impl Broker {
    /// A member has waited for long: takes the CPU from one that keeps it.
    pub(super) fn heed(&mut self, at: usize, cpu: usize, now: Ns) -> Result<(), String> {
        let app = self.clients[at].as_ref().and_then(|client| client.app);
        let app = app.ok_or("your program waits for no CPU, for it has not joined")?;
        if cpu >= self.config.cpus.len() {
            return Err(format!("there is no shared CPU with index {cpu}"));
        }
        let seen: Vec<Observation> = self.seen_on(cpu);
        // Ordinary threads have no one stand in for them: one that sleeps in the kernel is in the way, too.
        let is_realtime = self.priority.is_some();
        let pids = self.members.each_ref().map(|it| it.as_ref().map(|it| it.pid));
        let number = self.config.cpus[cpu];
        let ran = |app: usize| {
            pids[app].filter(|_| is_realtime).and_then(|pid| realtime::time_on(pid, number))
        };
        let Some(waiting) = &mut self.members[app] else { return Ok(()) };
        let complaints = &mut waiting.complaints[cpu];
        let found = judge(&seen, app, complaints, ran, self.config.slice, now);
        let Some(found) = found else { return Ok(()) };
        let waiter = format!("{} (process {})", waiting.name, waiting.pid);
        self.demote(found.active, cpu, found.word, &waiter, now);
        Ok(())
    }

    fn seen_on(&self, cpu: usize) -> Vec<Observation> {
        let members = self.members.iter().enumerate();
        let ready = members
            .filter_map(|(app, it)| it.as_ref().filter(|it| it.is_ready()).map(|it| (app, it)));
        let seen = |(app, it): (usize, &Member)| Observation {
            app,
            rank: it.rank,
            weight: it.weight,
            slot: it.memory.snapshot(cpu),
        };
        ready.map(seen).collect()
    }

    /// Takes the real-time priority from a member that keeps a CPU. Ordinary threads keep theirs: one must run to make
    /// way, and other programs may be busy on its CPU.
    fn demote(&mut self, app: usize, cpu: usize, word: u32, waiter: &str, now: Ns) {
        let is_realtime = self.priority.is_some();
        let Some(member) = &mut self.members[app] else { return };
        if member.overtime.iter().any(|it| it.cpu == cpu && it.word == word) {
            return;
        }
        member.overtime.push(Overtime { cpu, word, since: now });
        member.demotions += 1;
        if is_realtime && !admission::has_ended(&member.process) {
            member.demoted.extend(realtime::demote(member.pid, Scheduling::IDLE));
        }
        let cpu = self.config.cpus[cpu];
        let why = format!("it keeps CPU {cpu}, for which {waiter} waits");
        self.events.note(now, Event::Demoted, member.label(), &why);
    }

    /// Gives demoted members that have let go their scheduling back, and removes those that have not.
    pub(super) fn watch_overtime(&mut self, now: Ns) {
        for app in 0..APPS {
            let Some(member) = &mut self.members[app] else { continue };
            if member.overtime.is_empty() {
                continue;
            }
            let memory = &member.memory;
            member.overtime.retain(|it| memory.snapshot(it.cpu).word == it.word);
            if let Some(late) = member.overtime.iter().find(|it| now - it.since >= REMOVE_AFTER) {
                let cpu = self.config.cpus[late.cpu];
                let why =
                    format!("it kept CPU {cpu} for more than a second, for which others wait");
                self.remove(app, Leaving::Removed(why), now);
            } else if member.overtime.is_empty() {
                let demoted = std::mem::take(&mut member.demoted);
                if !admission::has_ended(&member.process) {
                    realtime::restore(member.pid, &demoted);
                }
            }
        }
    }
}
