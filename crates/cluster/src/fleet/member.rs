//! Work of one front as a member of its fleet, on the control thread: a round every second, and
//! changes of the catalog as they come.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lanes::time::boot_ns;
use sched::cluster::WriteOutcome;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::leases::Leases;
use super::tables::{CurrentSession, FrontRow, Tables};
use super::{CatalogOutcome, ChangeRequest, Fleet, FleetCatalog, FleetOptions, Peer, Report};

/// Interval of the rounds.
const ROUND_EVERY: Duration = Duration::from_secs(1);

/// Time after which a front that reports nothing new is gone.
const GONE_AFTER_NS: u64 = 5_000_000_000;

/// Time for the removal of the row of a front that ends.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// A member of a fleet.
pub(crate) struct Member {
    fleet: Arc<Fleet>,
    tables: Tables,
    options: FleetOptions,
    datacenter: Arc<str>,
    requests: RefCell<Option<mpsc::UnboundedReceiver<ChangeRequest>>>,
    /// Held by each reading and change of the catalog, so that one is published after the other.
    order: tokio::sync::Mutex<()>,
}

/// Last news of a front.
struct Seen {
    beat: i64,
    at_ns: u64,
}

impl Member {
    /// Opens the tables, and reads the catalog. `nodes`: the number of nodes in each datacenter.
    ///
    /// # Errors
    /// One sentence with the remedy.
    pub(crate) async fn open(
        options: FleetOptions,
        session: CurrentSession,
        user: Option<&str>,
        nodes: &BTreeMap<&str, usize>,
        datacenter: Arc<str>,
    ) -> Result<Member, String> {
        let tables = Tables::open(session, &options.keyspace, user, nodes).await?;
        let read = tables.catalog().await?;
        let catalog = FleetCatalog { number: 1, version: read.version, entries: read.entries };
        let (fleet, requests) = Fleet::new(catalog);
        let requests = RefCell::new(Some(requests));
        Ok(Member { fleet, tables, options, datacenter, requests, order: tokio::sync::Mutex::default() })
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Works until the future is dropped. `report` gets the result of each round that differs from
    /// the one before in being an error.
    pub(crate) async fn run(&self, report: impl FnMut(Result<(), String>)) {
        let requests = self.requests.borrow_mut().take().expect("called once");
        tokio::join!(self.rounds(report), self.make_changes(requests));
    }

    /// Removes the row of this front. Called when no statement runs any more.
    pub(crate) async fn leave(&self) {
        if self.fleet.address().is_some() {
            // Without an answer the row ends by itself.
            let _ = tokio::time::timeout(LEAVE_WITHIN, self.tables.leave(self.fleet.front)).await;
        }
    }

    async fn rounds(&self, mut report: impl FnMut(Result<(), String>)) {
        let mut leases = Leases::new(&self.fleet, self.options.levels.clone());
        let mut seen = HashMap::new();
        let (mut beat, mut is_away) = (0, false);
        loop {
            let _ = tokio::time::timeout(ROUND_EVERY, self.fleet.wake.notified()).await;
            beat += 1;
            let done = self.round(&mut leases, &mut seen, beat).await;
            if is_away != done.is_err() {
                is_away = done.is_err();
                report(done);
            }
        }
    }

    /// Does one round, in the order of the head of [`super`].
    async fn round(
        &self,
        leases: &mut Leases,
        seen: &mut HashMap<Uuid, Seen>,
        beat: i64,
    ) -> Result<(), String> {
        if let Some(address) = self.fleet.address() {
            let own = Peer {
                front: self.fleet.front,
                host_id: self.options.host_id,
                address,
                datacenter: self.datacenter.clone(),
                rack: self.options.rack.as_str().into(),
            };
            let mut report = Report::default();
            self.fleet.report(|own| report = own.clone());
            report.slots = leases.demands();
            report.is_leaving = self.fleet.is_leaving.load(Relaxed);
            let sent_ns = boot_ns();
            self.tables.beat(&own, beat, &report.to_text()).await?;
            leases.renewed(sent_ns);
        }
        let rows = leases.round(&self.tables).await?;
        self.note_fronts(rows, seen);
        let version = self.tables.version().await?.unwrap_or(0);
        if version != self.fleet.catalog.load().version {
            let _order = self.order.lock().await;
            self.read_catalog().await?;
        }
        Ok(())
    }

    /// Publishes the other fronts.
    fn note_fronts(&self, rows: Vec<FrontRow>, seen: &mut HashMap<Uuid, Seen>) {
        let now_ns = boot_ns();
        seen.retain(|front, _| rows.iter().any(|row| row.peer.front == *front));
        let mut live: Vec<(u64, Peer, Report)> = Vec::new();
        for FrontRow { peer, beat, report } in rows {
            let news = seen.entry(peer.front).or_insert(Seen { beat, at_ns: now_ns });
            if news.beat != beat {
                *news = Seen { beat, at_ns: now_ns };
            }
            let at_ns = news.at_ns;
            if peer.front != self.fleet.front && now_ns.saturating_sub(at_ns) < GONE_AFTER_NS {
                live.push((at_ns, peer, report));
            }
        }
        // A front that was started again has two rows for some seconds.
        live.sort_by_key(|(at_ns, peer, _)| (peer.host_id, std::cmp::Reverse(*at_ns)));
        let shows = |(_, peer, report): &&(u64, Peer, Report)| {
            peer.host_id != self.options.host_id && !report.is_leaving
        };
        let mut peers: Vec<Peer> = live.iter().filter(shows).map(|(_, peer, _)| peer.clone()).collect();
        peers.dedup_by_key(|peer| peer.host_id);
        if **self.fleet.peers.load() != peers {
            self.fleet.peers.store(Arc::new(peers));
        }
        let mut others: Vec<(Uuid, Report)> =
            live.into_iter().map(|(_, peer, report)| (peer.front, report)).collect();
        others.sort_by_key(|(front, _)| *front);
        self.fleet.others.store(Arc::new(others));
    }

    /// Reads the catalog, and publishes it if it is another one. The caller holds `order`.
    async fn read_catalog(&self) -> Result<(), String> {
        let read = self.tables.catalog().await?;
        let known = self.fleet.catalog();
        if (known.version, &known.entries) != (read.version, &read.entries) {
            self.publish(FleetCatalog {
                number: known.number + 1,
                version: read.version,
                entries: read.entries,
            });
        }
        Ok(())
    }

    fn publish(&self, catalog: FleetCatalog) {
        self.fleet.catalog.store(Arc::new(catalog));
    }

    async fn make_changes(&self, mut requests: mpsc::UnboundedReceiver<ChangeRequest>) {
        while let Some(request) = requests.recv().await {
            let order = self.order.lock().await;
            let outcome = self.change(&request).await;
            drop(order);
            request.reply.send(outcome);
            // Levels with new limits need leases.
            self.fleet.wake.notify_one();
        }
    }

    /// Makes a change. The caller holds `order`.
    async fn change(&self, request: &ChangeRequest) -> Result<CatalogOutcome, String> {
        let known = self.fleet.catalog();
        if known.number != request.number {
            return Ok(CatalogOutcome::Outdated);
        }
        if request.changes.is_empty() {
            self.read_catalog().await?;
            let is_same = self.fleet.catalog().number == known.number;
            return Ok(if is_same {
                CatalogOutcome::Applied(known.number)
            } else {
                CatalogOutcome::Outdated
            });
        }
        let after = known.with(&request.changes)?;
        match self.tables.change(known.version, &request.changes).await? {
            WriteOutcome::Applied => {
                self.publish(after);
                Ok(CatalogOutcome::Applied(known.number + 1))
            }
            outcome => {
                // The reading ends a change that is not done yet, so that it is seen or excluded.
                self.read_catalog().await.map_err(|reason| match outcome {
                    WriteOutcome::Unknown => format!("it is not known whether the change was made: {reason}"),
                    _ => reason,
                })?;
                let now = self.fleet.catalog();
                let is_ours = outcome == WriteOutcome::Unknown
                    && now.version == known.version + 1
                    && now.has(&request.changes);
                Ok(if is_ours { CatalogOutcome::Applied(now.number) } else { CatalogOutcome::Outdated })
            }
        }
    }
}
