//! `docs/benchmarks.md` and the pages below it are rendered from `bench/results/*.txt`, one file
//! and page for each group of goals. Benchmarks write their blocks there (`crates/result_file`).
//! Other results are typed. The command `cargo xtask benchmarks` then writes the pages, and the
//! step of that name fails where pages and files differ. The main page has a table of at most
//! [`CHOSEN_MAX`] rows, which `bench/chosen.txt` lists. A file has a header, then blocks of one
//! command each:
//!
//! ```text
//! title: Cold reads
//! goal: One sentence.
//! machine: The CPUs, the disk, and other programs at the time.
//!
//! date: 2026-11-24         `by 2026-11-24` means on or before that day
//! commit: 0a1b2c3          `0a1b2c3 modified` if files differed from it; or `unknown`
//! command: cargo run …     or `unknown`
//! machine: A sentence.     in place of that of the header; may be absent
//! runs: 9                  number of samples, or `unknown`
//! note: Sentences.         may be absent
//! what | measured | unit | goal | verdict       rows, at least one; unit, goal and verdict may be empty
//! ```

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;

use crate::files::{list, name, read, verdict};

const PAGE: &str = "docs/benchmarks.md";
const FOLDER: &str = "bench/results";
const VERDICTS: [&str; 3] = ["met", "missed", "undecided"];
/// Columns of a line of a document. Tables are wider.
const COLUMNS_MAX: usize = 110;
/// The main page, up to the rows of its last table. `{chosen}` stands for the first table.
const HEAD: &str = "bench/head.md";
/// Rows of the first table: `file | row` each, and lines that begin with `#`.
const CHOSEN: &str = "bench/chosen.txt";
/// The largest number of chosen rows.
const CHOSEN_MAX: usize = 25;
/// Folder of the other pages.
const PAGES: &str = "docs/benchmarks";

/// One file: title, goal and machine, then blocks.
type Results<'a> = ([&'a str; 3], Vec<Block<'a>>);

/// The results of one command.
struct Block<'a> {
    /// Date, commit, command and number of runs.
    run: [&'a str; 4],
    machine: Option<&'a str>,
    note: Option<&'a str>,
    /// What, measured, unit, goal and verdict.
    rows: Vec<[&'a str; 5]>,
}

/// A line, counted from 1, and the complaint about it.
type Fault = (usize, String);

/// Writes the pages. With `--check`, compares them.
pub(crate) fn run(root: &Path, flags: &[&str]) -> Result<(), String> {
    match flags {
        [] => write(root),
        ["--check"] => check(root),
        _ => Err(format!("expected `--check` or no flag, got `{}`.", flags.join(" "))),
    }
}

fn write(root: &Path) -> Result<(), String> {
    let pages = pages(root)?;
    let failed = |path: &str, error| format!("{path} could not be written: {error}.");
    std::fs::create_dir_all(root.join(PAGES)).map_err(|error| failed(PAGES, error))?;
    for stale in stale(root, &pages)? {
        std::fs::remove_file(root.join(&stale)).map_err(|error| failed(&stale, error))?;
    }
    pages.iter().try_for_each(|(path, text)| {
        std::fs::write(root.join(path), text).map_err(|error| failed(path, error))
    })
}

/// Fails unless the pages are what the files render to.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let pages = pages(root)?;
    let differ = |(path, text): (&String, &String)| match read(&root.join(path)) {
        Ok(got) => difference(path, text, &got),
        Err(error) => Some(error),
    };
    let stale = stale(root, &pages)?.into_iter().map(|path| format!("{path} is rendered from no file."));
    verdict(pages.iter().filter_map(differ).chain(stale).collect())
}

/// Returns the pages below [`PAGES`] that no file renders to.
fn stale(root: &Path, pages: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let folder = root.join(PAGES);
    let there = if folder.is_dir() { list(&folder)? } else { Vec::new() };
    let paths = there.iter().map(|path| format!("{PAGES}/{}", name(path)));
    Ok(paths.filter(|path| !pages.contains_key(path)).collect())
}

