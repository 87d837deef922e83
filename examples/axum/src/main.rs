//! A service on axum with one slow endpoint: `/get/KEY` answers at once, `/scan/KEY` computes for 10 ms first.
//!
//! ```sh
//! heddle cargo --tokio --no-probes build --release
//! HEDDLE_TOKIO=1 heddle run --policy two-queue:quantum=100us target/release/axum-service 7380
//! ```

use axum::{Router, routing::get};
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Steps of [`work`] in 10 ms, on this machine.
static SLOW: LazyLock<u64> = LazyLock::new(|| {
    const SAMPLE: u64 = 5_000_000;
    let time = |_| {
        let begin = Instant::now();
        work(SAMPLE);
        begin.elapsed()
    };
    let best = (0..5).map(time).min().unwrap_or_default();
    (Duration::from_millis(10).as_nanos() * u128::from(SAMPLE) / best.as_nanos().max(1)) as u64
});

/// What a template, a hash or a large JSON document is to a CPU.
fn work(steps: u64) -> u64 {
    (0..steps).fold(1, |x: u64, i| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i)))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(7380);
    LazyLock::force(&SLOW);
    let app = Router::new()
        .route("/get/{key}", get(|| async { "short" }))
        .route("/scan/{key}", get(|| async { work(*SLOW).to_string() }));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, app).await
}
