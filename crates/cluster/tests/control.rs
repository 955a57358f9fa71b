//! The control plane and the events of a cluster, against scripted nodes.
#![expect(clippy::disallowed_methods, reason = "a test changes files from outside the lanes")]

mod scripted;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cluster::{
    Account, Control, ControlOptions, Heard, NodeTls, NodeTlsFiles, Notice, Topology, follow_events,
};
use frontdoor::{Tls, TlsFiles};
use lanes::{Group, Lanes};
use scripted::{Cluster, Member};
use testkit::{Folder, start_lanes, until};
use uuid::Uuid;
use wire::{ChangeType, Event, SchemaChange, SchemaTarget, Version};

/// Returns three nodes: two in `dc1`, one in `dc2`.
fn members() -> Vec<Member> {
    let member = |id, datacenter, rack, token, release| Member {
        address: ([127, 0, 0, 1], 0).into(),
        id,
        datacenter,
        rack,
        tokens: vec![token],
        release,
        schema: 7,
    };
    vec![
        member(3, "dc1", "r1", -100, "5.0.9"),
        member(1, "dc1", "r2", 0, "4.1.10"),
        member(2, "dc2", "r1", 100, "5.0.9"),
    ]
}

/// Starts lanes with a cluster on them, and ends them after the test.
fn with_cluster(one_port: bool, test: impl FnOnce(&Lanes, &Cluster)) {
    let lanes = start_lanes(1);
    let cluster = Cluster::start(&lanes, members(), one_port);
    test(&lanes, &cluster);
    lanes.shutdown();
}

type Notices = Arc<Mutex<Vec<Notice>>>;

fn start(cluster: &Cluster, account: Option<(&str, &str)>) -> Result<(Control, Notices), String> {
    start_with(cluster, account, None)
}

fn start_with(
    cluster: &Cluster,
    account: Option<(&str, &str)>,
    tls: Option<Arc<NodeTls>>,
) -> Result<(Control, Notices), String> {
    let account =
        account.map(|(user, password)| Account { user: user.to_owned(), password: password.to_owned() });
    let options =
        ControlOptions { contacts: cluster.addresses()[..1].to_vec(), account, datacenter: None, tls };
    let notices = Notices::default();
    let seen = notices.clone();
    let control = Control::start(options, None, move |notice| seen.lock().expect("no panic").push(notice))?;
    Ok((control, notices))
}

fn up(topology: &Topology) -> Vec<bool> {
    topology.nodes().iter().map(|node| node.is_up).collect()
}

/// Returns the addresses of replicas.
fn replicas(topology: &Topology, keyspace: &str, token: i64) -> Vec<SocketAddr> {
    let nodes = topology.replicas(keyspace, token).iter();
    nodes.map(|node| topology.nodes()[usize::from(*node)].address).collect()
}

const NETWORK: &str = "org.apache.cassandra.locator.NetworkTopologyStrategy";
const SIMPLE: &str = "org.apache.cassandra.locator.SimpleStrategy";

#[test]
fn first_topology_has_nodes_versions_and_replicas() {
    with_cluster(true, |_, cluster| {
        cluster.script().keyspaces = vec![
            ("both", vec![("class", NETWORK), ("dc1", "2"), ("dc2", "1")]),
            ("simple", vec![("class", SIMPLE), ("replication_factor", "2")]),
            ("local", vec![("class", "org.apache.cassandra.locator.LocalStrategy")]),
        ];
        let (control, _) = start(cluster, None).expect("starts");
        let topology = control.topology().snapshot();
        let at = cluster.addresses();
        let nodes = topology.nodes();
        // By host id, where the script has another order.
        assert_eq!(nodes.iter().map(|node| node.address).collect::<Vec<_>>(), [at[1], at[2], at[0]]);
        assert_eq!((&*nodes[0].datacenter, &*nodes[0].rack), ("dc1", "r2"));
        assert_eq!(up(&topology), [true; 3]);
        assert_eq!(&**topology.datacenter(), "dc1");
        assert_eq!([0, 1, 2].map(|node| topology.is_local(node)), [true, false, true]);
        assert_eq!(topology.release_version().map(|text| &**text), Some("4.1.10"));
        assert_eq!(topology.schema_version(), Some(Uuid::from_u128(7)));
        assert_eq!(replicas(&topology, "both", -5), [at[1], at[2], at[0]]);
        assert_eq!(replicas(&topology, "both", 101), [at[0], at[1], at[2]]);
        assert_eq!(replicas(&topology, "simple", 1), [at[2], at[0]]);
        assert!(replicas(&topology, "local", 1).is_empty());
    });
}