/// A complaint about the first line that differs.
fn difference(path: &str, expected: &str, got: &str) -> Option<String> {
    let most = expected.lines().count().max(got.lines().count());
    let pair = |index| [expected, got].map(|text| text.lines().nth(index).unwrap_or("the end of the page"));
    let (line, [expected, got]) = (1..).zip((0..most).map(pair)).find(|(_, pair)| pair[0] != pair[1])?;
    let remedy = "Change the files, not the page, then run `cargo xtask benchmarks`.";
    Some(format!("{path}:{line} expected from {FOLDER}: `{expected}`, got `{got}`. {remedy}"))
}

/// Renders all pages, by path.
fn pages(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut pages = BTreeMap::new();
    let mut texts = Vec::new();
    let mut complaints = Vec::new();
    for path in list(&root.join(FOLDER))?.into_iter().filter(|path| name(path).ends_with(".txt")) {
        texts.push((name(&path).trim_end_matches(".txt").to_owned(), read(&path)?));
    }
    let (mut subjects, mut files) = (String::new(), BTreeMap::new());
    for (file, text) in &texts {
        match parse(text) {
            Ok(results) => {
                let page = file.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '-');
                let (row, text) = render(page, &results);
                subjects += &row;
                pages.insert(format!("{PAGES}/{page}.md"), text);
                files.insert(&**file, (page, results));
            }
            Err((line, reason)) => complaints.push(format!("{FOLDER}/{file}.txt:{line} {reason}")),
        }
    }
    match chosen(&read(&root.join(CHOSEN))?, &files) {
        Ok(table) => {
            drop(pages.insert(PAGE.into(), read(&root.join(HEAD))?.replace("{chosen}", &table) + &subjects))
        }
        Err(mut more) => complaints.append(&mut more),
    }
    verdict(complaints).map(|()| pages)
}

/// Renders the table of the rows that `list` names, each with a link to its page.
fn chosen(list: &str, files: &BTreeMap<&str, (&str, Results<'_>)>) -> Result<String, Vec<String>> {
    let mut table = String::from("| what | measured | unit | goal | verdict |\n|---|---|---|---|---|\n");
    let lines = || (1..).zip(list.lines()).filter(|(_, line)| !line.starts_with('#'));
    let mut complaints = Vec::new();
    if lines().count() > CHOSEN_MAX {
        complaints.push(format!("{CHOSEN} has {} rows, at most {CHOSEN_MAX}.", lines().count()));
    }
    for (at, line) in lines() {
        let (file, what) = line.split_once(" | ").unwrap_or((line, ""));
        let row = files.get(file).and_then(|(page, (_, blocks))| {
            let mut rows = blocks.iter().flat_map(|block| &block.rows);
            rows.rfind(|row| row[0] == what).map(|row| (page, row))
        });
        match row {
            Some((page, [_, measured, unit, goal, verdict])) => {
                table += &format!(
                    "| [{what}](benchmarks/{page}.md) | {measured} | {unit} | {goal} | {verdict} |\n"
                );
            }
            None => complaints.push(format!("{CHOSEN}:{at} names no row of {FOLDER}: `{line}`.")),
        }
    }
    if complaints.is_empty() { Ok(table) } else { Err(complaints) }
}

/// Reads one file.
fn parse(text: &str) -> Result<Results<'_>, Fault> {
    let end = (text.lines().count() + 1, "the end of the file");
    let filled = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty());
    let mut lines: Vec<_> = filled.chain([end]).collect();
    lines.reverse();
    let header = [field(&mut lines, "title")?, field(&mut lines, "goal")?, field(&mut lines, "machine")?];
    let mut blocks = Vec::new();
    while blocks.is_empty() || lines.len() > 1 {
        let run = [field(&mut lines, "date")?, field(&mut lines, "commit")?, field(&mut lines, "command")?];
        let machine = optional(&mut lines, "machine")?;
        let [date, commit, command] = run;
        let run = [date, commit, command, field(&mut lines, "runs")?];
        let note = optional(&mut lines, "note")?;
        let mut rows = vec![row(lines.pop().unwrap_or(end))?];
        while lines.last().is_some_and(|line| *line != end && !line.1.starts_with("date:")) {
            rows.push(row(lines.pop().unwrap_or(end))?);
        }
        blocks.push(Block { run, machine, note, rows });
    }
    Ok((header, blocks))
}

