//! Queries that need more memory than their level allows. They spill if the level permits it, or
//! else fail with the reason. Results are the same as with enough memory.

use crate::common::{TestListener, refused, rows};
use sql::SqlConfig;
use testkit::{Folder, until};

const MIB: u64 = 1 << 20;

#[expect(clippy::disallowed_methods, reason = "a test's folder")]
fn files(folder: &Folder) -> usize {
    std::fs::read_dir(folder.path()).expect("a folder").count()
}

/// Memory limit of a level in these tests, bytes: a tenth of the total. Each operator gets 4 MiB
/// in any case, on each of two cores.
const LIMIT: u64 = 16 * MIB;

/// Over five times [`LIMIT`]: 1,200,000 rows of two numbers and a text of 41 to 47 bytes with a
/// view of 16 bytes.
const WIDE: &str = "(SELECT value AS n, value * 7919 % 1200007 AS k, repeat('x', 40) || value AS t \
                    FROM generate_series(1, 1200000)) ";

fn queries() -> [(&'static str, String); 3] {
    [
        (
            "sort",
            format!(
                "SELECT sum(p * n % 1000003) FROM (SELECT n, row_number() OVER (ORDER BY k, t) AS p FROM {WIDE} AS a)"
            ),
        ),
        (
            "groups",
            format!(
                "SELECT count(*), sum(c), max(t) FROM (SELECT t, count(*) AS c FROM {WIDE} AS a GROUP BY t)"
            ),
        ),
        (
            "join",
            format!("SELECT count(*), sum(a.n), min(b.t) FROM {WIDE} AS a JOIN {WIDE} AS b ON a.k = b.n"),
        ),
    ]
}

/// Starts a listener with a level `narrow` that has [`LIMIT`].
fn limited(folder: &Folder) -> TestListener {
    let config = SqlConfig { spill_dir: Some(folder.to_path_buf()), ..SqlConfig::default() };
    let listener = TestListener::start_with(2, 10 * LIMIT, config);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL narrow WITH memory_limit = '10%' AND memory_overcommit = false")
            .await;
        rows(&admin, "CREATE SERVICE LEVEL sure WITH memory_min = '70%'").await;
        rows(&admin, "CREATE SERVICE LEVEL plenty WITH memory_limit = '100%'").await;
    });
    listener
}

#[test]
fn query_of_five_times_its_memory_spills() {
    let folder = Folder::empty("spills");
    let listener = limited(&folder);
    listener.client(async {
        let admin = listener.admin().await;
        for (what, query) in queries() {
            listener.set_memory(8 << 30);
            rows(&admin, "SET service_level = plenty").await;
            let expected = rows(&admin, &query).await;
            assert_eq!((expected.len(), listener.written_bytes("plenty")), (1, 0), "{what}");
            listener.set_memory(10 * LIMIT);
            rows(&admin, "SET service_level = narrow").await;
            let before = listener.written_bytes("narrow");
            assert_eq!(rows(&admin, &query).await, expected, "{what}");
            let spilled = listener.written_bytes("narrow") - before;
            assert!(spilled > LIMIT, "{what}: {spilled} bytes were spilled");
        }
    });
    until("files are gone", || files(&folder) == 0);
}

