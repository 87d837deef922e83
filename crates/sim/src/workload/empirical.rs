//! Measured service times.

use super::service::{between, uniform_moment};
use super::table::{Column, Table};
use super::{FileError, FileProblem};
use crate::Random;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A distribution read from a file of comma-separated values, in one of two forms:
///
/// - samples: the columns `service` and, if they have different weights, `weight`;
/// - quantiles: the columns `quantile`, rising from 0 to 1, and `service`; between two points the time
///   is uniform.
///
/// A service time is whole nanoseconds or a text such as `1.5us`; lines that start with `#` are
/// comments. A draw takes constant time, whatever the number of rows (Walker, "An efficient method for
/// generating discrete random variables with general distributions", 1977). Clones share the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    file: PathBuf,
    pieces: Arc<[Piece]>,
}

/// A range of equally likely times; for a sample, both ends are the same.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    from: f64,
    to: f64,
    /// The probability.
    share: f64,
    /// The share of draws that hit this slot and stay; the others go to `alias`.
    stay: f64,
    alias: usize,
}

const COLUMNS: &[Column] = &[("service", true), ("weight", false), ("quantile", false)];
const SERVICE: usize = 0;
const WEIGHT: usize = 1;
const QUANTILE: usize = 2;

impl Empirical {
    /// Reads `file`.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or has neither of the two forms.
    pub fn open(file: &Path) -> Result<Empirical, FileError> {
        let mut table = Table::open(file, COLUMNS)?;
        let mut pieces = match table.has(QUANTILE) {
            true => quantiles(&mut table)?,
            false => samples(&mut table)?,
        };
        let total: f64 = pieces.iter().map(|piece| piece.share).sum();
        pieces.iter_mut().for_each(|piece| piece.share /= total);
        link(&mut pieces);
        Ok(Empirical { file: file.to_path_buf(), pieces: pieces.into() })
    }

    /// Returns the file that it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the mean of the `k`-th power, in ns^k.
    pub fn moment(&self, k: u32) -> f64 {
        self.pieces.iter().map(|p| p.share * uniform_moment(k, p.from, p.to)).sum()
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        let slot = &self.pieces[random.below(self.pieces.len() as u64) as usize];
        let piece = if random.unit() <= slot.stay { slot } else { &self.pieces[slot.alias] };
        between(piece.from, piece.to, random.unit())
    }
}

fn piece(from: f64, to: f64, share: f64) -> Piece {
    Piece { from, to, share, stay: 1.0, alias: 0 }
}

fn samples(table: &mut Table) -> Result<Vec<Piece>, FileError> {
    let mut pieces = Vec::new();
    while table.next()? {
        let time = table.some_time(SERVICE)?.0 as f64;
        let good = |w: &f64| *w > 0.0 && *w <= 1e15;
        let weighed = table.has(WEIGHT);
        let weight = match weighed {
            true => table.number(WEIGHT, good, "a number above 0 and at most 1e15")?,
            false => 1.0,
        };
        pieces.push(piece(time, time, weight));
    }
    if pieces.is_empty() { Err(table.lacks(FileProblem::TooFewRows(1))) } else { Ok(pieces) }
}

fn quantiles(table: &mut Table) -> Result<Vec<Piece>, FileError> {
    if table.has(WEIGHT) {
        return Err(table.wrong(FileProblem::Either("weight", "quantile")));
    }
    let mut pieces = Vec::new();
    let mut last: Option<(f64, f64)> = None;
    while table.next()? {
        let (quantile, time) = point(table, last)?;
        if let Some((before, from)) = last {
            pieces.push(piece(from, time, quantile - before));
        }
        last = Some((quantile, time));
    }
    match last {
        Some((1.0, _)) if !pieces.is_empty() => Ok(pieces),
        Some((quantile, _)) => {
            let (column, found, expected) = ("quantile", quantile.to_string(), "1 in the last row");
            Err(table.lacks(FileProblem::Cell { column, found, expected }))
        }
        None => Err(table.lacks(FileProblem::TooFewRows(2))),
    }
}

/// Returns the row's quantile and time, which must lie beyond those of the row above.
fn point(table: &Table, last: Option<(f64, f64)>) -> Result<(f64, f64), FileError> {
    let first = last.is_none();
    let beyond = last.map_or(0.0, |(quantile, _)| quantile);
    let good = |q: &f64| if first { *q == 0.0 } else { *q > beyond && *q <= 1.0 };
    let expected = if first { "0 in the first row" } else { "a number above the last and up to 1" };
    let quantile = table.number(QUANTILE, good, expected)?;
    let time = table.some_time(SERVICE)?.0 as f64;
    match last {
        Some((_, longest)) if time < longest => {
            Err(table.cell(SERVICE, "a time not below the last"))
        }
        _ => Ok((quantile, time)),
    }
}

/// Gives every slot the same probability: the excess of likely pieces fills up unlikely ones.
fn link(pieces: &mut [Piece]) {
    let n = pieces.len() as f64;
    let mut left: Vec<f64> = pieces.iter().map(|piece| piece.share * n).collect();
    let (mut small, mut large): (Vec<_>, Vec<_>) = (0..pieces.len()).partition(|&i| left[i] < 1.0);
    while let (Some(&to), Some(&from)) = (small.last(), large.last()) {
        small.pop();
        (pieces[to].stay, pieces[to].alias) = (left[to], from);
        left[from] -= 1.0 - left[to];
        if left[from] < 1.0 {
            small.extend(large.pop());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// The slots of each piece, direct and by alias, add up to its share.
        #[test]
        fn slots_add_up_to_the_shares(weights in proptest::collection::vec(1e-9f64..1.0, 1..40)) {
            let total: f64 = weights.iter().sum();
            let mut pieces: Vec<_> = weights.iter().map(|w| piece(1.0, 1.0, w / total)).collect();
            link(&mut pieces);
            let mut got = vec![0.0; pieces.len()];
            for (i, piece) in pieces.iter().enumerate() {
                got[i] += piece.stay / pieces.len() as f64;
                got[piece.alias] += (1.0 - piece.stay) / pieces.len() as f64;
            }
            for (piece, got) in pieces.iter().zip(got) {
                proptest::prop_assert!((piece.share - got).abs() < 1e-12);
            }
        }
    }
}