#[test]
fn nodes_are_reached_at_ports_of_their_own() {
    with_cluster(false, |_, cluster| {
        let (control, _) = start(cluster, None).expect("starts");
        let topology = control.topology().snapshot();
        assert_eq!(up(&topology), [true; 3]);
        let gone = cluster.addresses()[1];
        cluster.script().away.push(gone);
        until("the node is down", || {
            let topology = control.topology().snapshot();
            let node = topology.node_at(gone).expect("known");
            up(&topology).iter().filter(|is_up| !**is_up).count() == 1 && !topology.nodes()[node].is_up
        });
    });
}

#[test]
fn cluster_without_peers_v2_is_asked_in_the_older_form_once() {
    with_cluster(true, |_, cluster| {
        cluster.script().has_v2 = false;
        let (control, _) = start(cluster, None).expect("starts");
        let topology = control.topology().snapshot();
        let port = cluster.addresses()[0].port();
        assert_eq!(topology.nodes().len(), 3);
        assert!(topology.nodes().iter().all(|node| node.address.port() == port && node.is_up));
        let older = "release_version, schema_version FROM system.peers";
        until("checks go on", || cluster.count(older) >= 3);
        assert_eq!(cluster.count("peers_v2"), 1);
    });
}

#[test]
fn change_is_published_and_an_equal_state_is_not() {
    with_cluster(true, |_, cluster| {
        cluster.script().keyspaces = vec![("ks", vec![("class", NETWORK), ("dc1", "1")])];
        let (control, _) = start(cluster, None).expect("starts");
        let topology = control.topology();
        let at = cluster.addresses();
        assert_eq!(replicas(&topology.snapshot(), "ks", -5), [at[1]]);
        let checks = cluster.count("peers_v2");
        until("checks go on", || {
            control.refresh().now();
            cluster.count("peers_v2") >= checks + 5
        });
        assert_eq!(topology.version(), 1, "nothing has changed");
        {
            let mut script = cluster.script();
            script.keyspaces = vec![("ks", vec![("class", NETWORK), ("dc2", "1")])];
            script.members[0].schema = 8;
        }
        let is_moved = || replicas(&topology.snapshot(), "ks", -5) == [at[2]];
        until("the replica is elsewhere", is_moved);
        assert_eq!(topology.snapshot().schema_version(), None, "the nodes do not agree yet");
        cluster.script().members.iter_mut().for_each(|member| member.schema = 8);
        until("the nodes agree", || topology.snapshot().schema_version() == Some(Uuid::from_u128(8)));
        // A node leaves: the others no longer show it.
        cluster.script().members.remove(1);
        until("the node is gone", || topology.snapshot().nodes().len() == 2);
        assert!(topology.snapshot().node_at(at[1]).is_none());
    });
}

#[test]
fn cluster_that_is_away_keeps_its_last_topology() {
    with_cluster(true, |_, cluster| {
        cluster.script().keyspaces = vec![
            ("ks", vec![("class", NETWORK), ("dc1", "1")]),
            ("system_auth", vec![("class", SIMPLE), ("replication_factor", "1")]),
        ];
        let (control, notices) = start(cluster, None).expect("starts");
        let at = cluster.addresses();
        cluster.script().away = at.clone();
        let count = |wanted: fn(&Notice) -> bool| {
            notices.lock().expect("no panic").iter().filter(|notice| wanted(notice)).count()
        };
        until("it is away", || count(|notice| matches!(notice, Notice::Away(_))) == 1);
        until("all nodes are down", || up(&control.topology().snapshot()) == [false; 3]);
        let topology = control.topology().snapshot();
        assert_eq!(replicas(&topology, "ks", -5), [at[1]]);
        assert_eq!(topology.schema_version(), None);
        cluster.script().away.clear();
        until("it is back", || count(|notice| *notice == Notice::Back) == 1);
        until("all nodes are up", || up(&control.topology().snapshot()) == [true; 3]);
        assert_eq!(count(|notice| matches!(notice, Notice::Away(_))), 1, "reported once");
        assert_eq!(count(|notice| *notice == Notice::RolesInOneCopy), 1);
    });
}

