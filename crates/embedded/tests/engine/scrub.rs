//! `SCRUB` on damaged files: its result, and the rows that are readable afterwards.
#![expect(clippy::disallowed_methods, reason = "a test damages a file from outside the lanes")]

use std::path::{Path, PathBuf};

use engine::{Error, StatementOutcome};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Setup, close_engines, run, texts};

/// Opens the folder on one core, runs the statements, and closes it. Returns the result of the last
/// one.
fn session(dir: &Path, statements: Vec<String>) -> Result<Vec<Vec<String>>, Error> {
    let lanes = Setup::new(1).dir(Some(dir)).start();
    let answer = lanes.block_on(0, Group::CONTROL, move || async move {
        let mut last = Ok(Vec::new());
        for text in statements {
            last = run(&testkit::engine(), &text).await.map(|outcome| match outcome {
                StatementOutcome::Rows(rows) => texts(&rows),
                _ => Vec::new(),
            });
        }
        last
    });
    close_engines(&lanes);
    lanes.shutdown();
    answer
}

/// Returns the largest table file: that of the table with rows, not of the schema.
fn largest_file(dir: &Path) -> PathBuf {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let (path, about) = (entry.path(), entry.metadata().expect("metadata"));
            match about.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|name| name == "table") => {
                    found.push((about.len(), path))
                }
                false => {}
            }
        }
    }
    found.into_iter().max().expect("a table file").1
}

#[test]
fn scrub_saves_the_rest_of_a_damaged_file_and_counts_the_loss() {
    const ROWS: usize = 160;
    let dir = Folder::new("scrub");
    let mut fill = vec![
        KEYSPACE.to_owned(),
        "CREATE TABLE t (k int PRIMARY KEY, v text) WITH compression = {'enabled': false}".to_owned(),
    ];
    fill.extend((0..ROWS).map(|k| format!("INSERT INTO t (k, v) VALUES ({k}, '{}')", "x".repeat(1000))));
    fill.push("FLUSH t".to_owned());
    session(&dir, fill).expect("filled");
    let path = largest_file(&dir);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[100] ^= 4;
    std::fs::write(&path, bytes).expect("written");
    let scan = || vec!["SELECT k FROM t".to_owned()];
    let error = session(&dir, scan()).expect_err("a block is damaged");
    assert!(error.to_string().contains(path.to_str().expect("UTF-8")), "{error}");
    let rows = session(&dir, vec!["SCRUB t".to_owned()]).expect("scrubbed");
    let [row] = &rows[..] else { panic!("a row for the only core: {rows:?}") };
    let (lost, saved): (usize, usize) = (row[5].parse().expect("rows"), row[6].parse().expect("rows"));
    // Core, files, damaged files, lost files, lost blocks.
    assert_eq!(row[..5], ["0", "1", "1", "0", "1"]);
    assert!(lost > 0 && saved > 0 && lost + saved == ROWS, "{lost} lost, {saved} saved");
    assert!(row[8].contains(path.to_str().expect("UTF-8")), "{}", row[8]);
    assert_eq!(session(&dir, scan()).expect("scanned").len(), saved);
}
