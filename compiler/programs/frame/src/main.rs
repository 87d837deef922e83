//! A program for `heddle bench probes`: a data frame that is filtered, grouped, joined and sorted by Polars. Prints a
//! checksum, which is the same in each run.
//!
//! Usage: frame ROWS

use polars::prelude::*;

fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// Numbers below `limit` that look random.
fn numbers(seed: u64, count: usize, limit: u64) -> Vec<i64> {
    let mut state = seed;
    let mut next = || {
        state = mix(state.wrapping_add(1), 0x5851_f42d_4c95_7f2d);
        (state % limit) as i64
    };
    (0..count).map(|_| next()).collect()
}

/// Sums up the columns, each value by its place.
fn checksum(frame: &DataFrame) -> PolarsResult<u64> {
    let mut hash = frame.height() as u64;
    for column in frame.columns() {
        let values = column.cast(&DataType::Int64)?;
        for value in values.i64()?.iter() {
            hash = mix(hash, value.unwrap_or(-1) as u64);
        }
    }
    Ok(hash)
}

/// The group of an item. Groups by a plain column would need Polars' other engine, which is twice the code.
fn group() -> Expr {
    col("item") % lit(1500)
}

/// The sums and means of each group, of the rows above a limit.
fn grouped(orders: &DataFrame) -> PolarsResult<DataFrame> {
    let amount = || col("amount");
    let counts = amount().gt(lit(1000)).and(col("customer").neq(lit(7)));
    let frame = orders.clone().lazy().filter(counts).group_by([group()]).agg([
        amount().sum().alias("sum"),
        amount().mean().alias("mean"),
        amount().max().alias("max"),
        col("customer").n_unique().alias("customers"),
    ]);
    frame.sort(["item"], SortMultipleOptions::default()).collect()
}

/// Each order with its customer, grouped by region and item, and sorted.
fn joined(orders: &DataFrame, customers: &DataFrame) -> PolarsResult<DataFrame> {
    let on = || [col("customer")];
    let customers = customers.clone().lazy();
    let frame = orders.clone().lazy().join(customers, on(), on(), JoinArgs::new(JoinType::Inner));
    let weighted = (col("amount") * col("weight")).alias("weighted");
    let frame = frame.with_column(weighted).group_by([col("region"), group()]);
    let frame = frame.agg([col("weighted").sum(), col("amount").min().alias("least")]);
    frame.sort(["weighted", "region", "item"], SortMultipleOptions::default()).collect()
}

/// The orders by amount, then customer and item.
fn sorted(orders: &DataFrame) -> PolarsResult<DataFrame> {
    orders
        .clone()
        .lazy()
        .sort(["amount", "customer", "item"], SortMultipleOptions::default())
        .collect()
}

fn main() -> PolarsResult<()> {
    let rows = std::env::args().nth(1).and_then(|rows| rows.parse().ok());
    let Some(rows) = rows else {
        eprintln!("usage: frame ROWS");
        std::process::exit(2);
    };
    let orders = df!(
        "customer" => numbers(1, rows, 50_000),
        "item" => numbers(2, rows, 2_000),
        "amount" => numbers(3, rows, 100_000),
    )?;
    let customers = df!(
        "customer" => (0..50_000).collect::<Vec<i64>>(),
        "region" => numbers(4, 50_000, 40),
        "weight" => numbers(5, 50_000, 9),
    )?;
    for frame in [grouped(&orders)?, joined(&orders, &customers)?, sorted(&orders)?] {
        println!("{:016x}", checksum(&frame)?);
    }
    Ok(())
}
