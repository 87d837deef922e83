//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// Datagrams of 64 bytes, there and back, one at a time: both ends look for them all the time, or sleep.
        Udp = "udp",
        /// Requests of 64 bytes on 1, 100 and 1,000 connections.
        Tcp = "tcp",
        /// The TCP stack alone, two of them joined in memory.
        Stack = "stack",
        /// GETs beside SCANs, and preemptions without a cause.
        Tail = "tail",
        /// One stream each way.
        Stream = "stream",
        /// One per cent of the packets is lost.
        Loss = "loss",
        /// What lanes cost that do nothing: a look, two seconds, an idle connection.
        Idle = "idle",
    }
}
