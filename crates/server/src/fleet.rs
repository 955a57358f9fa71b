//! Other servers in front of the same cluster. Together they look like a cluster to drivers, each
//! as a node with its part of the ring. The catalog that they share is taken over here.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::Access;
use bytes::Bytes;
use cluster::{Fleet, Peer};
use wire::Event;

use crate::cells::{inet, int, text, uuid};
use crate::core::ServerShared;
use crate::logging::{Level, Logger};
use crate::sessions;
use crate::system::Shown;

/// Interval of the checks for changes, which the control thread reads every second.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Checks after which a catalog that was refused is tried again: memory may have become free.
const TRY_AGAIN_AFTER: u32 = 50;

/// Tokens of a server.
const TOKENS: u64 = 16;

/// Follows the catalog and the other servers, until the server stops. Called on core 0.
pub(crate) async fn follow(shared: Arc<ServerShared>, access: Rc<Access>, fleet: Arc<Fleet>) {
    let mut known = Arc::new(Vec::new());
    let (mut refused, mut checks) = (None, 0);
    loop {
        lanes::time::sleep(CHECK_EVERY).await;
        checks += 1;
        let number = fleet.catalog().number;
        // Each try reads the whole catalog.
        if refused != Some(number) || checks >= TRY_AGAIN_AFTER {
            checks = 0;
            let adopted = access.adopt_catalog().await;
            log_adopted(&shared.logger, &adopted, refused.is_some());
            refused = adopted.is_err().then_some(number);
        }
        if !shared.config.show_peers {
            continue;
        }
        let now = fleet.peers();
        if *now != *known {
            sessions::report_on_all_cores(&shared, &changes(&known, &now)).await;
            known = now;
        }
    }
}

/// Logs the first of several failures in a row, and the end of them.
fn log_adopted(logger: &Logger, adopted: &Result<(), engine::Error>, was_refused: bool) {
    match adopted {
        Err(error) if !was_refused => {
            let text = "the service levels of the fleet cannot be taken over, and stay as they were";
            logger.log(Level::Error, text, &[("reason", error.to_string().into())]);
        }
        Ok(()) if was_refused => {
            logger.log(Level::Info, "the service levels of the fleet are taken over", &[])
        }
        _ => {}
    }
}

/// Returns the events from one list of servers to the next.
fn changes(before: &[Peer], now: &[Peer]) -> Vec<Event> {
    let is_in = |peers: &[Peer], peer: &Peer| peers.iter().any(|other| other.address == peer.address);
    let gone = before.iter().filter(|peer| !is_in(now, peer)).map(|peer| peer.address);
    let new = now.iter().filter(|peer| !is_in(before, peer)).map(|peer| peer.address);
    let down = |node| [Event::Status { up: false, node }, Event::Topology { added: false, node }];
    let up = |node| [Event::Topology { added: true, node }, Event::Status { up: true, node }];
    gone.flat_map(down).chain(new.flat_map(up)).collect()
}

/// This server among the others, for the tables that drivers read.
pub(crate) struct Ring {
    own: Peer,
    peers: Arc<Vec<Peer>>,
}

impl Ring {
    /// Returns the present one. `address`: at which this server serves clients.
    pub(crate) fn new(
        shared: &ServerShared,
        fleet: Option<&Arc<Fleet>>,
        shown: &Shown,
        address: SocketAddr,
    ) -> Ring {
        let own = Peer {
            front: uuid::Uuid::nil(),
            host_id: shared.config.host_id,
            address,
            datacenter: shown.datacenter.clone(),
            rack: shared.config.rack.as_str().into(),
        };
        let fleet = fleet.filter(|_| shared.config.show_peers);
        Ring { own, peers: fleet.map(|fleet| fleet.peers()).unwrap_or_default() }
    }

    /// Returns the tokens of this server.
    pub(crate) fn own_tokens(&self) -> Bytes {
        self.tokens(&self.own)
    }

    /// Returns the tokens of a server: those of a datacenter divide the ring evenly. Datacenters
    /// have different tokens.
    fn tokens(&self, of: &Peer) -> Bytes {
        let all = || self.peers.iter().chain([&self.own]);
        let count = all().filter(|peer| peer.datacenter == of.datacenter).count() as u64;
        let before = |peer: &&Peer| peer.datacenter == of.datacenter && peer.host_id < of.host_id;
        let index = all().filter(before).count() as u64;
        let mut datacenters: Vec<&str> = all().map(|peer| &*peer.datacenter).collect();
        datacenters.sort_unstable();
        datacenters.dedup();
        let offset = datacenters.iter().position(|name| **name == *of.datacenter).unwrap_or(0) as u64;
        let step = u64::MAX / (TOKENS * count);
        // From the least token, which counts as 0 here.
        let token = |k: u64| ((k * count + index) * step + offset).wrapping_add(1 << 63).cast_signed();
        let texts: Vec<String> = (0..TOKENS).map(|k| token(k).to_string()).collect();
        schema::value::encode_list(texts.iter().map(|token| token.as_bytes())).into()
    }

