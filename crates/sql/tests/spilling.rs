//! Queries that want more memory than their level may have: they spill where they may, and say why they fail where they may not. The
//! answers are those they give with plenty.

mod common;

use common::{TestDoor, refused, rows};
use sql::SqlConfig;

const MIB: u64 = 1 << 20;

/// A folder of the test's own, gone with it.
struct Folder(std::path::PathBuf);

impl Folder {
    #[expect(clippy::disallowed_methods, reason = "a test's folder")]
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fairlane-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    #[expect(clippy::disallowed_methods, reason = "a test's folder")]
    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).expect("a folder").count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// About 40 MiB in each of them, sorted, grouped and joined.
const WIDE: &str = "(SELECT value AS n, value * 7919 % 600011 AS k, repeat('x', 40) || value AS t FROM generate_series(1, 600000)) ";

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

#[test]
fn what_does_not_fit_spills() {
    let folder = Folder::new("spills");
    let config = SqlConfig { spill_dir: Some(folder.0.clone()), ..SqlConfig::default() };
    let door = TestDoor::start_with(2, 8 << 30, config);
    door.client(async {
        let admin = door.admin().await;
        let mut plenty = Vec::new();
        for (what, query) in queries() {
            let answer = rows(&admin, &query).await;
            assert_eq!(answer.len(), 1, "{what}");
            plenty.push(answer);
        }
        door.set_memory(16 * MIB);
        for ((what, query), expected) in queries().into_iter().zip(plenty) {
            assert_eq!(rows(&admin, &query).await, expected, "{what}");
        }
    });
    door.until("files are gone", || folder.files() == 0);
}

#[test]
fn a_level_that_may_not_spill_says_so() {
    let folder = Folder::new("refused");
    let config = SqlConfig { spill_dir: Some(folder.0.clone()), ..SqlConfig::default() };
    let door = TestDoor::start_with(2, 16 * MIB, config);
    door.client(async {
        let admin = door.admin().await;
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
    assert_eq!(folder.files(), 0);
}

#[test]
fn many_finish_together() {
    let folder = Folder::new("many");
    let config = SqlConfig { spill_dir: Some(folder.0.clone()), ..SqlConfig::default() };
    let door = TestDoor::start_with(2, 64 * MIB, config);
    door.client(async {
        let [_, (_, query), _] = queries();
        let mut clients = Vec::new();
        for _ in 0..10 {
            clients.push(door.admin().await);
        }
        let answers = clients.iter().map(|client| rows(client, &query));
        let answers = futures::future::join_all(answers).await;
        assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
    });
}

#[test]
fn spilling_is_bounded_and_says_so() {
    let folder = Folder::new("bounded");
    let config = SqlConfig {
        spill_dir: Some(folder.0.clone()),
        spill_bytes_max: Some(2 * MIB),
        ..SqlConfig::default()
    };
    let door = TestDoor::start_with(2, 16 * MIB, config);
    door.client(async {
        let admin = door.admin().await;
        let [(_, query), ..] = queries();
        let (code, message) = refused(&admin, &query).await;
        assert!(code == "53100" && message.contains("--spill-limit"), "{code} {message}");
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
    });
    door.until("files are gone", || folder.files() == 0);
}
