//! The driver's connections are on the cores that it expects, and its requests arrive on the cores
//! that own the rows.

use std::time::Duration;

use schema::Sharding;
use scylla::client::session::Session;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::routing::Shard;
use scylla::statement::Statement;

use crate::server::Server;

/// Returns the source ports of the connections to a core, and the server's port of the connection
/// used. Asks the core itself, again until the driver has opened a connection to it.
async fn clients(session: &Session, shard: Shard) -> (Vec<i32>, u16) {
    let node = session.get_cluster_state().get_nodes_info()[0].clone();
    let mut statement = Statement::new("SELECT port, shard_id FROM system_views.clients");
    let policy = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node), Some(shard));
    statement.set_load_balancing_policy(Some(policy));
    loop {
        let result = session.query_unpaged(statement.clone(), &[]).await.expect("the clients");
        if result.request_coordinator().shard() == Some(shard) {
            let port = result.request_coordinator().connection_address().port();
            let rows = result.into_rows_result().expect("rows");
            let rows = rows.rows::<(i32, i32)>().expect("two ints").map(|row| row.expect("a row"));
            let of_shard = |(port, its): (i32, i32)| (Shard::try_from(its) == Ok(shard)).then_some(port);
            return (rows.filter_map(of_shard).collect(), port);
        }
        // The time limit is that of the whole conversation.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn every_core_is_reached(server: &Server, session: &Session, cores: u16) {
    let sharder = session.get_cluster_state().get_nodes_info()[0].sharder().expect("cores are announced");
    assert_eq!(sharder.nr_shards.get(), cores);
    let mut by_shard_aware_port = 0;
    for shard in 0..cores {
        let (clients, port) = clients(session, Shard::from(shard)).await;
        assert!(!clients.is_empty(), "core {shard} reports no clients");
        if server.shard_aware.ends_with(&format!(":{port}")) {
            by_shard_aware_port += 1;
            let chosen = |port: &i32| port % i32::from(cores) == i32::from(shard);
            assert!(clients.iter().any(chosen), "no source port of {clients:?} selects core {shard}");
        }
    }
    // The first connection reports that port to the driver, which opens one for each other core.
    assert_eq!(by_shard_aware_port, cores - 1);
}

pub(super) async fn requests_arrive_at_owners(session: &Session) {
    let insert = session.prepare("INSERT INTO shop.counts (id, n) VALUES (?, ?)").await.expect("prepared");
    let select = session.prepare("SELECT n FROM shop.counts WHERE id = ?").await.expect("prepared");
    let sharder = session.get_cluster_state().get_nodes_info()[0].sharder().expect("cores are announced");
    let sharding = Sharding { shards: u32::from(sharder.nr_shards.get()), ignore_msb: embedded::IGNORE_MSB };
    for id in 0..100_i64 {
        session.execute_unpaged(&insert, (id, id as i32)).await.expect("written");
        let result = session.execute_unpaged(&select, (id,)).await.expect("read");
        let token = select.calculate_token(&(id,)).expect("a key").expect("of a partition");
        let owner = sharding.shard_of(token.value());
        assert_eq!(sharder.shard_of(token), owner, "driver and engine compute the same core");
        assert_eq!(
            result.request_coordinator().shard(),
            Some(owner),
            "the request for {id} arrived at another core"
        );
        let rows = result.into_rows_result().expect("rows");
        assert_eq!(rows.single_row::<(i32,)>().expect("one"), (id as i32,));
    }
}
