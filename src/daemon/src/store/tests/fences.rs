//! What fences off a former start of a node, and what the nodes of a ledger share: sweeps and connections.
//! With a real PostgreSQL and a real S3 server.

use paddock_ledger::{Ledger, LedgerError, SessionKey};

use super::shared::{SharedServers, World};

/// What the database of this world answers.
fn sql(world: &World, statements: &str) -> String {
    SharedServers::of_process().in_database(world.url(), statements).unwrap()
}

fn key() -> SessionKey {
    SessionKey::new("t", "s")
}

/// More questions at one time than a node has connections; each is answered.
async fn ask_at_once(node: &Ledger) {
    let key = key();
    let asks = futures_util::future::join_all((0..64).map(|_| node.owner_of(&key))).await;
    asks.into_iter().for_each(|answer| drop(answer.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_goodbye_of_a_former_start_frees_nothing_of_the_daemon_that_took_its_place() {
    let world = World::new();
    let former = world.node("a", "the store of a").await;
    let present = world.node("a", "the store of a").await;
    present.claim(&key()).await.unwrap();
    former.leave().await.unwrap();
    let other = world.node("b", "the store of b").await;
    let refused = other.claim(&key()).await.unwrap_err();
    assert!(matches!(&refused, LedgerError::Elsewhere { node } if node == "a"), "{refused}");
    assert!(!present.nodes().await.unwrap().iter().any(|node| node.has_left));
    present.leave().await.unwrap();
    other.claim(&key()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_start_that_still_runs_loses_its_lease_to_the_daemon_that_took_its_place() {
    let world = World::short();
    let former = world.node("a", "the store of a").await;
    let grant = former.claim(&key()).await.unwrap().grant;
    let present = world.node("a", "the store of a").await;
    let mut standing = former.standing();
    standing.wait_for(|now| *now == paddock_ledger::Standing::Replaced).await.unwrap();
    assert!(!former.owns(grant) && !former.may_acknowledge());
    assert!(present.may_acknowledge());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_sweeps_for_all() {
    let world = World::new();
    let (a, b) = (world.node("a", "1").await, world.node("b", "2").await);
    let (of_a, of_b) = tokio::join!(a.sweep_if_due(), b.sweep_if_due());
    let swept = [of_a.unwrap(), of_b.unwrap()];
    assert_eq!(swept.iter().filter(|swept| swept.is_some()).count(), 1, "{swept:?}");
    assert_eq!((a.sweep_if_due().await.unwrap(), b.sweep_if_due().await.unwrap()), (None, None));
    sql(&world, "update paddock_ledger set swept = now() - interval '2 h'");
    assert_eq!(b.sweep_if_due().await.unwrap(), Some(0), "an hour later");
    assert_eq!(a.sweep_if_due().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_asked_before_another_had_its_turn_does_not_sweep_after_it() {
    let world = World::new();
    let node = world.node("a", "1").await;
    // The other node: it changes the row once the first one waits for that.
    let turn = "do $$ begin perform from paddock_ledger for update; \
                while not exists (select from pg_locks where not granted \
                                  and pg_backend_pid() = any (pg_blocking_pids(pid))) \
                loop perform pg_sleep(0.01); end loop; \
                update paddock_ledger set swept = clock_timestamp(); end $$";
    let other = tokio::task::spawn_blocking({
        let world = world.clone();
        move || sql(&world, turn)
    });
    let free = "select count(*) from (select from paddock_ledger for update skip locked) as free";
    while sql(&world, free) != "0" {}
    assert_eq!(node.sweep_if_due().await.unwrap(), None);
    other.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_the_version_before_get_what_they_lack() {
    let world = World::new();
    let a = world.node("a", "1").await;
    a.claim(&key()).await.unwrap();
    drop(a);
    let before = "alter table paddock_nodes drop column start; alter table paddock_ledger drop column swept; \
                  drop sequence paddock_starts; update paddock_ledger set version = 1";
    sql(&world, before);
    let a = world.node("a", "1").await;
    assert_eq!(a.owner_of(&key()).await.unwrap().unwrap().owner.node, "a");
    assert_eq!(sql(&world, "select version from paddock_ledger"), "2");
}

/// Connections of this world's nodes.
fn connections(world: &World) -> usize {
    let count = "select count(*) from pg_stat_activity where datname = current_database() \
                 and application_name = 'paddock'";
    sql(world, count).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_at_rest_has_two_connections_and_a_busy_one_five() {
    let world = World::new();
    let node = world.node("a", "1").await;
    for _ in 0..20 {
        node.owner_of(&key()).await.unwrap();
    }
    assert_eq!(connections(&world), 2, "one for the lease");
    ask_at_once(&node).await;
    let busy = connections(&world);
    assert!((3..=5).contains(&busy), "{busy}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_on_with_what_it_has_when_the_server_has_no_more_connections() {
    let world = World::new();
    let node = world.node("a", "1").await;
    node.owner_of(&key()).await.unwrap();
    // Tests connect as a superuser, for whom no number of connections is the limit.
    let (server, database) = world.url().split_once("/d").unwrap();
    let (number, _) = database.split_once('?').unwrap();
    let closed = format!("alter database d{number} allow_connections false");
    SharedServers::of_process().in_database(&format!("{server}/postgres"), &closed).unwrap();
    ask_at_once(&node).await;
    assert!(node.may_acknowledge());
}
