//! Transfers between accounts in a table of fairlane, ScyllaDB or Cassandra. The total is the same
//! before and after. `tests/clients/batcher.py` runs it.
//!
//! ```sh
//! cargo run --release -p batcher --example cql -- 127.0.0.1:9042
//! ```
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

use std::error::Error;
use std::sync::Arc;

use batcher::{Batcher, Command, CqlStore, Footprint, Limits, View};
use scylla::client::session_builder::SessionBuilder;

const ACCOUNTS: i32 = 100;
const DEPOSIT: i64 = 1000;
const TRANSFERS: i32 = 10_000;

/// The key of an account, and its row: balance, and number of transfers.
type Account = (i32,);
type AccountState = (i64, i32);

enum Change {
    Open { account: i32 },
    Transfer { from: i32, to: i32, amount: i64 },
}

impl Command<Account, AccountState> for Change {
    /// False: the balance was too low.
    type Out = bool;

    fn footprint(&self, footprint: &mut Footprint<Account>) {
        match *self {
            Change::Open { account } => footprint.writes.push((account,)),
            Change::Transfer { from, to, .. } => {
                footprint.reads.extend([(from,), (to,)]);
                footprint.writes.extend([(from,), (to,)]);
            }
        }
    }

    fn apply(self, view: &mut View<'_, Account, AccountState>) -> bool {
        match self {
            Change::Open { account } => view.set(&(account,), (DEPOSIT, 0)),
            Change::Transfer { from, to, amount } => {
                let (balance, transfers) = view.get(&(from,)).copied().unwrap_or_default();
                if balance < amount {
                    return false;
                }
                view.set(&(from,), (balance - amount, transfers + 1));
                let (balance, transfers) = view.get(&(to,)).copied().unwrap_or_default();
                view.set(&(to,), (balance + amount, transfers + 1));
            }
        }
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:9042".into());
    let password = std::fs::read_to_string("fairlane-data/admin-password")?;
    let builder = SessionBuilder::new().known_node(address).user("admin", password.trim());
    let session = Arc::new(builder.build().await?);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let keyspace = format!("CREATE KEYSPACE IF NOT EXISTS bank WITH replication = {replication}");
    session.query_unpaged(keyspace, ()).await?;
    let table =
        "CREATE TABLE IF NOT EXISTS bank.accounts (id int PRIMARY KEY, balance bigint, transfers int)";
    session.query_unpaged(table, ()).await?;

    let store = CqlStore::new(session.clone(), "bank", "accounts", &["balance", "transfers"]).await?;
    let limits = Limits { is_adaptive: true, ..Limits::default() };
    let (handle, drive) = Batcher::new(store, limits).start();
    let driven = tokio::spawn(drive);

    let open = (0..ACCOUNTS).map(|account| Change::Open { account });
    let transfer = |number: i32| Change::Transfer {
        from: number % 10, // every tenth of them from the same account
        to: (number / 10 + 1) * 7 % ACCOUNTS,
        amount: i64::from(number % 5),
    };
    let mut replies = Vec::new();
    for change in open.chain((0..TRANSFERS).map(transfer)) {
        replies.push(handle.push(change).await?);
    }
    let mut done = 0;
    for reply in replies {
        done += i32::from(reply.await?);
    }
    assert_eq!(handle.acknowledged_up_to(), (ACCOUNTS + TRANSFERS) as u64);
    drop(handle);
    driven.await??;

    let found = session.query_unpaged("SELECT balance, transfers FROM bank.accounts", ()).await?;
    let mut total = 0;
    let mut transfers = 0;
    for row in found.into_rows_result()?.rows::<AccountState>()? {
        let (balance, of_account) = row?;
        total += balance;
        transfers += of_account;
    }
    println!("{done} of {} changes done", ACCOUNTS + TRANSFERS);
    assert_eq!(transfers, 2 * (done - ACCOUNTS));
    println!("total {total}, expected {}", i64::from(ACCOUNTS) * DEPOSIT);
    Ok(())
}
