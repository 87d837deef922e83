//! What the bench consists of, in the order of its tables.

crate::suite::parts! {
    /// A part.
    pub enum Part {
        /// BadgerDB over datagrams, a goroutine a request.
        BadgerUdp = "badger-udp",
        /// BadgerDB over HTTP, a goroutine a connection.
        BadgerHttp = "badger-http",
        /// What the scheduler costs small programs in CPU time.
        Cpu = "cpu",
    }
}
