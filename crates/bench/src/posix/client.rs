//! The connections of the load: some for short requests, others for long ones. A thread of the server has one kind
//! of work then, and the kernel can be given a priority for it.

use std::io;
use std::net::SocketAddr;

use heddle_load::{Answer, Arrival, Http, Op, Shape, Streams, Transport};

/// Connections of each class: more than ever have a request in flight at the measured load, also on a system that
/// lets short requests wait for long ones.
pub(super) const CONNECTIONS: usize = 128;

/// The connections, by class.
pub(super) struct ByClass {
    short: Streams<Http>,
    long: Streams<Http>,
}

impl ByClass {
    /// # Errors
    /// Network errors.
    pub(super) fn connect(server: SocketAddr, shape: &Shape) -> io::Result<ByClass> {
        let connect = || Streams::connect(server, CONNECTIONS, shape.clone());
        Ok(ByClass { short: connect()?, long: connect()? })
    }
}

impl Transport for ByClass {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        match request.op {
            Op::Scan => self.long.send(id, request),
            Op::Get | Op::Set => self.short.send(id, request),
        }
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        match self.short.receive()? {
            None => self.long.receive(),
            answer => Ok(answer),
        }
    }
}
