//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// The slowdown of kernels that nothing preempts.
        Kernels = "kernels",
        /// The slowdown of real programs that nothing preempts.
        Programs = "programs",
        /// The time between two looks at the clock.
        Gaps = "gaps",
        /// Two threads on one CPU: what a preemption costs, and how late it comes.
        Preempt = "preempt",
    }
}
