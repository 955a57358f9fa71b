//! Synthetic table with the 105 columns of ClickBench's `hits`, their types, and a similar skew.
//! The real table has 100 million page views of a web analytics service, a download of tens of
//! gigabytes. Compare results on this table with each other, not with published ones.
//!
//! The real table's public queries give these properties. 13 % of rows have a search phrase, 0.6 %
//! come from an advertisement, 5 % from a known phone. The most frequent user has one row in some
//! thousands, the most frequent counter and region about 10 % each. Titles and addresses have about
//! 80 bytes, repeat, and sometimes contain Google. Forty columns are nearly constant. A user keeps
//! region, browser and screen in all rows.
//!
//! 1. A row depends only on the seed and its number, so that any chunk can be computed alone.
//! 2. The user of a row is drawn first. Columns of a user depend only on the seed and the user.
//! 3. Ranks are skewed as n·uᵏ for a uniform u. Rank r then has a share of about r^(1/k − 1),
//!    Zipf's law with exponent 1 − 1/k. The first rank has a share of n^(−1/k). The formula
//!    multiplies only, so that every machine draws equal values.

use super::hits_columns::{COLUMNS, DRAWS, Draw, KEY, MODELS, RowValue, WORDS};
use super::{Cell, CellType, Each, Table, TableSource};

/// First day of the table, 1 July 2013, in days since 1970. The table covers [`DAYS`] days.
const FIRST_DAY: i64 = 15_887;
const DAYS: u64 = 31;
const DAY_MS: i64 = 86_400_000;

/// Random numbers by SplitMix64. Every output depends on all bits of the seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

