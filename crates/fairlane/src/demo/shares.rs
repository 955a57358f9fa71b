//! The chapters about exactness: CPU by shares for two and three loads with always more to do, reached by
//! statements on live sessions; the same throttled, as others have published it; and a hard limit alone.

use super::DemoError;
use super::figures::{Chapter, Run, Series, Window, WindowLoad};
use super::metrics::now_s;
use super::server::Sender;
use super::stage::Stage;

/// Roles, levels and names in reports.
pub(super) const LOADS: [&str; 3] = ["load1", "load2", "load3"];
/// The capped one: likewise.
pub(super) const CAPPED: &str = "capped";
/// The part of capacity each throttled load asks for, as published.
const THROTTLED_PART: f64 = 0.74;
/// How long a load may take to log in and send.
const BEGIN_TIMEOUT_S: f64 = 20.0;
/// Seconds a load may run beyond what is planned, before it ends by itself; only a safeguard.
const SPARE_S: f64 = 120.0;

/// Phases under way: what runs, and what was measured of it.
struct Measurement<'a> {
    stage: &'a mut Stage,
    senders: Vec<Sender>,
    names: Vec<&'static str>,
    windows: Vec<Window>,
}

impl<'a> Measurement<'a> {
    fn new(stage: &'a mut Stage) -> Measurement<'a> {
        Measurement { stage, senders: Vec::new(), names: Vec::new(), windows: Vec::new() }
    }

    /// Takes on a load that was started, once it sends.
    fn join(&mut self, name: &'static str, sender: Sender) -> Result<(), DemoError> {
        self.stage.say(&format!("{name} joins"));
        self.senders.push(sender);
        self.names.push(name);
        let until = now_s() + BEGIN_TIMEOUT_S;
        while now_s() < until && !self.senders.last().is_some_and(Sender::sends) {
            self.stage.wait(0.1, &mut self.senders)?;
        }
        Ok(())
    }

    /// Waits until a change has settled, then measures for `seconds`.
    fn measure(&mut self, id: &str, label: &str, seconds: f64) -> Result<(), DemoError> {
        self.stage.wait(self.stage.times.settle, &mut self.senders)?;
        let begin_s = self.stage.probe.mark();
        self.stage.wait(seconds, &mut self.senders)?;
        let end_s = self.stage.probe.mark();
        let cpu = self.stage.probe.between(begin_s, end_s);
        let used = |name: &&str| cpu.levels.get(*name).map(|used| format!("{name} {:.1} %", used * 100.0));
        let used: Vec<String> = self.names.iter().filter_map(used).collect();
        self.stage.say(&format!("{label}: CPU {} (of one core)", used.join(", ")));
        self.windows.push(Window {
            id: id.into(),
            label: label.to_string(),
            begin_s,
            end_s,
            loads: Vec::new(),
            cpu,
        });
        Ok(())
    }

    /// Ends the loads and fits what they found to the phases.
    fn finish(mut self) -> Result<Chapter, DemoError> {
        let mut chapter = Chapter::default();
        for (sender, name) in self.senders.drain(..).zip(&self.names) {
            let report = sender.stop()?;
            self.stage.heed(name, &report);
            chapter.series.push(Series::of(name, &report.seconds));
            chapter.runs.extend(Run::of(name, &report, 0));
        }
        for window in &mut self.windows {
            let rate = |series: &Series| WindowLoad {
                load: series.load.clone(),
                throughput_per_s: series.rate_between(window.begin_s, window.end_s),
                ..WindowLoad::default()
            };
            window.loads =
                chapter.series.iter().map(rate).filter(|load| load.throughput_per_s > 0.0).collect();
        }
        let begin = self.windows.first().map_or(0.0, |window| window.begin_s);
        let end = self.windows.last().map_or(0.0, |window| window.end_s);
        chapter.cpu = self.stage.probe.points(begin, end);
        chapter.windows = self.windows;
        Ok(chapter)
    }
}

/// 200:400, then 200:800, then 200:400:800, each reached from the one before by statements alone.
pub(super) fn proportions(stage: &mut Stage) -> Result<Chapter, DemoError> {
    LOADS.iter().try_for_each(|name| stage.role(name))?;
    stage.cql(&[
        "CREATE SERVICE LEVEL load1 WITH shares = 200",
        "CREATE SERVICE LEVEL load2 WITH shares = 400",
        "ATTACH SERVICE LEVEL load1 TO load1",
        "ATTACH SERVICE LEVEL load2 TO load2",
    ])?;
    let seconds = stage.times.shares;
    let long = 5.0 * (seconds + stage.times.settle) + SPARE_S;
    let mut all = Measurement::new(stage);
    let sender = all.stage.backlogged(LOADS[0], long)?;
    all.join(LOADS[0], sender)?;
    all.measure("alone", "200 alone", seconds / 2.0)?;
    let sender = all.stage.backlogged(LOADS[1], long)?;
    all.join(LOADS[1], sender)?;
    all.measure("200:400", "200 : 400", seconds)?;
    all.stage.cql(&["ALTER SERVICE LEVEL load2 WITH shares = 800"])?;
    all.measure("200:800", "200 : 800", seconds)?;
    let sender = all.stage.backlogged(LOADS[2], long)?;
    all.join(LOADS[2], sender)?;
    all.stage.cql(&[
        "ALTER SERVICE LEVEL load2 WITH shares = 400",
        "CREATE SERVICE LEVEL load3 WITH shares = 800",
        "ATTACH SERVICE LEVEL load3 TO load3",
    ])?;
    all.measure("200:400:800", "200 : 400 : 800", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "shares".into();
    chapter.title = "Shares, exactly: 200:400, 200:800, 200:400:800".to_string();
    chapter.what = "Loads of equal requests (slices of 100 rows), each with far more to do than it can get. From phase to phase nothing \
                    changes but shares, by ALTER, CREATE and ATTACH on live sessions; the third load runs before it has a level of its own."
        .to_string();
    Ok(chapter)
}

/// The published form: each load asks for 74 % of capacity, the first alone before the second joins.
pub(super) fn throttled(stage: &mut Stage) -> Result<Chapter, DemoError> {
    LOADS[..2].iter().try_for_each(|name| stage.role(name))?;
    stage.cql(&[
        "CREATE SERVICE LEVEL IF NOT EXISTS load1 WITH shares = 200",
        "CREATE SERVICE LEVEL IF NOT EXISTS load2 WITH shares = 400",
        "ALTER SERVICE LEVEL load2 WITH shares = 400",
        "ATTACH SERVICE LEVEL load1 TO load1",
        "ATTACH SERVICE LEVEL load2 TO load2",
    ])?;
    let seconds = stage.times.shares;
    let rate = stage.slices_per_s * THROTTLED_PART;
    let long = 4.0 * (seconds + stage.times.settle) + SPARE_S;
    let mut all = Measurement::new(stage);
    let sender = all.stage.throttled(LOADS[0], rate, long)?;
    all.join(LOADS[0], sender)?;
    all.measure("alone", "200 alone", seconds / 2.0)?;
    let sender = all.stage.throttled(LOADS[1], rate, long)?;
    all.join(LOADS[1], sender)?;
    all.measure("200:400", "200 : 400", seconds)?;
    all.stage.cql(&["ALTER SERVICE LEVEL load2 WITH shares = 800"])?;
    all.measure("200:800", "200 : 800", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "throttled".into();
    chapter.title = "Shares with throttled loads, as published".to_string();
    chapter.what = "Each load asks for 74 % of capacity, so together they ask for half as much again as there is. With shares 1 : 4 the \
                    second is due 80 % and at first asks for less; were capacity constant and nothing left over from before, the first would get what it \
                    leaves, and 74 : 26 = 2.85 were as far as operations can go. What could be had in this run is derived from what was asked and answered in it."
        .to_string();
    Ok(chapter)
}

/// A hard limit on an otherwise idle machine.
pub(super) fn cap(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.role(CAPPED)?;
    stage.cql(&[
        "CREATE SERVICE LEVEL capped WITH cpu_limit = '50%'",
        "ATTACH SERVICE LEVEL capped TO capped",
    ])?;
    let seconds = stage.times.shares;
    let mut all = Measurement::new(stage);
    let sender = all.stage.backlogged(CAPPED, seconds + SPARE_S)?;
    all.join(CAPPED, sender)?;
    all.measure("capped", "cpu_limit = '50%', alone", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "cap".into();
    chapter.title = "A hard limit: cpu_limit = '50%' on an idle machine".to_string();
    chapter.what = "One load with always more to do, alone on the server; its level may use half of the server's CPU and no more.".to_string();
    Ok(chapter)
}
