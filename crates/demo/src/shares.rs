//! Chapters about the accuracy of shares and limits: CPU of two and three loads that always have
//! more to do, two loads with rates as published for another system, and a load with a hard limit.
//! Behind a front, three loads share the window of a node instead of CPU.

use crate::error::DemoError;
use crate::metrics::now_s;
use crate::names::{CAPPED, LOADS};
use crate::node_use;
use crate::results::{Chapter, LoadRun, NodeUse, Series, Window, WindowLoad};
use crate::server::Sender;
use crate::stage::Stage;

/// Rate of each throttled load as a fraction of capacity, as published.
const THROTTLED_PART: f64 = 0.74;
/// Time limit for a load to log in and send.
const BEGIN_TIMEOUT_S: f64 = 20.0;
/// Extra time after which a load ends by itself, as a safeguard. Seconds.
const SPARE_S: f64 = 120.0;

/// Running loads, and the phases measured so far.
struct Measurement<'a> {
    stage: &'a mut Stage,
    senders: Vec<Sender>,
    names: Vec<&'static str>,
    windows: Vec<Window>,
    nodes: Vec<NodeUse>,
}

impl<'a> Measurement<'a> {
    fn new(stage: &'a mut Stage) -> Measurement<'a> {
        let (senders, names) = (Vec::new(), Vec::new());
        Measurement { stage, senders, names, windows: Vec::new(), nodes: Vec::new() }
    }

    /// Adds a load that was started, and waits until it sends.
    fn join(&mut self, name: &'static str, sender: Sender) -> Result<(), DemoError> {
        self.stage.print(&format!("{name} joins"));
        self.senders.push(sender);
        self.names.push(name);
        let until = now_s() + BEGIN_TIMEOUT_S;
        while now_s() < until && !self.senders.last().is_some_and(Sender::is_sending) {
            self.stage.wait(0.1, &mut self.senders)?;
        }
        Ok(())
    }

    /// Waits until a change has taken effect, then measures for `seconds`.
    fn measure(&mut self, id: &str, label: &str, seconds: f64) -> Result<(), DemoError> {
        self.stage.wait(self.stage.times.settle, &mut self.senders)?;
        let nodes = node_use::counts(self.stage)?;
        let begin_s = self.stage.probe.mark();
        self.stage.wait(seconds, &mut self.senders)?;
        let nodes = node_use::since(id, &nodes, &node_use::counts(self.stage)?);
        let end_s = self.stage.probe.mark();
        let cpu = self.stage.probe.between(begin_s, end_s);
        for level in &nodes {
            self.stage.print(&format!("{label}: {}", level.words()));
        }
        self.nodes.extend(nodes);
        let used = |name: &&str| cpu.levels.get(*name).map(|used| format!("{name} {:.1} %", used * 100.0));
        let used: Vec<String> = self.names.iter().filter_map(used).collect();
        // Behind a front, all loads are in one level of the node.
        if !used.is_empty() {
            self.stage.print(&format!("{label}: CPU {} (of one core)", used.join(", ")));
        }
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

    /// Ends the loads and assigns their throughput to the phases.
    fn finish(mut self) -> Result<Chapter, DemoError> {
        let mut chapter = Chapter::default();
        for (sender, name) in self.senders.drain(..).zip(&self.names) {
            let report = sender.stop()?;
            self.stage.note_failures(name, &report);
            chapter.series.push(Series::of(name, &report.seconds));
            chapter.runs.extend(LoadRun::of(name, &report, 0));
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
        (chapter.windows, chapter.nodes) = (self.windows, self.nodes);
        let (begin_s, end_s) = chapter.ends();
        chapter.cpu = self.stage.probe.points(begin_s, end_s);
        Ok(chapter)
    }
}

/// Measures shares of 200:400, 200:800 and 200:400:800. Only statements lead from one to the next.
pub(crate) fn proportions(stage: &mut Stage) -> Result<Chapter, DemoError> {
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
    let sender = all.stage.start_backlogged(LOADS[0], long)?;
    all.join(LOADS[0], sender)?;
    all.measure("alone", "200 alone", seconds / 2.0)?;
    let sender = all.stage.start_backlogged(LOADS[1], long)?;
    all.join(LOADS[1], sender)?;
    all.measure("200:400", "200 : 400", seconds)?;
    all.stage.cql(&["ALTER SERVICE LEVEL load2 WITH shares = 800"])?;
    all.measure("200:800", "200 : 800", seconds)?;
    let sender = all.stage.start_backlogged(LOADS[2], long)?;
    all.join(LOADS[2], sender)?;
    all.stage.cql(&[
        "ALTER SERVICE LEVEL load2 WITH shares = 400",
        "CREATE SERVICE LEVEL load3 WITH shares = 800",
        "ATTACH SERVICE LEVEL load3 TO load3",
    ])?;
    all.measure("200:400:800", "200 : 400 : 800", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "shares".into();
    chapter.title = "Shares of 200:400, 200:800 and 200:400:800".to_string();
    chapter.what = "Loads of equal requests (slices of 100 rows). Each always has more to do than it can get. \
                    Between phases only shares change, by ALTER, CREATE and ATTACH on live sessions. The third \
                    load already runs before it gets its own level."
        .to_string();
    Ok(chapter)
}

/// Measures shares of 200:400:800 behind a front, where they divide the window of the node.
pub(crate) fn behind_a_front(stage: &mut Stage) -> Result<Chapter, DemoError> {
    LOADS.iter().try_for_each(|name| stage.role(name))?;
    stage.cql(&[
        "CREATE SERVICE LEVEL load1 WITH shares = 200",
        "CREATE SERVICE LEVEL load2 WITH shares = 400",
        "CREATE SERVICE LEVEL load3 WITH shares = 800",
        "ATTACH SERVICE LEVEL load1 TO load1",
        "ATTACH SERVICE LEVEL load2 TO load2",
        "ATTACH SERVICE LEVEL load3 TO load3",
    ])?;
    let seconds = stage.times.shares;
    let mut all = Measurement::new(stage);
    for name in LOADS {
        let sender = all.stage.start_backlogged(name, seconds + SPARE_S)?;
        all.join(name, sender)?;
    }
    all.measure("200:400:800", "200 : 400 : 800", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "shares".into();
    chapter.title = "Shares of 200:400:800 in the window of the node".to_string();
    chapter.what = "Three closed loops of equal requests (slices of 100 rows) in levels of the front. Each always \
                    has more to do than it can get, so that all three wait for places in the window of the node. \
                    Occupancy is the time for which requests hold places, as the front counts in `system.nodes`."
        .to_string();
    Ok(chapter)
}

/// Measures two loads that each request 74 % of capacity, as published. The second joins the first.
pub(crate) fn throttled(stage: &mut Stage) -> Result<Chapter, DemoError> {
    LOADS[..2].iter().try_for_each(|name| stage.role(name))?;
    stage.cql(&[
        "CREATE SERVICE LEVEL IF NOT EXISTS load1 WITH shares = 200",
        "CREATE SERVICE LEVEL IF NOT EXISTS load2 WITH shares = 400",
        "ALTER SERVICE LEVEL load2 WITH shares = 400",
        "ATTACH SERVICE LEVEL load1 TO load1",
        "ATTACH SERVICE LEVEL load2 TO load2",
    ])?;
    let seconds = stage.times.shares;
    let rate = stage.measured.slices_per_s * THROTTLED_PART;
    let long = 4.0 * (seconds + stage.times.settle) + SPARE_S;
    let mut all = Measurement::new(stage);
    let sender = all.stage.start_throttled(LOADS[0], rate, long)?;
    all.join(LOADS[0], sender)?;
    all.measure("alone", "200 alone", seconds / 2.0)?;
    let sender = all.stage.start_throttled(LOADS[1], rate, long)?;
    all.join(LOADS[1], sender)?;
    all.measure("200:400", "200 : 400", seconds)?;
    all.stage.cql(&["ALTER SERVICE LEVEL load2 WITH shares = 800"])?;
    all.measure("200:800", "200 : 800", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "throttled".into();
    chapter.title = "Shares with throttled loads, as published".to_string();
    chapter.what = "Each load requests 74 % of capacity, so together they request half as much again as there is. \
                    With shares 1 : 4 the second is entitled to 80 %, more than it requests. With constant \
                    capacity and no backlog, the first would get the rest, and 74 : 26 = 2.85 would be the largest \
                    possible ratio. The goal is the ratio that was possible in this run, computed from the \
                    requested and answered rates."
        .to_string();
    Ok(chapter)
}

/// Measures a load with a hard limit on an otherwise idle machine.
pub(crate) fn cap(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.role(CAPPED)?;
    stage.cql(&[
        "CREATE SERVICE LEVEL capped WITH cpu_limit = '50%'",
        "ATTACH SERVICE LEVEL capped TO capped",
    ])?;
    let seconds = stage.times.shares;
    let mut all = Measurement::new(stage);
    let sender = all.stage.start_backlogged(CAPPED, seconds + SPARE_S)?;
    all.join(CAPPED, sender)?;
    all.measure("capped", "cpu_limit = '50%', alone", seconds)?;
    let mut chapter = all.finish()?;
    chapter.id = "cap".into();
    chapter.title = "A hard limit: cpu_limit = '50%' on an idle machine".to_string();
    chapter.what =
        "One load that always has more to do runs alone on the server. Its level may use at most half \
                    of the server's CPU."
            .to_string();
    Ok(chapter)
}