/// Takes the next line if it has this key.
fn optional<'a>(lines: &mut Vec<(usize, &'a str)>, key: &str) -> Result<Option<&'a str>, Fault> {
    let is_there = lines.last().is_some_and(|(_, line)| line.starts_with(&format!("{key}:")));
    if is_there { field(lines, key).map(Some) } else { Ok(None) }
}

/// Takes the next line, the last of `lines`, which has to be `key: value`.
fn field<'a>(lines: &mut Vec<(usize, &'a str)>, key: &str) -> Result<&'a str, Fault> {
    let (at, line) = lines.pop().unwrap_or_default();
    let value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(": ")).unwrap_or_default().trim();
    let shape = || value.replace(|c: char| c.is_ascii_digit(), "0");
    let hash = value.strip_suffix(" modified").unwrap_or(value);
    let is_hash = || matches!(hash.len(), 7..=12) && hash.chars().all(|c| c.is_ascii_hexdigit());
    let (form, is_valid) = match key {
        "goal" | "machine" | "note" => ("a sentence", value.ends_with('.')),
        "date" => ("YYYY-MM-DD, or by YYYY-MM-DD", shape().trim_start_matches("by ") == "0000-00-00"),
        "commit" => ("a short hash, with modified or not, or unknown", value == "unknown" || is_hash()),
        "runs" => ("a number, or unknown", value == "unknown" || value.parse::<NonZero<u32>>().is_ok()),
        _ => ("a text without `", !value.is_empty() && !value.contains('`')),
    };
    if is_valid { Ok(value) } else { Err((at, format!("expected `{key}: ` and {form}, got `{line}`."))) }
}

/// Reads a row of a table. A verdict needs a goal.
fn row((at, line): (usize, &str)) -> Result<[&str; 5], Fault> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let row = <[&str; 5]>::try_from(cells).unwrap_or_default();
    let [what, measured, _, goal, verdict] = row;
    let is_verdict = verdict.is_empty() || (!goal.is_empty() && VERDICTS.contains(&verdict));
    let is_valid = is_verdict && !what.is_empty() && !measured.is_empty();
    let form = "what | measured | unit | goal | met, missed, undecided or nothing";
    if is_valid { Ok(row) } else { Err((at, format!("expected `{form}`, got `{line}`."))) }
}

/// The row of the main page, and the page.
fn render(page: &str, ([title, goal, machine], blocks): &Results<'_>) -> (String, String) {
    let mut text = format!(
        "# {title}\n\nHow it was measured: [benchmarks.md](../benchmarks.md).\n\n{}\n",
        wrap(goal, "")
    );
    text += "| what | measured | unit | goal | verdict | run |\n|---|---|---|---|---|---|\n";
    let mut list = format!("\n{}\n", wrap(&format!("Machine: {machine}"), ""));
    for (Block { run: [date, commit, command, runs], machine, note, rows }, number) in blocks.iter().zip(1..)
    {
        rows.iter().for_each(|row| text += &format!("| {} | {number} |\n", row.join(" | ")));
        let command = if *command == "unknown" { "command unknown".into() } else { format!("`{command}`") };
        list += &format!("{number}. {date}, commit {commit}, runs: {runs}.\n   {command}\n");
        [machine, note].into_iter().flatten().for_each(|text| list += &wrap(text, "   "));
    }
    let rows = || blocks.iter().flat_map(|block| &block.rows);
    let counts = VERDICTS.map(|verdict| rows().filter(|row| row[4] == verdict).count().to_string());
    (format!("| [{title}](benchmarks/{page}.md) | {} |\n", counts.join(" | ")), text + &list)
}

