//! The scheduler: task state transitions, under any policy. [`Shared`] implements what tasks ask
//! ([`crate::task::Scheduler`]) and what the runtime's threads ask ([`crate::engine::Engine`]).

mod dispatcher;
mod engine;
mod ops;
mod place;
mod shared;
mod switch;

pub(crate) use dispatcher::start as start_dispatcher;
pub(crate) use shared::Shared;
