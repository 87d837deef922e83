//! The kinds of arms of a `select!`.

#[cfg(doc)]
use super::Claim;
use super::Selection;
use crate::sync::CancellationToken;
use crate::sync::channel::Channel;
use heddle_core::Ns;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, SendError};

#[cfg(doc)]
use crate::select;

/// An operation that may have to wait.
#[doc(hidden)]
pub trait Arm {
    /// Completes the operation if it need not wait; whether it did.
    fn attempt(&mut self) -> bool;
    /// Completes the operation for which another party has claimed the caller ([`Claim::Committed`]); whether it did.
    fn commit(&mut self) -> bool;
    /// Registers the caller's wait with the source of events; true if the operation need not wait, and then it did not.
    fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool;
    /// Ends the registration, if there is one.
    fn unregister(&self, selection: &Arc<Selection>);
    /// When the operation is done without any event.
    fn due(&self) -> Option<Ns> {
        None
    }
}

/// What an arm `recv(..)` of [`select!`] receives from: the receivers of all channels, and [`after`](crate::after).
pub trait SelectRecv {
    /// What is received.
    type Item;
    /// Receives without waiting; `None` if that is not possible.
    #[doc(hidden)]
    fn attempt(&self) -> Option<Result<Self::Item, RecvError>>;
    #[doc(hidden)]
    fn commit(&self) -> Option<Result<Self::Item, RecvError>> {
        self.attempt()
    }
    #[doc(hidden)]
    fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool;
    #[doc(hidden)]
    fn unregister(&self, selection: &Arc<Selection>);
    #[doc(hidden)]
    fn due(&self) -> Option<Ns> {
        None
    }
}

/// What an arm `send(..)` of [`select!`] sends to: the senders of bounded and unbounded channels.
pub trait SelectSend {
    /// What is sent.
    type Item;
    #[doc(hidden)]
    fn channel(&self) -> &Channel<Self::Item>;
}

/// An arm `recv(..)`.
#[doc(hidden)]
pub struct RecvArm<'a, S: SelectRecv + ?Sized> {
    source: &'a S,
    result: Option<Result<S::Item, RecvError>>,
}

impl<'a, S: SelectRecv + ?Sized> RecvArm<'a, S> {
    pub fn new(source: &'a S) -> Self {
        RecvArm { source, result: None }
    }

    pub fn is_done(&self) -> bool {
        self.result.is_some()
    }

    /// What was received.
    ///
    /// # Panics
    /// If the arm is not done.
    pub fn finish(self) -> Result<S::Item, RecvError> {
        self.result.expect("an arm that was chosen is done")
    }
}

impl<S: SelectRecv + ?Sized> Arm for RecvArm<'_, S> {
    fn attempt(&mut self) -> bool {
        self.result = self.source.attempt();
        self.is_done()
    }

    fn commit(&mut self) -> bool {
        self.result = self.source.commit();
        self.is_done()
    }

    fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool {
        self.source.register(selection, arm)
    }

    fn unregister(&self, selection: &Arc<Selection>) {
        self.source.unregister(selection);
    }

    fn due(&self) -> Option<Ns> {
        self.source.due()
    }
}

/// An arm `send(..)`. The value is evaluated once the arm was chosen, as a place was promised to it.
#[doc(hidden)]
pub struct SendArm<'a, S: SelectSend + ?Sized> {
    target: &'a S,
    is_promised: bool,
}

impl<'a, S: SelectSend + ?Sized> SendArm<'a, S> {
    pub fn new(target: &'a S) -> Self {
        SendArm { target, is_promised: false }
    }

    pub fn is_done(&self) -> bool {
        self.is_promised
    }

    /// The promised place. Called once, if the arm is done.
    pub fn finish(self) -> SendPermit<'a, S> {
        SendPermit { target: self.target }
    }
}