#[test]
fn refused_account_gets_one_sentence_with_the_remedy() {
    with_cluster(true, |_, cluster| {
        let check = |account, parts: &[&str]| {
            let sentence = start(cluster, account).map(drop).expect_err("refused");
            for part in parts {
                assert!(sentence.contains(part), "{sentence} does not name {part}");
            }
            assert!(!sentence.contains('\n'), "{sentence}");
        };
        cluster.script().login = Some(("front", "right"));
        check(Some(("front", "wrong")), &["refuses the role `front`", "wrong password", "--cluster-user"]);
        check(None, &["asks for a password", "--cluster-user"]);
        for (table, keyspace) in [
            ("system.local", "system"),
            ("system.peers_v2", "system"),
            ("system_schema.keyspaces", "system_schema"),
        ] {
            cluster.script().forbidden = Some(table);
            let remedy = format!("GRANT SELECT ON KEYSPACE {keyspace} TO \"front\"");
            check(Some(("front", "right")), &[table, &remedy]);
        }
        cluster.script().forbidden = None;
        assert!(start(cluster, Some(("front", "right"))).is_ok());
        cluster.script().away = cluster.addresses();
        check(Some(("front", "right")), &["cannot be reached", "--contact"]);
    });
}

#[test]
fn datacenter_is_checked_at_the_start() {
    with_cluster(true, |_, cluster| {
        let options = |datacenter: &str| ControlOptions {
            contacts: cluster.addresses(),
            account: None,
            datacenter: Some(datacenter.to_owned()),
            tls: None,
        };
        let control = Control::start(options("dc2"), None, drop).expect("starts");
        assert_eq!(&**control.topology().snapshot().datacenter(), "dc2");
        let sentence = Control::start(options("dc3"), None, drop).map(drop).expect_err("unknown");
        assert!(sentence.contains("(dc1, dc2), got `dc3`"), "{sentence}");
    });
}

#[test]
fn control_plane_verifies_the_certificate_of_nodes() {
    with_cluster(false, |_, cluster| {
        let file =
            |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls").join(name);
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        let files = TlsFiles { certificate, key, client_ca: None, client_required: false };
        cluster.script().tls = Some(Tls::from_files(files).expect("valid"));
        let trust_name = |authority: &Path, name: Option<&str>| {
            let (authority, name) = (authority.to_owned(), name.map(str::to_owned));
            NodeTls::from_files(NodeTlsFiles { authority, own: None, name }).expect("valid")
        };
        let trust = |authority: &Path| trust_name(authority, None);
        let unknown = start_with(cluster, None, Some(trust(&file("other.pem"))));
        let sentence = unknown.map(drop).expect_err("another authority");
        assert!(sentence.contains("TLS handshake with the cluster failed"), "{sentence}");
        assert!(sentence.contains("(--cluster-ca, --cluster-tls-name)"), "{sentence}");
        let named = |name| start_with(cluster, None, Some(trust_name(&file("certificate.pem"), Some(name))));
        let sentence = named("db.example").map(drop).expect_err("another name");
        assert!(sentence.contains("not valid for name \"db.example\""), "{sentence}");
        start(cluster, None).map(drop).expect_err("plain text");
        // The files of authorities change while the front runs.
        let folder = Folder::empty("node-authorities");
        let changing = folder.path().join("ca.pem");
        std::fs::copy(file("certificate.pem"), &changing).expect("copied");
        let tls = trust(&changing);
        let (control, notices) = start_with(cluster, None, Some(tls.clone())).expect("starts");
        until("all nodes are up", || up(&control.topology().snapshot()) == [true; 3]);
        std::fs::copy(file("other.pem"), &changing).expect("copied");
        tls.reload().expect("valid");
        let away = |text: &str| {
            let notices = notices.lock().expect("no panic");
            matches!(notices.last(), Some(Notice::Away(reason)) if reason.contains(text))
        };
        until("the nodes are not trusted any more", || away("TLS handshake"));
        std::fs::write(&changing, "nonsense").expect("written");
        assert!(tls.reload().expect_err("no certificate").contains("ca.pem"));
        std::fs::copy(file("certificate.pem"), &changing).expect("copied");
        tls.reload().expect("valid");
        let is_back = || notices.lock().expect("no panic").last() == Some(&Notice::Back);
        until("they are trusted again", is_back);
    });
}

