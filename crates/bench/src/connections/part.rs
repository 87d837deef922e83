//! The parts of the bench.

crate::suite::parts! {
    /// A quantity measured at each level.
    pub enum Part {
        /// A thousand new connections, each up to its first answer.
        Accept = "accept",
        /// Answers, with requests on a thousand of the connections in turn.
        Few = "few",
        /// Answers, with requests on all connections in turn.
        All = "all",
    }
}
