//! The table that is asked, and the queries.

use std::io;
use std::path::Path;
use std::time::Instant;

use heddle_core::Ns;

use super::connection::Connection;

/// The database.
pub(super) const DATABASE: &str = "bench";
/// Rows of the table, some 40 MB.
pub(super) const ROWS: u64 = 300_000;
/// An aggregate should take so long on an idle server.
pub(super) const AGGREGATE: Ns = Ns::from_ms(20);
/// The time of an aggregate is the median of so many.
const TRIES: usize = 9;

/// A point select of a row, by its number from 0.
pub(super) fn select(key: u64) -> String {
    format!("SELECT pad FROM item WHERE id = {}", key % ROWS + 1)
}

/// An aggregate over the first `rows` rows.
pub(super) fn aggregate(rows: u64) -> String {
    format!("SELECT SUM(k), SUM(CRC32(pad)) FROM item WHERE id <= {rows}")
}

/// Creates and fills the table.
///
/// # Errors
/// The server's.
pub(super) fn fill(socket: &Path) -> io::Result<()> {
    Connection::open(socket, "")?.query(&format!("CREATE DATABASE {DATABASE}"))?;
    let mut connection = Connection::open(socket, DATABASE)?;
    let table = "CREATE TABLE item (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(96) NOT NULL) \
                 ENGINE=InnoDB CHARSET=latin1";
    connection.query(table)?;
    connection.query(&format!(
        "INSERT INTO item SELECT seq, seq * 7919 % 1000, REPEAT(MD5(seq), 3) FROM seq_1_to_{ROWS}"
    ))?;
    Ok(())
}

/// Reads the whole table, so that no query waits for a file.
///
/// # Errors
/// The server's.
pub(super) fn warm(socket: &Path) -> io::Result<()> {
    let mut connection = Connection::open(socket, DATABASE)?;
    connection.query(&aggregate(ROWS))?.map(drop).ok_or_else(|| io::Error::other("no rows"))
}

/// Returns of how many rows the aggregate takes [`AGGREGATE`] on this server, which is idle.
///
/// # Errors
/// The server's.
pub(super) fn rows_of_an_aggregate(socket: &Path) -> io::Result<u64> {
    let mut connection = Connection::open(socket, DATABASE)?;
    let mut times = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        let begin = Instant::now();
        connection.query(&aggregate(ROWS))?;
        times.push(Ns::from(begin.elapsed()));
    }
    times.sort();
    Ok(share_of_rows(times[TRIES / 2]))
}

/// The rows of an aggregate, if one over all takes `all`.
fn share_of_rows(all: Ns) -> u64 {
    let share = AGGREGATE.0 as f64 / all.0.max(1) as f64;
    ((ROWS as f64 * share) as u64).clamp(1, ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregate_has_as_many_rows_as_fit_its_time() {
        assert_eq!(share_of_rows(AGGREGATE * 3), ROWS / 3);
        assert_eq!(share_of_rows(Ns::from_us(1)), ROWS, "not more than there are");
        assert_eq!(share_of_rows(Ns::from_secs(3_600_000)), 1);
    }

    #[test]
    fn selects_name_rows_that_exist() {
        assert!(select(0).ends_with("id = 1"));
        assert!(select(ROWS - 1).ends_with(&format!("id = {ROWS}")));
        assert!(select(ROWS).ends_with("id = 1"));
    }
}
