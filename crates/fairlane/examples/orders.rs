//! The Rust example of docs/getting-started.md. The page contains the text after the attribute
//! verbatim: `tests/clients/documents.py` compares both, and runs the example.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

use scylla::client::session_builder::SessionBuilder;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:9042".into());
    let password = std::fs::read_to_string("fairlane-data/admin-password")?;
    let builder = SessionBuilder::new().known_node(address).user("admin", password.trim());
    let session = builder.build().await?;
    let insert = session.prepare("INSERT INTO shop.orders (customer, id, item) VALUES (?, now(), ?)").await?;
    for item in ["milk", "honey"] {
        session.execute_unpaged(&insert, (3, item)).await?;
    }
    let select = "SELECT item FROM shop.orders WHERE customer = ?";
    let found = session.query_unpaged(select, (3,)).await?.into_rows_result()?;
    for row in found.rows::<(&str,)>()? {
        println!("{}", row?.0);
    }
    Ok(())
}
