//! How much a client may do in a second.

use heddle_core::Ns;

/// A bucket of tokens that fills up within a second.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    most: u64,
    tokens: u64,
    filled_at: Ns,
}

impl Budget {
    /// Returns a full one for so many tokens a second.
    pub fn new(most: u64, now: Ns) -> Budget {
        Budget { most, tokens: most, filled_at: now }
    }

    /// Takes `cost` tokens. Returns whether they were there.
    pub fn take(&mut self, cost: u64, now: Ns) -> bool {
        self.fill(now);
        let enough = self.tokens >= cost;
        self.tokens = self.tokens.saturating_sub(cost);
        enough
    }

    /// Returns whether a token is there.
    pub fn has_any(&mut self, now: Ns) -> bool {
        self.fill(now);
        self.tokens > 0
    }

    fn fill(&mut self, now: Ns) {
        let elapsed = now.0.saturating_sub(self.filled_at.0).min(1_000_000_000);
        let more = self.most * elapsed / 1_000_000_000;
        if more > 0 {
            self.tokens = (self.tokens + more).min(self.most);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_again_after_a_second() {
        let mut budget = Budget::new(10, Ns(0));
        assert!(budget.take(10, Ns(0)));
        assert!(!budget.take(1, Ns(0)) && !budget.has_any(Ns::from_ms(50)));
        assert!(budget.take(5, Ns::from_ms(500)));
        assert!(budget.take(10, Ns(5_000_000_000)), "and not fuller");
        assert!(!budget.take(1, Ns(5_000_000_000)));
    }
}