/// Messages of [`follow_events`], in short.
type Seen = Arc<Mutex<Vec<String>>>;

#[test]
fn events_are_passed_on_and_followed_on_another_node() {
    with_cluster(true, |lanes, cluster| {
        cluster.script().login = Some(("front", "right"));
        let (control, _) = start(cluster, Some(("front", "right"))).expect("starts");
        let token = Account { user: "front".to_owned(), password: "right".to_owned() }.token();
        let seen = Seen::default();
        let (topology, hears) = (control.topology().clone(), seen.clone());
        lanes.block_on(0, Group::CONTROL, move || async move {
            let hear = move |heard: Heard<'_>| {
                let text = match heard {
                    Heard::Registered(node) => format!("at {node}"),
                    Heard::Event { body, event } => {
                        // The body is the node's own.
                        let own = wire::Response::decode(Version::V4, wire::Opcode::Event, body);
                        assert_eq!(own, Ok(wire::Response::Event(event.clone())));
                        event.type_name().to_owned()
                    }
                    Heard::Lost(_) => "lost".to_owned(),
                };
                hears.lock().expect("no panic").push(text);
            };
            let follow = follow_events(topology, Version::V5, Some(token), None, hear);
            lanes::spawn(Group::CONTROL, follow).detach();
        });
        let seen = || seen.lock().expect("no panic").clone();
        until("a node sends its events", || seen().len() == 1);
        let change = SchemaChange {
            change: ChangeType::Created,
            target: SchemaTarget::Keyspace,
            keyspace: "ks".to_owned(),
        };
        let node = cluster.addresses()[1];
        cluster.script().events = vec![
            Event::Status { up: false, node },
            Event::Topology { added: true, node },
            Event::Schema(change),
        ];
        until("the events have arrived", || seen().len() == 4);
        assert_eq!(seen()[1..], ["STATUS_CHANGE", "TOPOLOGY_CHANGE", "SCHEMA_CHANGE"]);
        let first: SocketAddr = seen()[0][3..].parse().expect("an address");
        cluster.script().away.push(first);
        until("another node sends its events", || {
            seen().last().is_some_and(|text| text.starts_with("at ") && *text != format!("at {first}"))
        });
        assert_eq!(seen()[4], "lost");
    });
}