impl Rng {
    /// Returns the generator of item `number` of a kind.
    fn of(seed: u64, kind: u64, number: u64) -> Rng {
        Rng(mix(
            mix(seed ^ kind.wrapping_mul(0xD6E8_FEB8_6659_FD93)) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a uniform number from 0 to `n` - 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Returns true with a probability of `n` thousandths.
    pub(crate) fn thousandths(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }

    /// Returns a skewed number from 0 to `n` - 1. A higher power makes low numbers more likely.
    pub(crate) fn skewed(&mut self, n: u64, power: u32) -> u64 {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let skewed = (0..power).fold(1.0, |product, _| product * unit);
        ((skewed * n as f64) as u64).min(n.saturating_sub(1))
    }
}

/// Kinds of items with a generator of their own.
mod kind {
    pub(super) const ROW: u64 = 1;
    pub(super) const USER: u64 = 2;
    pub(super) const PHRASE: u64 = 3;
    pub(super) const PAGE: u64 = 4;
    pub(super) const ID: u64 = 5;
}

/// The table of a seed.
#[derive(Debug)]
pub(crate) struct Hits {
    seed: u64,
    tables: [Table; 1],
}

impl Hits {
    pub(crate) fn new(rows: u64, seed: u64) -> Hits {
        Hits { seed, tables: [Table { name: "hits", columns: COLUMNS, key: KEY, rows, batch_columns: 0 }] }
    }

    fn rows(&self) -> u64 {
        self.tables[0].rows
    }

    /// Returns a share of the rows, in thousandths. Bounds the distinct users, phrases and pages.
    fn part(&self, thousandths: u64) -> u64 {
        (u128::from(self.rows()) * u128::from(thousandths) / 1000).max(1) as u64
    }
}

/// Values of a row that are drawn before its columns.
struct Hit {
    number: u64,
    user: u64,
    counter: u64,
    time_ms: i64,
    row_rng: Rng,
    user_rng: Rng,
}

/// Texts of a row, reused between rows to save allocations.
#[derive(Default)]
struct Texts {
    title: String,
    url: String,
    referer: String,
    phrase: String,
}

impl TableSource for Hits {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn make(&self, _table: usize, chunk: u64, chunks: u64, each: Each<'_>) {
        let begin = |chunk: u64| (u128::from(self.rows()) * u128::from(chunk) / u128::from(chunks)) as u64;
        let mut texts = Texts::default();
        for number in begin(chunk)..begin(chunk + 1) {
            let mut hit = self.hit(number);
            self.write_texts(&mut hit, &mut texts);
            let mut row = [Cell::Small(0); COLUMNS.len()];
            for (cell, (column, draw)) in row.iter_mut().zip(COLUMNS.iter().zip(DRAWS)) {
                *cell = self.cell(&mut hit, &texts, column.kind, *draw);
            }
            if each(&row).is_break() {
                return;
            }
        }
    }
}

impl Hits {
    fn hit(&self, number: u64) -> Hit {
        let mut row_rng = Rng::of(self.seed, kind::ROW, number);
        let user = row_rng.skewed(self.part(180), 2);
        let second = row_rng.below(DAYS * 86_400) as i64;
        Hit {
            number,
            user,
            counter: row_rng.skewed(6500, 4),
            time_ms: FIRST_DAY * DAY_MS + second * 1000,
            user_rng: Rng::of(self.seed, kind::USER, user),
            row_rng,
        }
    }

    /// Draws address and title of the page, its referring page and its search phrase. The last two
    /// may be empty.
    fn write_texts(&self, hit: &mut Hit, texts: &mut Texts) {
        let page = hit.row_rng.skewed(self.part(180), 2);
        self.page(hit.counter, page, &mut texts.url, Some(&mut texts.title));
        if hit.row_rng.thousandths(150) {
            texts.title.clear();
        }
        texts.referer.clear();
        if hit.row_rng.thousandths(810) {
            let counter = hit.row_rng.skewed(6500, 3);
            let page = hit.row_rng.skewed(self.part(200), 2);
            self.page(counter, page, &mut texts.referer, None);
        }
        texts.phrase.clear();
        if hit.row_rng.thousandths(132) {
            let phrase = hit.row_rng.skewed(self.part(100), 3);
            let mut rng = Rng::of(self.seed, kind::PHRASE, phrase);
            let words = 1 + rng.below(4);
            sentence(&mut texts.phrase, words, &mut rng);
        }
    }

    fn page(&self, counter: u64, page: u64, url: &mut String, title: Option<&mut String>) {
        let mut rng = Rng::of(self.seed, kind::PAGE, page ^ counter << 40);
        let google = rng.below(5000) == 0;
        url.clear();
        url.push_str("http://");
        let host = if google { ".google.com" } else { ".example" };
        // Writing to a String cannot fail.
        let _ = std::fmt::Write::write_fmt(url, format_args!("site{counter}{host}"));
        for _ in 0..2 + rng.below(9) {
            url.push('/');
            url.push_str(WORDS[rng.below(WORDS.len() as u64) as usize]);
        }
        let _ = std::fmt::Write::write_fmt(url, format_args!("?page={page}"));
        if rng.thousandths(400) {
            let _ = std::fmt::Write::write_fmt(url, format_args!("&session={:016x}", rng.bits()));
        }
        let Some(title) = title else { return };
        title.clear();
        let words = 6 + rng.below(20);
        sentence(title, words, &mut rng);
        if google || rng.below(2000) == 0 {
            title.push_str(" - Google");
        }
    }

    fn cell<'t>(&self, hit: &mut Hit, texts: &'t Texts, kind: CellType, draw: Draw) -> Cell<'t> {
        let number = match draw {
            Draw::Of(RowValue::Title) => return Cell::Text(&texts.title),
            Draw::Of(RowValue::Url) => return Cell::Text(&texts.url),
            Draw::Of(RowValue::Referer) => return Cell::Text(&texts.referer),
            Draw::Of(RowValue::Phrase) => return Cell::Text(&texts.phrase),
            Draw::Of(RowValue::Model) => {
                let phone = hit.user.is_multiple_of(18);
                return Cell::Text(if phone {
                    MODELS[hit.user_rng.skewed(MODELS.len() as u64, 3) as usize]
                } else {
                    ""
                });
            }
            Draw::OneOf(filled, list) => {
                let filled = hit.row_rng.thousandths(filled);
                let at = hit.row_rng.skewed(list.len() as u64, 3) as usize;
                return Cell::Text(if filled { list[at] } else { "" });
            }
            Draw::Of(RowValue::Time { hours }) => return Cell::Timestamp(hit.time_ms + hours * 3_600_000),
            Draw::Of(RowValue::Date) => return Cell::Date((hit.time_ms / DAY_MS) as i32),
            Draw::Of(RowValue::Hit) => Rng::of(self.seed, kind::ID, hit.number).bits() as i64,
            Draw::Of(RowValue::User) => Rng::of(self.seed, kind::ID, !hit.user).bits() as i64,
            Draw::Of(RowValue::Counter) => hit.counter as i64 + 1,
            // Only a row with a search phrase has a search engine.
            Draw::Of(RowValue::Engine) if texts.phrase.is_empty() => 0,
            Draw::Of(RowValue::Engine) => 2 + hit.row_rng.skewed(90, 5) as i64,
            Draw::Of(RowValue::HashOf(text)) => {
                let text = if text == "url" { &texts.url } else { &texts.referer };
                text.bytes().fold(0u64, |hash, byte| mix(hash ^ u64::from(byte))) as i64
            }
            Draw::Always(number) => number,
            Draw::Anything => hit.row_rng.bits() as i64,
            Draw::Flag(thousandths) => i64::from(hit.row_rng.thousandths(thousandths)),
            Draw::Skewed(values, power, from) => from + hit.row_rng.skewed(values, power) as i64,
            Draw::Seldom(thousandths, values, power, from) => {
                let drawn = from + hit.row_rng.skewed(values, power) as i64;
                if hit.row_rng.thousandths(thousandths) { drawn } else { 0 }
            }
            Draw::OfUser(values, power, from) => from + hit.user_rng.skewed(values, power) as i64,
        };
        match kind {
            CellType::Small => Cell::Small(number as i16),
            CellType::Int => Cell::Int(number as i32),
            _ => Cell::Big(number),
        }
    }
}

fn sentence(out: &mut String, words: u64, rng: &mut Rng) {
    for word in 0..words {
        if word > 0 {
            out.push(' ');
        }
        out.push_str(WORDS[rng.skewed(WORDS.len() as u64, 2) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ops::ControlFlow;

    use super::*;
    use crate::data::checksum;

    const ROWS: u64 = 20_000;

    /// Returns the values of a column, as text.
    fn column(source: &Hits, name: &str) -> Vec<String> {
        let at = COLUMNS.iter().position(|column| column.name == name).expect(name);
        let mut out = Vec::new();
        source.make(0, 0, 1, &mut |row| {
            let mut text = String::new();
            row[at].print(&mut text);
            out.push(text);
            ControlFlow::Continue(())
        });
        out
    }

    /// Returns shares of all rows: non-empty values, the most frequent of them, and distinct
    /// values.
    fn shares(source: &Hits, name: &str) -> (f64, f64, f64) {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for value in column(source, name) {
            *counts.entry(value).or_default() += 1;
        }
        ["\"\"", "0"].into_iter().for_each(|nothing| {
            counts.remove(nothing);
        });
        let of_all = |count: usize| count as f64 / ROWS as f64;
        let sum = counts.values().sum::<usize>();
        let top = counts.values().max().copied().unwrap_or(0);
        (of_all(sum), of_all(top), of_all(counts.len()))
    }

    fn check(name: &str, filled: f64, top: std::ops::Range<f64>, different: std::ops::Range<f64>) {
        let found = shares(&Hits::new(ROWS, 7), name);
        // Five standard deviations of a share of `ROWS` rows.
        let spread = 5.0 * (filled * (1.0 - filled) / ROWS as f64).sqrt() + 1e-9;
        assert!((found.0 - filled).abs() <= spread, "{name}: {found:?} filled");
        assert!(top.contains(&found.1) && different.contains(&found.2), "{name}: {found:?}");
    }

    #[test]
    fn values_are_as_skewed_as_the_real_table() {
        check("WatchID", 1.0, 0.0..1e-4, 0.999..1.1);
        check("UserID", 1.0, 0.005..0.03, 0.08..0.18);
        check("CounterID", 1.0, 0.05..0.2, 0.02..0.33);
        check("RegionID", 1.0, 0.05..0.3, 0.01..0.4);
        check("SearchPhrase", 0.132, 0.002..0.02, 0.02..0.1);
        check("Title", 0.85, 0.0..0.05, 0.1..0.85);
        check("Referer", 0.81, 0.0..0.05, 0.1..0.81);
        check("AdvEngineID", 0.006, 0.0..0.006, 0.0..0.002);
        check("MobilePhoneModel", shares(&Hits::new(ROWS, 7), "MobilePhoneModel").0, 0.002..0.05, 0.0..0.01);
        check("EventDate", 1.0, 0.02..0.05, 31.0 / ROWS as f64..32.0 / ROWS as f64);
        let titles = column(&Hits::new(100_000, 7), "Title");
        assert!(titles.iter().any(|title| title.contains("Google")));
    }

    #[test]
    fn user_keeps_region_and_screen() {
        let source = Hits::new(ROWS, 7);
        let [users, regions, screens] =
            ["UserID", "RegionID", "ResolutionWidth"].map(|name| column(&source, name));
        let mut seen: HashMap<&str, (&str, &str)> = HashMap::new();
        for ((user, region), screen) in users.iter().zip(&regions).zip(&screens) {
            assert_eq!(*seen.entry(user).or_insert((region, screen)), (region.as_str(), screen.as_str()));
        }
    }

    #[test]
    fn equal_seeds_give_equal_tables() {
        let of = |seed, chunks| checksum(&Hits::new(1000, seed), 0, chunks);
        assert_eq!(
            of(1, 1),
            (1000, GOLDEN),
            "the table of a seed changed, so that results are no longer comparable"
        );
        assert_eq!(of(1, 7), of(1, 1));
        assert_ne!(of(2, 1), of(1, 1));
    }

    /// Checksum of 1000 rows with seed 1.
    const GOLDEN: u64 = 1_829_067_131_215_097_213;

    #[test]
    fn columns_match_clickbench() {
        assert_eq!((COLUMNS.len(), DRAWS.len()), (105, 105));
        let texts = COLUMNS.iter().filter(|column| column.kind == CellType::Text).count();
        assert_eq!(texts, 28, "columns of text");
        Hits::new(3, 1).make(0, 0, 1, &mut |row| {
            for (cell, column) in row.iter().zip(COLUMNS) {
                assert!(cell.is(column.kind), "{}: {cell:?}", column.name);
            }
            ControlFlow::Continue(())
        });
    }
}
