//! What became ready while a lane was locked.

use heddle_sync::SpinCell;

/// What a lane's user calls one of its sockets: reported when that becomes ready. The lane does not look into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// For what a socket became ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// For reading, accepting or an error.
    pub read: bool,
    /// For writing, or it is connected, or an error.
    pub write: bool,
    /// All that wait should look: it broke.
    pub broken: bool,
}

impl Ready {
    /// Something to read.
    pub const READ: Ready = Ready { read: true, write: false, broken: false };
    /// An error.
    pub const BROKEN: Ready = Ready { read: true, write: true, broken: true };
}

/// Those that wait for a socket: one token for each of its handles.
#[derive(Debug)]
pub(crate) struct Tokens(SpinCell<Vec<Token>>);

impl Tokens {
    /// Returns the tokens of a socket with one handle.
    pub(crate) fn new(token: Token) -> Tokens {
        Tokens(SpinCell::new(vec![token]))
    }

    pub(crate) fn add(&self, token: Token) {
        self.0.lock().push(token);
    }

    pub(crate) fn remove(&self, token: Token) {
        self.0.lock().retain(|&other| other != token);
    }

    /// Adds all handles to what is reported.
    pub(crate) fn wake(&self, ready: Ready, woken: &mut Woken) {
        self.0.lock().iter().for_each(|&token| woken.push(token, ready));
    }
}

/// Sockets to report once the lane's lock is released.
#[derive(Debug)]
pub struct Woken {
    entries: [(Token, Ready); Woken::CAPACITY],
    count: usize,
    /// Entries beyond these: sockets with many handles.
    more: Vec<(Token, Ready)>,
}

impl Default for Woken {
    fn default() -> Woken {
        Woken {
            entries: [(Token(0), Ready::default()); Woken::CAPACITY],
            count: 0,
            more: Vec::new(),
        }
    }
}

impl Woken {
    /// Entries that take no allocation: more than a batch of frames makes, usually.
    const CAPACITY: usize = 32;

    /// Returns whether nothing became ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, token: Token, ready: Ready) {
        match self.entries.get_mut(self.count) {
            Some(entry) => {
                *entry = (token, ready);
                self.count += 1;
            }
            None => self.more.push((token, ready)),
        }
    }

    /// Passes all entries to `report` and removes them. Returns whether there were any.
    pub fn drain(&mut self, mut report: impl FnMut(Token, Ready)) -> bool {
        let count = std::mem::take(&mut self.count);
        let entries = self.entries[..count].iter().copied();
        entries.chain(self.more.drain(..)).for_each(|(token, ready)| report(token, ready));
        count > 0
    }
}