#[test]
fn tables_are_published_and_replaced_after_a_change() {
    with_cluster(true, |_, cluster| {
        cluster.script().keyspaces = vec![
            ("both", vec![("class", NETWORK), ("dc1", "2"), ("dc2", "1")]),
            ("system_auth", vec![("class", SIMPLE), ("replication_factor", "2")]),
        ];
        cluster.script().types = vec![("point", vec![("x", "int"), ("y", "int")])];
        cluster.script().columns = vec![
            ["both", "t", "v", "regular", "-1", "none", "frozen<point>"],
            ["both", "t", "k", "partition_key", "0", "none", "int"],
            ["system_auth", "roles", "role", "partition_key", "0", "none", "text"],
        ];
        let (control, notices) = start(cluster, None).expect("starts");
        let shown = |topology: &Topology| {
            let schema = topology.catalog().schema();
            let table = |table: &std::sync::Arc<schema::TableDef>| {
                let columns = table.columns.iter().map(|column| format!("{} {}", column.name, column.ty));
                format!("{}.{}: {}", table.keyspace, table.name, columns.collect::<Vec<_>>().join(", "))
            };
            schema
                .keyspaces
                .values()
                .flat_map(|keyspace| keyspace.tables.values().map(table))
                .collect::<Vec<_>>()
        };
        let first = control.topology().snapshot();
        assert_eq!(shown(&first), ["both.t: k int, v frozen<point>"]);
        assert_eq!(first.catalog().schema().version, Uuid::from_u128(7));
        let reads = cluster.count("FROM system_schema.columns");
        {
            let mut script = cluster.script();
            script.columns.push(["both", "t", "w", "regular", "-1", "none", "vector<float, 3>"]);
            script.members.iter_mut().for_each(|member| member.schema = 8);
        }
        control.refresh().now();
        let is_new = || shown(&control.topology().snapshot()).concat().contains("w vector<float, 3>");
        until("the new table is published", is_new);
        assert_eq!(cluster.count("FROM system_schema.columns"), reads + 1, "once for each change");
        assert_eq!(notices.lock().expect("no panic").len(), 0);
    });
}

#[test]
fn sizes_of_tables_are_summed_over_the_nodes() {
    with_cluster(true, |_, cluster| {
        cluster.script().keyspaces = vec![("both", vec![("class", NETWORK), ("dc1", "2"), ("dc2", "1")])];
        cluster.script().columns = vec![["both", "t", "k", "partition_key", "0", "none", "int"]];
        let low = ["both", "t", "-9223372036854775808", "0"];
        let high = ["both", "t", "0", "-9223372036854775808"];
        let dropped = ["both", "gone", "0", "-9223372036854775808"];
        cluster.script().sizes = vec![(1, low, [100, 30]), (2, high, [10, 70]), (2, dropped, [10, 70])];
        let (control, notices) = start(cluster, None).expect("starts");
        let table = Uuid::from_bytes([1; 16]);
        until("the sizes are published", || control.topology().snapshot().sizes().of(table).is_some());
        let sizes = control.topology().snapshot().sizes().clone();
        let expected = engine::scan::TableStatistics { rows: 100, bytes: 3_700 };
        assert_eq!(sizes.of(table), Some(expected));
        assert_eq!(cluster.count("FROM system.size_estimates"), 3, "each node once");
        assert_eq!(notices.lock().expect("no panic").len(), 0);
    });
}

#[test]
fn node_that_refuses_its_sizes_is_no_error() {
    with_cluster(true, |_, cluster| {
        cluster.script().forbidden = Some("system.size_estimates");
        let (control, notices) = start(cluster, None).expect("starts");
        until("every node was asked", || cluster.count("FROM system.size_estimates") == 3);
        assert_eq!(**control.topology().snapshot().sizes(), cluster::TableSizes::default());
        assert_eq!(notices.lock().expect("no panic").len(), 0);
    });
}

#[test]
fn name_in_certificates_is_checked_in_place_of_addresses() {
    // Nodes at 127.0.0.1 to 127.0.0.3, with a certificate for 127.0.0.1 and localhost.
    with_cluster(true, |_, cluster| {
        let file =
            |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls").join(name);
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        let files = TlsFiles { certificate, key, client_ca: None, client_required: false };
        cluster.script().tls = Some(Tls::from_files(files).expect("valid"));
        let trust = |name: Option<&str>| {
            let (authority, name) = (file("certificate.pem"), name.map(str::to_owned));
            Some(NodeTls::from_files(NodeTlsFiles { authority, own: None, name }).expect("valid"))
        };
        let (by_address, _) = start_with(cluster, None, trust(None)).expect("starts");
        assert_eq!(up(&by_address.topology().snapshot()).iter().filter(|is_up| **is_up).count(), 1);
        let (by_name, _) = start_with(cluster, None, trust(Some("localhost"))).expect("starts");
        until("all nodes are up", || up(&by_name.topology().snapshot()) == [true; 3]);
    });
}
