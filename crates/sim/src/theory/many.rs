//! Many servers behind one queue: M/M/k.

use super::{positive, quantile_rank, stable};

/// The probability that an arrival at M/M/k must wait (Erlang C). O(servers); no term overflows, whatever their number.
///
/// `servers` from 1, `rho` is the load of each. Erlang B, the blocking probability without a queue,
/// follows from the recurrence `B_0 = 1, B_i = a B_(i-1) / (i + a B_(i-1))` with `a = servers * rho`;
/// then `C = B / (1 - rho (1 - B))`. Erlang 1917; Kleinrock 1975, ch. 3; Harchol-Balter 2013, ch. 14.
pub fn erlang_c(servers: u32, rho: f64) -> Option<f64> {
    let rho = stable(rho)?;
    let offered = f64::from(servers) * rho;
    let blocked = (1..=servers).fold(1.0, |b, i| offered * b / (f64::from(i) + offered * b));
    (servers > 0).then_some(blocked / (1.0 - rho * (1.0 - blocked)))
}

/// Mean sojourn of M/M/k: `service (1 + C / (servers (1 - rho)))`. O(servers). Sources as [`erlang_c`].
pub fn mmk_mean_sojourn(servers: u32, rho: f64, service: f64) -> Option<f64> {
    Some(positive(service)? + erlang_c(servers, rho)? * drain(servers, rho, service))
}

/// The probability that a wait in M/M/k FCFS is longer than `time`: `C exp(-servers (1 - rho) time / service)`.
/// `time` from 0. O(servers). Sources as [`erlang_c`].
pub fn mmk_wait_above(servers: u32, rho: f64, service: f64, time: f64) -> Option<f64> {
    let rate = drain(servers, rho, positive(service)?).recip();
    let waits = erlang_c(servers, rho)?;
    (time >= 0.0).then(|| waits * (-rate * time).exp())
}

/// The wait that a share `q` of the jobs of M/M/k FCFS stay within; zero if that many do not wait at
/// all. `q` from 0 to below 1. O(servers). Sources as [`erlang_c`].
pub fn mmk_wait_quantile(servers: u32, rho: f64, service: f64, q: f64) -> Option<f64> {
    let excess = (erlang_c(servers, rho)? / (1.0 - quantile_rank(q)?)).ln().max(0.0);
    Some(excess * drain(servers, rho, positive(service)?))
}

/// The mean wait of the jobs that wait.
fn drain(servers: u32, rho: f64, service: f64) -> f64 {
    service / (f64::from(servers) * (1.0 - rho))
}

#[cfg(test)]
mod tests {
    use super::super::single;
    use super::super::testing::{assert_digits, assert_same};
    use super::*;

    #[test]
    fn erlang_c_has_the_figures_of_the_textbook() {
        for (servers, rho, waits, sojourn) in [
            (2, 0.8, 0.71111, 2.7778),
            (4, 0.8, 0.59643, 1.7455),
            (16, 0.8, 0.30488, 1.0953),
            (16, 0.95, 0.78019, 1.9752),
        ] {
            assert_digits(erlang_c(servers, rho), waits, 5);
            assert_digits(mmk_mean_sojourn(servers, rho, 1.0), sojourn, 4);
        }
        assert_digits(mmk_wait_quantile(16, 0.8, 1.0, 0.99), 1.0679, 4);
        assert_digits(mmk_wait_quantile(16, 0.95, 1.0, 0.99), 5.4462, 4);
    }

    #[test]
    fn the_recurrence_is_the_sum_of_the_definition() {
        let offered = 12.0f64 * 0.85;
        let term = |i: u32| (1..=i).fold(1.0, |t, j| t * offered / f64::from(j));
        let last = term(12) / 0.15;
        let expected = last / ((0..12).map(term).sum::<f64>() + last);
        assert_same(erlang_c(12, 0.85), Some(expected));
    }

    #[test]
    fn one_server_is_mm1() {
        for rho in [0.0, 0.2, 0.99] {
            assert_same(erlang_c(1, rho), Some(rho));
            assert_same(mmk_mean_sojourn(1, rho, 3.0), single::mm1_mean_sojourn(rho, 3.0));
        }
    }

    #[test]
    fn a_thousand_servers_stay_finite() {
        let at = |rho| erlang_c(1_024, rho).unwrap();
        assert!(at(0.5) >= 0.0 && at(0.5) < 1e-40);
        // With many servers the probability to wait depends on (1 - rho) sqrt(k): Halfin and Whitt 1981
        // give 0.2234 for 1.
        assert!((at(1.0 - 1.0 / 32.0) - 0.2234).abs() < 0.01);
        assert!(at(0.9999) > 0.99 && at(0.9999) < 1.0);
    }

    #[test]
    fn quantile_and_tail_are_inverse() {
        let wait = mmk_wait_quantile(4, 0.9, 20.0, 0.95);
        assert_same(mmk_wait_above(4, 0.9, 20.0, wait.unwrap()), Some(0.05));
        assert_eq!(mmk_wait_quantile(4, 0.1, 20.0, 0.95), Some(0.0));
    }

    #[test]
    fn no_servers_and_overload_have_no_figure() {
        assert_eq!(erlang_c(0, 0.5), None);
        assert_eq!(erlang_c(4, 1.0), None);
        assert_eq!(mmk_mean_sojourn(4, 0.5, -1.0), None);
        assert_eq!(mmk_wait_above(4, 0.5, 1.0, -1.0), None);
    }
}
