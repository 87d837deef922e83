//! The macro `select!`.

/// Waits for the first of several operations and runs its body: receives and sends on channels, times, and the
/// cancellation of a token. The form is that of crossbeam-channel.
///
/// ```
/// use heddle_rt::sync::{CancellationToken, mpsc};
/// use heddle_rt::{after, select};
/// use std::time::Duration;
///
/// let (orders, shop) = mpsc::channel();
/// let (kitchen, _cook) = mpsc::sync_channel(1);
/// let closing = CancellationToken::new();
/// orders.send("tea").unwrap();
///
/// let what = select! {
///     recv(shop) -> order => format!("order: {}", order.unwrap()),
///     cancelled(closing) => "closed".to_owned(),
///     recv(after(Duration::from_secs(60))) -> _ => "timed out".to_owned(),
/// };
/// assert_eq!(what, "order: tea");
///
/// select! {
///     send(kitchen, what) -> result => result.unwrap(),
///     default(Duration::from_millis(10)) => panic!("the kitchen is busy"),
/// }
/// ```
///
/// | arm | completes | the pattern is |
/// |---|---|---|
/// | `recv(rx) -> pattern => body` | with a value, or if all senders are gone | a `Result<T, RecvError>` |
/// | `send(tx, value) -> pattern => body` | with a place, or if all receivers are gone | a `Result<(), SendError<T>>` |
/// | `cancelled(token) => body` | if the [token](crate::sync::CancellationToken) is cancelled | |
/// | `default => body` | at once, if no other arm is ready | |
/// | `default(timeout) => body` | if no other arm was ready for that [`Duration`](std::time::Duration) | |
///
/// `rx` is a receiver of [`mpsc`](crate::sync::mpsc), [`mpmc`](crate::sync::mpmc) or
/// [`oneshot`](crate::sync::oneshot), or [`after`](crate::after); `tx` is a sender of the first two. Among arms that
/// are ready each has the same chance. `value` is evaluated only once its arm has been chosen. Patterns are
/// irrefutable. A body that is not a block ends with a comma, unless it is the last. Tasks and ordinary threads may
/// select alike; both sleep while they wait. At most 32 arms.
#[macro_export]
macro_rules! select {
    ($($arms:tt)+) => { $crate::__select!(@parse [] [] $($arms)+) };
}

/// The inside of [`select!`]: collects the arms in the first brackets and the default in the second, then writes the
/// code.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // All arms are collected. Those that are not chosen hold nothing that borrows when the body runs.
    (@parse
        [$({$arm:ident $source:ident ($from:expr) $kind:ident ($($finish:tt)*) ($p:pat) $body:tt})*]
        $default:tt
    ) => {{
        $(
            let $source = &$from;
            #[allow(unused_mut)]
            let mut $arm = $crate::sync::select::$kind::new($source);
        )*
        $crate::sync::select::select(
            &mut [$(&mut $arm as &mut dyn $crate::sync::select::Arm),*],
            $crate::__select!(@wait $default),
        );
        $(if $arm.is_done() {
            let $p = $arm.finish()$($finish)*;
            $body
        } else)* {
            $crate::__select!(@default $default)
        }
    }};
    (@wait []) => { $crate::sync::select::Wait::Forever };
    (@wait [$wait:expr, $body:tt]) => { $wait };
    (@default []) => { unreachable!("a select! without default completes an arm") };
    (@default [$wait:expr, $body:tt]) => { $body };

    // Takes one arm from the rest. Its body is a block, or ends with a comma, or is the last.
    (@parse $arms:tt $default:tt default => $body:block $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $arms $default default () () {$body} $($($rest)*)?)
    };
    (@parse $arms:tt $default:tt default => $body:block $($rest:tt)*) => {
        $crate::__select!(@arm $arms $default default () () {$body} $($rest)*)
    };
    (@parse $arms:tt $default:tt default => $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $arms $default default () () {$body} $($($rest)*)?)
    };
    (@parse $arms:tt $default:tt $op:ident $args:tt $(-> $p:pat)? => $body:block $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $arms $default $op $args ($($p)?) {$body} $($($rest)*)?)
    };
    (@parse $arms:tt $default:tt $op:ident $args:tt $(-> $p:pat)? => $body:block $($rest:tt)*) => {
        $crate::__select!(@arm $arms $default $op $args ($($p)?) {$body} $($rest)*)
    };
    (@parse $arms:tt $default:tt $op:ident $args:tt $(-> $p:pat)? => $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@arm $arms $default $op $args ($($p)?) {$body} $($($rest)*)?)
    };

    // Adds one arm. Each expansion makes variables `arm` and `source` of its own.
    (@arm [$($arms:tt)*] $default:tt recv ($from:expr $(,)?) ($p:pat) $body:tt $($rest:tt)*) => {
        $crate::__select!(@parse [$($arms)* {arm source ($from) RecvArm () ($p) $body}] $default $($rest)*)
    };
    (@arm [$($arms:tt)*] $default:tt send ($to:expr, $value:expr $(,)?) ($p:pat) $body:tt $($rest:tt)*) => {
        $crate::__select!(@parse [$($arms)* {arm source ($to) SendArm (.send($value)) ($p) $body}] $default $($rest)*)
    };
    (@arm [$($arms:tt)*] $default:tt cancelled ($token:expr $(,)?) () $body:tt $($rest:tt)*) => {
        $crate::__select!(@parse [$($arms)* {arm source ($token) CancelArm () (()) $body}] $default $($rest)*)
    };
    (@arm $arms:tt [] default () () $body:tt $($rest:tt)*) => {
        $crate::__select!(@parse $arms [$crate::sync::select::Wait::Never, $body] $($rest)*)
    };
    (@arm $arms:tt [] default ($timeout:expr $(,)?) () $body:tt $($rest:tt)*) => {
        $crate::__select!(@parse $arms [$crate::sync::select::Wait::For($timeout), $body] $($rest)*)
    };
    ($($other:tt)*) => {
        compile_error!(
            "select!: an arm is `recv(rx) -> pattern => body`, `send(tx, value) -> pattern => body`, \
             `cancelled(token) => body`, or, once, `default => body` or `default(timeout) => body`"
        )
    };
}