/// Breaks a text into lines with an indent. A code span stays whole.
fn wrap(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), indent.to_owned());
    let solid = |(index, part): (usize, &str)| part.replace(' ', if index % 2 == 1 { "\u{a0}" } else { " " });
    for word in text.split('`').enumerate().map(solid).collect::<Vec<_>>().join("`").split(' ') {
        if line.chars().count() + word.chars().count() > COLUMNS_MAX {
            lines += &format!("{}\n", line.trim_end());
            line = indent.to_owned();
        }
        line += &format!("{word} ");
    }
    (lines + line.trim_end() + "\n").replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "title: A title\ngoal: A goal.\nmachine: A machine.\n\ndate: by 2026-11-24\n\
        commit: unknown\ncommand: cargo bench\nruns: 2\nnote: A note.\nfirst | 1 | µs | 2 | met\nsecond | 1 | | |\n";

    #[test]
    fn file_renders_to_a_row_and_a_page() {
        let (summary, section) = render("a-title", &parse(FILE).unwrap());
        assert_eq!(summary, "| [A title](benchmarks/a-title.md) | 1 | 0 | 0 |\n");
        assert!(
            section.contains("\n| first | 1 | µs | 2 | met | 1 |\n| second | 1 |  |  |  | 1 |\n"),
            "{section}"
        );
        assert!(section.ends_with("runs: 2.\n   `cargo bench`\n   A note.\n"), "{section}");
    }

    #[test]
    fn block_of_a_benchmark_names_its_machine_and_a_modified_commit() {
        let written = FILE
            .replace("commit: unknown", "commit: 0a1b2c3d modified")
            .replace("runs: 2", "machine: Another machine.\nruns: 2");
        let (_, section) = render("page", &parse(&written).unwrap());
        let run = "1. by 2026-11-24, commit 0a1b2c3d modified, runs: 2.\n   `cargo bench`\n";
        let list = format!("{run}   Another machine.\n   A note.\n");
        assert!(section.ends_with(&list), "{section}");
        let fault = parse(&written.replace("Another machine.", "?")).err();
        assert_eq!(fault.map(|fault| fault.0), Some(8));
    }

    #[test]
    fn malformed_line_is_named() {
        let faults =
            [("title: A title", 1), ("by 2026-11-24", 5), ("unknown", 6), ("runs: 2", 8), (" | met", 10)];
        for (text, line) in faults {
            assert_eq!(parse(&FILE.replacen(text, "?", 1)).err().map(|fault| fault.0), Some(line), "{text}");
        }
    }

    #[test]
    fn changed_page_is_reported() {
        assert_eq!(difference(PAGE, "a\nb\n", "a\nb\n"), None);
        assert!(difference(PAGE, "a\nb\n", "a\n").unwrap().contains("benchmarks.md:2 expected"));
    }

    #[test]
    fn chosen_rows_are_found_and_counted() {
        let results = || BTreeMap::from([("01-a", ("a", parse(FILE).unwrap()))]);
        let table = chosen("# rows\n01-a | first\n", &results()).unwrap();
        assert!(table.ends_with("| [first](benchmarks/a.md) | 1 | µs | 2 | met |\n"), "{table}");
        assert!(chosen("01-a | third\n", &results()).unwrap_err()[0].contains("chosen.txt:1 names no row"));
        assert_eq!(chosen(&"01-a | first\n".repeat(CHOSEN_MAX + 1), &results()).unwrap_err().len(), 1);
    }
}
