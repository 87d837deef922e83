//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// Single operations.
        Micro = "micro",
        /// Memory of idle tasks.
        Memory = "memory",
        /// Requests of 5 us, 1 % of 1 ms.
        OneMs = "1ms",
        /// Requests of 50 us, 1 % of 10 ms.
        TenMs = "10ms",
        /// Requests of 50 us; 1 % sleep in the kernel for 10 ms.
        Blocking = "blocking",
        /// Requests of 5 us, 1 % of 1 ms, which share a mutex of the standard library.
        Mutex = "mutex",
        /// Requests of 5 us only, as many as the runtime can serve.
        Saturation = "saturation",
    }
}
