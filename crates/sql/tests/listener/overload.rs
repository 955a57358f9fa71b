//! Queries that yield to others. Actions of `query_limit` for `'overload'`: while query memory is
//! short, the heaviest query of the level that uses most beside its shares yields. All on one core,
//! where no operator needs memory to pass batches on.

use std::cell::Cell;
use std::time::Duration;

use tokio_postgres::Client;

use crate::common::{TestListener, refused, rows};
use sql::SqlConfig;

/// Query memory, bytes.
const MEMORY: u64 = 64 << 20;

/// Holds over half of [`MEMORY`] as the build side of a join, does not grow, and runs longer than
/// any test waits.
const HOLDER: &str = "SELECT sum(length(a.t) + b.n % 3) FROM \
                      (SELECT value AS n, repeat('x', 80) || value AS t FROM generate_series(1, 400000)) a \
                      JOIN (SELECT value AS n FROM generate_series(1, 1000000000000)) b ON a.n = b.n % 400000";

/// Runs as long, and uses hardly any memory.
const SMALL: &str = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)";

/// Needs more than HOLDER leaves.
const FITS: &str = "SELECT count(*) FROM (SELECT DISTINCT repeat('y', 60) || value AS t \
                    FROM generate_series(1, 200000)) AS a";

/// Needs more than [`MEMORY`], and is refused.
const TOO_LARGE: &str = "SELECT count(*) FROM (SELECT DISTINCT repeat('y', 60) || value AS t \
                         FROM generate_series(1, 3000000)) AS a";

/// Creates the levels `slow`, `oltp`, and `olap` with the actions `overload`. Returns a session of
/// the administrator.
async fn with_levels(listener: &TestListener, overload: &str) -> Client {
    let admin = listener.admin().await;
    let olap = format!("shares = 100 AND spill = false AND query_limit = {{'overload': '{overload}'}}");
    rows(&admin, "CREATE SERVICE LEVEL slow WITH shares = 10").await;
    rows(&admin, "CREATE SERVICE LEVEL oltp WITH shares = 1000 AND spill = false").await;
    rows(&admin, &format!("CREATE SERVICE LEVEL olap WITH {olap}")).await;
    admin
}

/// Waits until a level has a statement with this condition. Returns its id.
async fn shown(admin: &Client, level: &str, so: &str) -> String {
    let text = format!("SELECT id FROM system.running_statements WHERE service_level = '{level}' AND {so}");
    loop {
        if let Some(id) = rows(admin, &text).await.into_iter().next() {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn cancel(admin: &Client, id: &str) {
    rows(admin, &format!("CANCEL STATEMENT '{id}'")).await;
}

/// Returns the CPU that a level uses on heavy lanes in 300 ms, ns.
async fn heavy_ns_in_300_ms(listener: &TestListener, level: &str) -> u64 {
    let before = listener.heavy_ns(level);
    tokio::time::sleep(Duration::from_millis(300)).await;
    listener.heavy_ns(level) - before
}

/// Waits until the memory of a level's statements stays the same.
async fn until_steady(admin: &Client, level: &str) {
    let text = format!(
        "SELECT id, memory_bytes FROM system.running_statements WHERE service_level = '{level}' ORDER BY id"
    );
    loop {
        let before = rows(admin, &text).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if rows(admin, &text).await == before {
            return;
        }
    }
}

/// Asks for more memory than there is, until `is_over`.
async fn press(listener: &TestListener, is_over: &Cell<bool>) {
    let client = listener.session_in("oltp").await;
    while !is_over.get() {
        assert_eq!(refused(&client, TOO_LARGE).await.0, "53200");
    }
}

#[test]
fn idle_borrower_is_cancelled_for_an_entitled_level() {
    let listener = TestListener::start_with(1, MEMORY, SqlConfig::default());
    listener.client(async {
        let admin = with_levels(&listener, "cancel").await;
        let (holder, small) = (listener.session_in("olap").await, listener.session_in("olap").await);
        let oltp = listener.session_in("oltp").await;
        let pressing = async {
            shown(&admin, "olap", &format!("memory_bytes > {}", MEMORY / 2)).await;
            shown(&admin, "olap", &format!("memory_bytes < {}", MEMORY / 8)).await;
            until_steady(&admin, "olap").await;
            // If it fits beside the holder, that is not cancelled for it, and the test fails below.
            while oltp.simple_query(FITS).await.is_err() {}
            cancel(&admin, &shown(&admin, "olap", "memory_bytes >= 0").await).await;
        };
        let (held, of_small, ()) = tokio::join!(refused(&holder, HOLDER), refused(&small, SMALL), pressing);
        assert!(held.0 == "57014" && held.1.contains("service level 'olap': overload ("), "{held:?}");
        assert!(of_small.1.contains("user request"), "{of_small:?}");
    });
}

#[test]
fn overload_demotes_and_then_cancels() {
    let listener = TestListener::start_with(1, MEMORY, SqlConfig::default());
    listener.client(async {
        let admin = with_levels(&listener, "demote:slow, cancel").await;
        let runner = listener.session_in("olap").await;
        let is_over = Cell::new(false);
        let running = async {
            let ended = refused(&runner, SMALL).await;
            is_over.set(true);
            ended
        };
        let demoted = shown(&admin, "slow", "memory_bytes >= 0");
        let (ended, _, ()) = tokio::join!(running, demoted, press(&listener, &is_over));
        assert!(ended.0 == "57014" && ended.1.contains("query memory is short"), "{ended:?}");
        assert!(listener.heavy_ns("slow") > 0);
    });
}

#[test]
fn suspended_query_goes_on_after_the_overload() {
    let listener = TestListener::start_with(1, MEMORY, SqlConfig::default());
    listener.client(async {
        let admin = with_levels(&listener, "suspend").await;
        let runner = listener.session_in("olap").await;
        let is_over = Cell::new(false);
        let watching = async {
            shown(&admin, "olap", "state = 'suspended'").await;
            // Its tasks stop where they yield, and only look now and then whether they may go on.
            while heavy_ns_in_300_ms(&listener, "olap").await > 2_000_000 {}
            is_over.set(true);
            let id = shown(&admin, "olap", "state = 'running'").await;
            while heavy_ns_in_300_ms(&listener, "olap").await < 20_000_000 {}
            cancel(&admin, &id).await;
        };
        let (ended, (), ()) = tokio::join!(refused(&runner, SMALL), watching, press(&listener, &is_over));
        assert!(ended.1.contains("user request"), "{ended:?}");
    });
}

/// A table function without end, on the only core: the level's other statements get their turns.
/// With wide values, batches have few rows.
#[test]
fn endless_query_leaves_turns_to_others_of_its_level() {
    let listener = TestListener::start_with(1, MEMORY, SqlConfig::default());
    listener.client(async {
        let (admin, runner) = (listener.admin().await, listener.admin().await);
        let wide = "SELECT sum(length(repeat('x', 100000) || value)) FROM generate_series(1, 1000000000000)";
        for endless in [SMALL, wide] {
            let beside = async {
                let id = shown(&admin, "default", "elapsed_us > 200000").await;
                for text in [
                    "SELECT max(p) FROM (SELECT row_number() OVER (ORDER BY value) AS p FROM generate_series(1, 1000))",
                    "SELECT count(DISTINCT value) FROM generate_series(1, 1000)",
                ] {
                    assert_eq!(rows(&admin, text).await, ["1000"]);
                }
                cancel(&admin, &id).await;
            };
            let ((code, message), ()) = tokio::join!(refused(&runner, endless), beside);
            assert_eq!(code, "57014", "{endless}: {message}");
        }
    });
}