impl<S: SelectSend + ?Sized> Arm for SendArm<'_, S> {
    fn attempt(&mut self) -> bool {
        self.is_promised = self.target.channel().reserve();
        self.is_promised
    }

    fn commit(&mut self) -> bool {
        self.is_promised = true;
        true
    }

    fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool {
        self.target.channel().register_sender(selection, arm)
    }

    fn unregister(&self, selection: &Arc<Selection>) {
        self.target.channel().unregister_sender(selection);
    }
}

/// A place in a channel, promised to a sender; withdrawn if it is dropped.
#[doc(hidden)]
pub struct SendPermit<'a, S: SelectSend + ?Sized> {
    target: &'a S,
}

impl<S: SelectSend + ?Sized> SendPermit<'_, S> {
    /// # Errors
    /// Gives `value` back if all receivers are gone.
    pub fn send(self, value: S::Item) -> Result<(), SendError<S::Item>> {
        let target = self.target;
        std::mem::forget(self);
        target.channel().send_reserved(value)
    }
}

impl<S: SelectSend + ?Sized> Drop for SendPermit<'_, S> {
    fn drop(&mut self) {
        self.target.channel().unreserve();
    }
}

/// An arm `cancelled(..)`.
#[doc(hidden)]
pub struct CancelArm<'a> {
    token: &'a CancellationToken,
    is_done: bool,
}

impl<'a> CancelArm<'a> {
    pub fn new(token: &'a CancellationToken) -> Self {
        CancelArm { token, is_done: false }
    }

    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub fn finish(self) {}
}

impl Arm for CancelArm<'_> {
    fn attempt(&mut self) -> bool {
        self.is_done = self.token.is_cancelled();
        self.is_done
    }

    fn commit(&mut self) -> bool {
        self.attempt()
    }

    fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool {
        self.token.register(selection, arm)
    }

    fn unregister(&self, selection: &Arc<Selection>) {
        self.token.unregister(selection);
    }
}

macro_rules! receive_by_reference {
    ($($pointer:ty),*) => {$(
        impl<S: SelectRecv + ?Sized> SelectRecv for $pointer {
            type Item = S::Item;
            fn attempt(&self) -> Option<Result<S::Item, RecvError>> {
                (**self).attempt()
            }
            fn commit(&self) -> Option<Result<S::Item, RecvError>> {
                (**self).commit()
            }
            fn register(&self, selection: &Arc<Selection>, arm: usize) -> bool {
                (**self).register(selection, arm)
            }
            fn unregister(&self, selection: &Arc<Selection>) {
                (**self).unregister(selection);
            }
            fn due(&self) -> Option<Ns> {
                (**self).due()
            }
        }

        impl<S: SelectSend + ?Sized> SelectSend for $pointer {
            type Item = S::Item;
                    fn channel(&self) -> &Channel<S::Item> {
                (**self).channel()
            }
        }
    )*};
}

receive_by_reference!(&S, &mut S, Arc<S>, Box<S>);

/// Implements [`SelectRecv`] for receivers that have a field `0: Arc<Channel<T>>`.
macro_rules! receive_from_channel {
    ($receiver:ident) => {
        impl<T> $crate::sync::select::SelectRecv for $receiver<T> {
            type Item = T;

            fn attempt(&self) -> Option<Result<T, std::sync::mpsc::RecvError>> {
                match self.0.try_recv() {
                    Ok(value) => Some(Ok(value)),
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                        Some(Err(std::sync::mpsc::RecvError))
                    }
                    Err(std::sync::mpsc::TryRecvError::Empty) => None,
                }
            }

            fn commit(&self) -> Option<Result<T, std::sync::mpsc::RecvError>> {
                self.0.recv_committed().map(Ok)
            }

            fn register(
                &self,
                selection: &std::sync::Arc<$crate::sync::select::Selection>,
                arm: usize,
            ) -> bool {
                self.0.register_receiver(selection, arm)
            }

            fn unregister(&self, selection: &std::sync::Arc<$crate::sync::select::Selection>) {
                self.0.unregister_receiver(selection);
            }
        }
    };
}

pub(crate) use receive_from_channel;
