//! Routing of requests to the shard that owns their key. The server publishes its sharding in
//! SUPPORTED, by ScyllaDB's rule. On the shard-aware port, the client's port modulo the number of
//! shards chooses the shard of a connection. Otherwise requests use any connection, and the server
//! forwards them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use schema::Sharding;

use crate::LoadError;
use crate::connector::HANDSHAKE;
use crate::session::{Session, bounded};
use crate::spec::Spec;

/// Local ports to bind: the dynamic range of IANA. It overlaps the range from which Linux assigns
/// ports (32,768 to 60,999 by default), so that a port may be occupied.
const PORTS: std::ops::Range<u32> = 49_152..65_536;
/// Most ports tried for one connection. More occupied ports in a row do not happen by chance.
const PORTS_TRIED: u32 = 256;

/// Sharding of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shards {
    pub(crate) sharding: Sharding,
    /// The shard-aware port.
    pub(crate) port: Option<u16>,
}

/// Parses the sharding in SUPPORTED. `None`: one shard, or an unknown algorithm.
pub(crate) fn shards(supported: &[(String, Vec<String>)]) -> Option<Shards> {
    let value = |option: &str| {
        let (_, values) = supported.iter().find(|(name, _)| name == option)?;
        values.first().map(String::as_str)
    };
    let shards: u32 = value("SCYLLA_NR_SHARDS")?.parse().ok()?;
    let ignore_msb = value("SCYLLA_SHARDING_IGNORE_MSB")?.parse().ok()?;
    let known = value("SCYLLA_SHARDING_ALGORITHM")? == "biased-token-round-robin"
        && value("SCYLLA_PARTITIONER")? == "org.apache.cassandra.dht.Murmur3Partitioner";
    let port = value("SCYLLA_SHARD_AWARE_PORT").and_then(|port| port.parse().ok());
    (known && shards > 1).then_some(Shards { sharding: Sharding { shards, ignore_msb }, port })
}

/// Returns the shard that the server assigned to a connection.
pub(crate) fn shard_of(session: &Session) -> Option<u32> {
    let (_, values) = session.supported().iter().find(|(name, _)| name == "SCYLLA_SHARD")?;
    values.first()?.parse().ok()
}

/// Opens a connection to a host. Uses the wanted shard if possible, otherwise any shard.
pub(crate) fn open(spec: &Spec, host: usize, wanted: Option<(Shards, u32)>) -> Result<Session, LoadError> {
    let address = spec.hosts[host].as_str();
    let user = spec.user.as_deref();
    let password = spec.password.as_deref();
    if let Some((Shards { sharding, port: Some(port) }, shard)) = wanted
        && let Ok(stream) = to_shard(address, port, sharding.shards, shard)
        && let Ok(stream) = bounded(stream, HANDSHAKE)
        && let Ok(session) = Session::over(stream, address, user, password)
    {
        return Ok(session);
    }
    Session::connect(address, user, password, HANDSHAKE)
}

/// Connects from a local port that equals `shard` modulo `shards`.
fn to_shard(address: &str, port: u16, shards: u32, shard: u32) -> Result<TcpStream, io::Error> {
    let name = address.rsplit_once(':').map_or(address, |(name, _)| name).trim_matches(['[', ']']);
    let target = (name, port).to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    // Start at a random port, so that processes and calls rarely collide.
    let spread: u32 = rand::RngCore::next_u32(&mut seed());
    let first = PORTS.start.next_multiple_of(shards) + shard;
    let candidates = (PORTS.end.saturating_sub(first)).div_ceil(shards).max(1);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..PORTS_TRIED.min(candidates) {
        let local = first + (spread % candidates + attempt) % candidates * shards;
        let Ok(local) = u16::try_from(local) else { continue };
        match connect_from(local, target) {
            Ok(stream) => return Ok(stream),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) =>
            {
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Returns a random generator seeded from process id and time.
fn seed() -> rand::rngs::SmallRng {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    rand::SeedableRng::seed_from_u64(now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32))
}

fn connect_from(local: u16, target: SocketAddr) -> Result<TcpStream, io::Error> {
    let (family, any) = match target {
        SocketAddr::V4(_) => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::UNSPECIFIED, local))),
        SocketAddr::V6(_) => (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, local))),
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Linux the send timeout also bounds connecting.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(Duration::from_secs(5)))?;
    rustix::net::bind(&socket, &any)?;
    rustix::net::connect(&socket, &target)?;
    Ok(TcpStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supported(changes: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let mut options = vec![
            ("SCYLLA_SHARD", "1"),
            ("SCYLLA_NR_SHARDS", "4"),
            ("SCYLLA_SHARDING_IGNORE_MSB", "12"),
            ("SCYLLA_SHARDING_ALGORITHM", "biased-token-round-robin"),
            ("SCYLLA_PARTITIONER", "org.apache.cassandra.dht.Murmur3Partitioner"),
            ("SCYLLA_SHARD_AWARE_PORT", "19042"),
        ];
        for (name, value) in changes {
            options.retain(|(known, _)| known != name);
            options.push((name, value));
        }
        options.into_iter().map(|(name, value)| (name.to_string(), vec![value.to_string()])).collect()
    }

    #[test]
    fn unknown_sharding_is_ignored() {
        let sharding = Sharding { shards: 4, ignore_msb: 12 };
        let check = |changes: &[(&str, &str)], expected| assert_eq!(shards(&supported(changes)), expected);
        check(&[], Some(Shards { sharding, port: Some(19042) }));
        check(&[("SCYLLA_SHARD_AWARE_PORT", "")], Some(Shards { sharding, port: None }));
        check(&[("SCYLLA_NR_SHARDS", "1")], None);
        check(&[("SCYLLA_NR_SHARDS", "many")], None);
        check(&[("SCYLLA_SHARDING_ALGORITHM", "other")], None);
        check(&[("SCYLLA_PARTITIONER", "RandomPartitioner")], None);
        assert_eq!(shards(&[]), None);
    }

    #[test]
    fn local_port_selects_the_shard() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        for (shards, shard) in [(2, 0), (2, 1), (3, 2), (7, 5)] {
            let stream = to_shard(&address.to_string(), address.port(), shards, shard).expect("it listens");
            let local = stream.local_addr().expect("connected").port();
            assert_eq!(u32::from(local) % shards, shard);
        }
    }
}
