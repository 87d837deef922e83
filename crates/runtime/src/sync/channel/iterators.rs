//! The iterators of a receiver.

/// Defines `Iter`, `TryIter` and `IntoIter` for a receiver with `recv` and `try_recv`.
macro_rules! iterators {
    ($receiver:ident) => {
        /// The values to come, until all senders are gone; see [`Receiver::iter`].
        #[derive(Debug)]
        pub struct Iter<'a, T>(&'a $receiver<T>);

        /// The values that can be received without waiting; see [`Receiver::try_iter`].
        #[derive(Debug)]
        pub struct TryIter<'a, T>(&'a $receiver<T>);

        /// The values to come, until all senders are gone, of an owned receiver.
        #[derive(Debug)]
        pub struct IntoIter<T>($receiver<T>);

        impl<T> Iterator for Iter<'_, T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.0.recv().ok()
            }
        }

        impl<T> Iterator for TryIter<'_, T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.0.try_recv().ok()
            }
        }

        impl<T> Iterator for IntoIter<T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                self.0.recv().ok()
            }
        }

        impl<'a, T> IntoIterator for &'a $receiver<T> {
            type Item = T;
            type IntoIter = Iter<'a, T>;

            fn into_iter(self) -> Iter<'a, T> {
                self.iter()
            }
        }

        impl<T> IntoIterator for $receiver<T> {
            type Item = T;
            type IntoIter = IntoIter<T>;

            fn into_iter(self) -> IntoIter<T> {
                IntoIter(self)
            }
        }
    };
}

pub(crate) use iterators;
