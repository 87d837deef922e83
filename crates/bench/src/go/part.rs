//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// BadgerDB over datagrams, one goroutine per request.
        BadgerUdp = "badger-udp",
        /// BadgerDB over HTTP, one goroutine per connection.
        BadgerHttp = "badger-http",
        /// The scheduler's cost for small programs, in CPU time.
        Cpu = "cpu",
    }
}
