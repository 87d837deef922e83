//! A watch that records what each task did and refuses impossible steps.

use heddle_core::Ns;
use heddle_sim::{Event, EventKind, Watch};
use std::collections::HashMap;

/// The life of one task so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    pub arrived: Ns,
    pub first_start: Option<Ns>,
    pub left: Option<Ns>,
    /// Time between starts and leaves.
    pub on_cpu: Ns,
    running: Option<(usize, Ns)>,
    waiting: bool,
}

/// All tasks, in the order of creation.
#[derive(Debug, Default)]
pub struct Log {
    pub tasks: Vec<Life>,
    /// What runs on each CPU.
    cpus: HashMap<usize, u32>,
    now: Ns,
    present: u64,
    /// When the last task left the system.
    pub emptied: Vec<Ns>,
}

impl Log {
    fn life(&mut self, task: u32) -> &mut Life {
        &mut self.tasks[task as usize]
    }

    fn come(&mut self, step: Event) {
        if step.kind == EventKind::New {
            assert_eq!(step.who as usize, self.tasks.len(), "tasks are numbered as they come");
            self.tasks.push(Life { arrived: step.at, ..Life::default() });
        }
        let life = self.life(step.who);
        assert!(!life.waiting && life.running.is_none(), "{step:?} of a task that is there");
        life.waiting = true;
        self.present += 1;
    }

    fn start(&mut self, step: Event) {
        let life = self.life(step.who);
        assert!(std::mem::take(&mut life.waiting), "{step:?} of a task that does not wait");
        life.first_start.get_or_insert(step.at);
        life.running = Some((step.cpu.index(), step.at));
        let before = self.cpus.insert(step.cpu.index(), step.who);
        assert_eq!(before, None, "{step:?} where another task runs");
    }

    fn leave(&mut self, step: Event) {
        let life = self.life(step.who);
        let (cpu, since) = life.running.take().expect("only a task that runs leaves its CPU");
        assert_eq!(cpu, step.cpu.index(), "{step:?} of a task that runs elsewhere");
        life.on_cpu += step.at - since;
        life.waiting = step.kind == EventKind::Preempted;
        if step.kind == EventKind::Exit {
            life.left = Some(step.at);
        }
        self.cpus.remove(&cpu);
        if step.kind != EventKind::Preempted {
            self.present -= 1;
            if self.present == 0 {
                self.emptied.push(step.at);
            }
        }
    }
}

impl Watch for Log {
    fn step(&mut self, step: Event) {
        assert!(step.at >= self.now, "{step:?} after {}", self.now);
        self.now = step.at;
        match step.kind {
            EventKind::New | EventKind::Wakeup => self.come(step),
            EventKind::Start => self.start(step),
            EventKind::Preempted | EventKind::Yield | EventKind::Block | EventKind::Exit => {
                self.leave(step)
            }
            kind => panic!("the simulator records no {kind}"),
        }
    }
}