    /// Returns the rows of `system.peers`, which has no ports: of one server at each other address,
    /// if it has the port of this one.
    pub(crate) fn peers(&self, shown: &Shown) -> Vec<Vec<Option<Bytes>>> {
        let mut seen = vec![self.own.address.ip()];
        let is_shown = |peer: &&Peer| {
            let is_new = peer.address.port() == self.own.address.port() && !seen.contains(&peer.address.ip());
            seen.push(peer.address.ip());
            is_new
        };
        let told: Vec<&Peer> = self.peers.iter().filter(is_shown).collect();
        let row = |peer: &Peer| {
            let ip = inet(peer.address.ip());
            vec![
                ip.clone(),
                text(&peer.datacenter),
                uuid(peer.host_id),
                None,
                text(&peer.rack),
                text(&shown.release_version),
                ip,
                shown.schema_version.and_then(uuid),
                Some(self.tokens(peer)),
            ]
        };
        told.into_iter().map(row).collect()
    }

    /// Returns the rows of `system.peers_v2`.
    pub(crate) fn peers_v2(&self, shown: &Shown) -> Vec<Vec<Option<Bytes>>> {
        let row = |peer: &Peer| {
            let (ip, port) = (inet(peer.address.ip()), int(peer.address.port().into()));
            vec![
                ip.clone(),
                port.clone(),
                text(&peer.datacenter),
                uuid(peer.host_id),
                ip,
                port,
                None,
                None,
                text(&peer.rack),
                text(&shown.release_version),
                shown.schema_version.and_then(uuid),
                Some(self.tokens(peer)),
            ]
        };
        self.peers.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn peer(number: u8, datacenter: &str) -> Peer {
        Peer {
            front: uuid::Uuid::nil(),
            host_id: uuid::Uuid::from_u128(number.into()),
            address: ([10, 0, 0, number], 9042).into(),
            datacenter: datacenter.into(),
            rack: "r".into(),
        }
    }

    #[test]
    fn tokens_of_a_datacenter_divide_the_ring_evenly() {
        let ring =
            Ring { own: peer(2, "a"), peers: Arc::new(vec![peer(1, "a"), peer(3, "b"), peer(4, "a")]) };
        let tokens = |of: &Peer| -> Vec<i64> {
            let tokens = ring.tokens(of);
            let cells = schema::value::elements(&tokens).map(|cell| cell.expect("valid"));
            cells.map(|cell| std::str::from_utf8(cell).expect("text").parse().expect("a token")).collect()
        };
        let of_a: Vec<i64> = [1, 2, 4].iter().flat_map(|number| tokens(&peer(*number, "a"))).collect();
        let sorted: BTreeSet<i64> = of_a.iter().copied().collect();
        assert_eq!(sorted.len(), 48);
        let gaps: BTreeSet<i64> =
            sorted.iter().zip(sorted.iter().skip(1)).map(|(a, b)| b.wrapping_sub(*a)).collect();
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert!(tokens(&peer(3, "b")).iter().all(|token| !sorted.contains(token)));
    }

    #[test]
    fn older_table_has_one_server_at_each_address() {
        let other_port = Peer { address: ([10, 0, 0, 9], 9043).into(), ..peer(5, "a") };
        let own_address = Peer { address: ([10, 0, 0, 2], 9044).into(), ..peer(6, "a") };
        let peers = Arc::new(vec![peer(1, "a"), peer(1, "a"), other_port, own_address]);
        let ring = Ring { own: peer(2, "a"), peers };
        let shown = Shown { datacenter: "a".into(), release_version: "5.0".into(), schema_version: None };
        assert_eq!((ring.peers(&shown).len(), ring.peers_v2(&shown).len()), (1, 4));
    }

    #[test]
    fn servers_that_come_and_go_are_reported() {
        let events = changes(&[peer(1, "a"), peer(2, "a")], &[peer(2, "a"), peer(3, "a")]);
        let address = |number: u8| SocketAddr::from(([10, 0, 0, number], 9042));
        let expected = [
            Event::Status { up: false, node: address(1) },
            Event::Topology { added: false, node: address(1) },
            Event::Topology { added: true, node: address(3) },
            Event::Status { up: true, node: address(3) },
        ];
        assert_eq!(events, expected);
    }
}
