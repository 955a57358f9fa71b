//! Check of the demo's report in a headless Chromium, light and dark, in frames with the widths of
//! a telephone, a tablet and a window.
//!
//! 1. The binary renders the results of earlier runs in `tests/report`, one file for each subject
//!    of the demo.
//! 2. A copy of the page contains `check.js`. It checks the page from inside and sends its
//!    complaints to the page around it, `around.html`, which Chromium then prints.
//! 3. A page with every known fault is checked first, to test the check.

mod browser;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::files::{read, verdict};
use crate::{BUILD_TIMEOUT, cargo, child, target};

const CHECK: &str = include_str!("check.js");
const AROUND: &str = include_str!("around.html");

/// Widths of the frames, CSS pixels.
const WIDTHS: [u32; 3] = [360, 768, 1400];

/// Results of earlier runs, each with the least number of charts: one for each experiment.
const FIGURES: [(&str, usize); 6] = [
    ("figures.json", 4),
    ("flush.json", 2),
    ("compaction.json", 2),
    ("olap.json", 4),
    ("batching.json", 3),
    ("overload.json", 3),
];

/// Timeout of rendering, which takes milliseconds.
const RENDER_TIMEOUT: Duration = Duration::from_secs(60);

/// Refuses all requests of the page. Inline styles and scripts are allowed.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";

/// A page with one fault of each kind, and the expected complaints.
const FAULTY: &str = "<!doctype html><html><head><style>\
    :root { color-scheme: light dark; --ground: #ffffff } \
    @media (prefers-color-scheme: dark) { :root { --ground: #101010 } } \
    body { background: var(--ground); color: gray }</style></head><body>\
    <img src=\"https://127.0.0.1:9/x.png\"><script>console.error('a fault'); nobody.knows</script>\
    <p>NaN requests</p><div style=\"width: 3000px\">wide</div><p style=\"color: var(--ground)\">unseen</p>\
    <svg viewBox=\"0 0 9 9\"><path class=\"line\" d=\"\"/></svg></body></html>";
const FAULTS: [&str; 7] =
    ["asks for", "error: a fault", "nobody", "says \"NaN", "is 3", "is hard to read", "is empty"];

/// Renders the reports and checks them.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let browser = browser::find_or_install()?;
    let build = ["build", "--release", "--workspace", "--bins", "--examples"];
    child::run(cargo(root).args(build), BUILD_TIMEOUT)?;
    let folder = target::folder(root).join("report");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("{} cannot be made: {error}.", folder.display()))?;
    let pages =
        FIGURES.map(|(figures, charts)| (folder.join(figures).with_extension("html"), figures, charts));
    for (page, figures, _) in &pages {
        let mut render = Command::new(target::folder(root).join("release/fairlane"));
        render
            .args(["demo", "--from"])
            .arg(root.join("tests/report").join(figures))
            .arg("--report")
            .arg(page);
        render.stdout(Stdio::null());
        child::run(&mut render, RENDER_TIMEOUT)?;
    }

    for scheme in ["light", "dark"] {
        let seen = run(&browser, &folder, scheme, FAULTY)?;
        let unseen: Vec<&str> =
            FAULTS.into_iter().filter(|fault| !seen.iter().any(|line| line.contains(fault))).collect();
        if !unseen.is_empty() {
            return Err(format!(
                "the check does not find its faulty page: expected {unseen:?} too, got {seen:?}."
            ));
        }
        for (page, figures, charts_min) in &pages {
            let seen = run(&browser, &folder, scheme, &read(page)?)?;
            verdict(judge(&seen, scheme, figures, *charts_min))?;
        }
    }
    Ok(())
}

/// Returns the lines that Chromium prints for a page in one colour scheme.
fn run(browser: &Path, folder: &Path, scheme: &str, page: &str) -> Result<Vec<String>, String> {
    let (inside, around) = (folder.join("inside.html"), folder.join("around.html"));
    write(&inside, &with_check(page))?;
    let frames = WIDTHS
        .map(|width| format!("<iframe src=\"inside.html\" width=\"{width}\" height=\"900\"></iframe>\n"));
    write(&around, &format!("{AROUND}{}", frames.concat()))?;
    let dom = browser::dom(browser, folder, &around, scheme)?;
    let verdict = dom.split_once("<pre id=\"verdict\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (lines, _) = verdict.ok_or_else(|| format!("expected a verdict from Chromium, got {dom}"))?;
    Ok(lines.lines().map(str::to_owned).collect())
}

/// Returns the page with policy and check before everything else.
fn with_check(page: &str) -> String {
    let head = "<head>";
    page.replacen(head, &format!("{head}{POLICY}<script>{CHECK}</script>"), 1)
}

/// Returns the complaints about a report: faults, and widths without all of the charts.
fn judge(seen: &[String], scheme: &str, figures: &str, charts_min: usize) -> Vec<String> {
    let wrong = seen.iter().filter(|line| line.starts_with("wrong"));
    let mut complaints: Vec<String> = wrong.map(|line| format!("{figures}: {line}")).collect();
    for width in WIDTHS {
        let place = format!("seen {scheme} {width}: ");
        let charts = seen.iter().find_map(|line| line.strip_prefix(&place)?.strip_suffix(" charts"));
        if charts.and_then(|charts| charts.parse().ok()).is_none_or(|charts: usize| charts < charts_min) {
            complaints
                .push(format!("in {scheme}, {width} wide, the report of {figures} shows {charts:?} charts."));
        }
    }
    complaints
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{} cannot be written: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_width_has_to_show_the_charts() {
        let all = lines("seen light 360: 4 charts\nseen light 768: 6 charts\nseen light 1400: 6 charts");
        let judge = |seen: &[String], scheme: &str| judge(seen, scheme, "f", 4);
        assert_eq!(judge(&all, "light"), [""; 0]);
        assert_eq!(judge(&all, "dark").len(), WIDTHS.len());
        assert_eq!(judge(&all[1..], "light").len(), 1);
        assert_eq!(judge(&lines(&all.join("\n").replacen('4', "3", 1)), "light").len(), 1);
        let wrong = [lines("wrong light 360: is 500 wide"), all].concat();
        assert_eq!(judge(&wrong, "light"), ["f: wrong light 360: is 500 wide"]);
    }

    #[test]
    fn the_check_comes_first() {
        let page = with_check("<html><head><title>x</title></head></html>");
        assert!(page.starts_with("<html><head><meta http-equiv=\"Content-Security-Policy\""), "{page}");
        assert!(page.ends_with("</script><title>x</title></head></html>"), "{page}");
    }
}