/// Joins without an equality keep one side in memory, also where other nodes spill.
#[test]
fn joins_without_equality_are_refused_beyond_their_memory() {
    let folder = Folder::empty("loops");
    let listener = limited(&folder);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "SET service_level = narrow").await;
        let few = "(SELECT value AS n FROM generate_series(1, 3)) ";
        let placed = format!("(SELECT row_number() OVER (ORDER BY k, t) AS p FROM {WIDE} AS w)");
        for query in [
            format!("SELECT count(a.t) FROM {WIDE} AS a JOIN {WIDE} AS b ON a.t < b.t"),
            format!("SELECT count(a.t) FROM {WIDE} AS a LEFT JOIN {WIDE} AS b ON a.t < b.t"),
            format!("SELECT count(a.t) FROM {WIDE} AS a FULL JOIN {WIDE} AS b ON a.t < b.t"),
            format!(
                "SELECT count(a.t) FROM {WIDE} AS a WHERE EXISTS (SELECT 1 FROM {WIDE} AS b WHERE a.t < b.t)"
            ),
        ] {
            let (code, message) = refused(&admin, &query).await;
            assert_eq!(code, "53200", "{query}: {message}");
        }
        // Nodes below still spill.
        let before = listener.written_bytes("narrow");
        let query = format!("SELECT count(*) FROM {few} AS a JOIN {placed} AS b ON b.p < a.n");
        assert_eq!(rows(&admin, &query).await, ["3"]);
        assert!(listener.written_bytes("narrow") > before, "the sort below spills");
    });
    until("files are gone", || files(&folder) == 0);
}

#[test]
fn level_without_spilling_fails_with_its_name() {
    let folder = Folder::empty("refused");
    let config = SqlConfig { spill_dir: Some(folder.to_path_buf()), ..SqlConfig::default() };
    let listener = TestListener::start_with(2, LIMIT, config);
    listener.client(async {
        let admin = listener.admin().await;
        for text in ["CREATE SERVICE LEVEL narrow WITH spill = false", "ATTACH SERVICE LEVEL narrow TO admin"]
        {
            admin.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        for (what, query) in queries() {
            let (code, message) = refused(&admin, &query).await;
            assert_eq!(code, "53200", "{what}: {message}");
            assert!(message.contains("narrow"), "{what}: {message}");
        }
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
    });
    assert_eq!(files(&folder), 0);
}

/// Runs ten queries of one kind at once, for each kind, beside a level with reserved memory.
#[test]
fn concurrent_spills_spare_a_level_with_memory_min() {
    let folder = Folder::empty("many");
    let listener = limited(&folder);
    listener.client(async {
        let neighbour = listener.admin().await;
        rows(&neighbour, "SET service_level = sure").await;
        let mut clients = Vec::new();
        for _ in 0..10 {
            let client = listener.admin().await;
            rows(&client, "SET service_level = narrow").await;
            clients.push(client);
        }
        let fits = "SELECT count(*), max(t) FROM (SELECT value % 100000 AS k, repeat('y', 40) || value AS t \
                    FROM generate_series(1, 200000)) AS a GROUP BY k ORDER BY 2 DESC LIMIT 1";
        let expected = rows(&neighbour, fits).await;
        for (what, query) in queries() {
            let query = query.replace("1200000", "400000").replace("1200007", "400009");
            let answers = futures::future::join_all(clients.iter().map(|client| rows(client, &query)));
            let beside = async {
                loop {
                    assert_eq!(rows(&neighbour, fits).await, expected, "beside ten of {what}");
                }
            };
            let answers = tokio::select! {
                answers = answers => answers,
                () = beside => unreachable!("it asks for ever"),
            };
            assert!(answers.windows(2).all(|two| two[0] == two[1]), "{what}: {answers:?}");
        }
        // A client dropped in the middle of an answer cannot be used any more.
        drop(neighbour);
        assert!(listener.written_bytes("narrow") > 0);
        assert_eq!(listener.written_bytes("sure"), 0, "what it has for sure it need not spill");
    });
}

#[test]
fn spilling_is_bounded_and_says_so() {
    let folder = Folder::empty("bounded");
    let config = SqlConfig {
        spill_dir: Some(folder.to_path_buf()),
        spill_bytes_max: Some(2 * MIB),
        ..SqlConfig::default()
    };
    let listener = TestListener::start_with(2, LIMIT, config);
    listener.client(async {
        let admin = listener.admin().await;
        let [(_, query), ..] = queries();
        let (code, message) = refused(&admin, &query).await;
        assert!(code == "53100" && message.contains("--spill-limit"), "{code} {message}");
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
    });
    until("files are gone", || files(&folder) == 0);
}
