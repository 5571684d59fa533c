//! Where a call goes, by what the table of owners says and by who answers.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::concern::Access;
use super::owners::Ownership;
use super::view::NodeReport;
use super::*;
use crate::session::SessionId;

/// A table in memory. Claims of this node succeed unless `rival` is quicker.
#[derive(Default)]
struct Table {
    rows: Mutex<BTreeMap<String, Ownership>>,
    rival: Mutex<Option<String>>,
    asked: Mutex<usize>,
    is_gone: AtomicBool,
    ended: Mutex<BTreeSet<String>>,
}

impl Table {
    fn set(&self, session: &str, owner: Ownership) {
        self.rows.lock().unwrap().insert(session.to_owned(), owner);
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    fn row(&self, session: &str) -> Ownership {
        self.rows.lock().unwrap().get(session).cloned().unwrap_or(Ownership::Unknown)
    }
}

fn node(name: &str) -> Node {
    Node { name: name.to_owned(), address: None }
}

#[async_trait]
impl Owners for Arc<Table> {
    async fn owner_of(&self, key: &SessionKey) -> Result<Ownership, OwnersError> {
        *self.asked.lock().unwrap() += 1;
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(OwnersError("gone".to_owned()));
        }
        Ok(self.row(key.session.as_str()))
    }

    async fn claim(&self, key: &SessionKey) -> Result<Node, OwnersError> {
        let winner = node(self.rival.lock().unwrap().as_deref().unwrap_or("a"));
        self.set(key.session.as_str(), Ownership::Of(winner.clone()));
        Ok(winner)
    }

    async fn all_owned(&self) -> Result<Vec<SessionKey>, OwnersError> {
        Ok(Vec::new())
    }

    async fn give(&self, _: &SessionKey, _: &str) -> Result<(), OwnersError> {
        Ok(())
    }

    async fn has_ended(&self, node: &str) -> Result<bool, OwnersError> {
        Ok(self.ended.lock().unwrap().contains(node))
    }

    fn owned(&self) -> usize {
        0
    }
}

/// Node `a`, with room for one session, which knows `b`, with more room, and `c`, which drains.
fn cluster(table: &Arc<Table>) -> Cluster {
    let settings = ClusterSettings {
        peers: vec!["b:1".to_owned()],
        key: serde_json::from_str("\"0123456789abcdef\"").unwrap(),
        name: "a".to_owned(),
        addr: ([127, 0, 0, 1], 1).into(),
    };
    let cluster = Cluster::new(&settings, Arc::new(table.clone()), Metrics::default()).unwrap();
    cluster.introduce(|| OwnLoad { sessions: 9, max: 10, ready: true });
    let mut view = cluster.view.write().unwrap();
    for (name, free, draining, port) in [("b", 5, false, 2), ("c", 9, true, 3)] {
        let report = NodeReport {
            name: name.to_owned(),
            instance: name.to_owned(),
            version: String::new(),
            sessions: 0,
            free,
            owned: 0,
            draining,
            ready: true,
            limits: limits::ToldLimits::new(),
            amounts: amounts::ToldAmounts::new(),
        };
        view.heard(report, ([10, 0, 0, 1], port).into(), Duration::ZERO, Instant::now());
    }
    drop(view);
    cluster
}

fn key(session: &str) -> SessionKey {
    SessionKey::new("t", session.parse::<SessionId>().unwrap())
}

fn at(name: &str, port: u16) -> Location {
    Location::At(Target { name: name.to_owned(), address: format!("10.0.0.1:{port}") })
}

#[tokio::test]
async fn a_session_with_an_owner_is_served_there() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    for (session, owner, want) in [("1", "a", Location::Here), ("2", "b", at("b", 2)), ("3", "c", at("c", 3))]
    {
        table.set(session, Ownership::Of(node(owner)));
        for access in [Access::Existing, Access::Make] {
            assert_eq!(cluster.locate(&key(session), access, Came::Directly).await.as_ref(), Ok(&want));
        }
    }
    table.set("4", Ownership::Of(node("d")));
    let lost = cluster.locate(&key("4"), Access::Make, Came::Directly).await;
    assert_eq!(lost, Err(ClusterFault::Unreachable("d".to_owned())));
    let known = Node { name: "d".to_owned(), address: Some("10.0.0.9:9".to_owned()) };
    table.set("4", Ownership::Of(known));
    let found = Target { name: "d".to_owned(), address: "10.0.0.9:9".to_owned() };
    assert_eq!(cluster.locate(&key("4"), Access::Make, Came::Directly).await, Ok(Location::At(found)));
}

#[tokio::test]
async fn a_session_that_a_call_makes_goes_where_there_is_room() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    assert_eq!(cluster.locate(&key("1"), Access::Existing, Came::Directly).await, Ok(Location::Here));
    assert_eq!(table.row("1"), Ownership::Unknown, "nothing was made");
    assert_eq!(cluster.locate(&key("1"), Access::Make, Came::Directly).await, Ok(at("b", 2)));
    assert_eq!(table.row("1"), Ownership::Unknown, "the node that gets it claims it");
    assert_eq!(cluster.locate(&key("2"), Access::Make, Came::ToStay).await, Ok(Location::Here));
    assert_eq!(table.row("2"), Ownership::Of(node("a")));
    table.set("3", Ownership::Nobody);
    assert_eq!(cluster.locate(&key("3"), Access::Existing, Came::Directly).await, Ok(at("b", 2)));
}

#[tokio::test]
async fn a_node_that_drains_gives_new_sessions_away_and_serves_its_own() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    cluster.set_draining(true);
    assert_eq!(cluster.locate(&key("1"), Access::Make, Came::ToStay).await, Ok(at("b", 2)));
    table.set("2", Ownership::Of(node("a")));
    assert_eq!(cluster.locate(&key("2"), Access::Make, Came::Directly).await, Ok(Location::Here));
    cluster.view.write().unwrap().set_lost_after(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(2)).await;
    let nobody = cluster.locate(&key("3"), Access::Make, Came::Directly).await;
    assert_eq!(nobody, Err(ClusterFault::NoNode));
    cluster.set_draining(false);
    assert_eq!(cluster.locate(&key("3"), Access::Make, Came::Directly).await, Ok(Location::Here));
}

#[tokio::test]
async fn a_request_is_passed_on_once() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    // Another node chose this one, which takes the session although another has more room.
    assert_eq!(cluster.locate(&key("1"), Access::Make, Came::ByHop).await, Ok(Location::Here));
    assert_eq!(table.row("1"), Ownership::Of(node("a")));
    table.set("2", Ownership::Of(node("b")));
    let refused = cluster.locate(&key("2"), Access::Make, Came::ByHop).await;
    assert_eq!(refused, Err(ClusterFault::NotHere("b".to_owned())));
    *table.rival.lock().unwrap() = Some("b".to_owned());
    let late = cluster.locate(&key("3"), Access::Make, Came::ByHop).await;
    assert_eq!(late, Err(ClusterFault::NotHere("b".to_owned())), "b was quicker");
    let passed = cluster.locate(&key("4"), Access::Make, Came::ToStay).await;
    assert_eq!(passed, Ok(at("b", 2)), "b was quicker, and the client is here");
}

#[tokio::test]
async fn another_owner_is_believed_for_a_while_and_this_node_never() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    table.set("1", Ownership::Of(node("b")));
    table.set("2", Ownership::Of(node("a")));
    for _ in 0..3 {
        cluster.locate(&key("1"), Access::Make, Came::Directly).await.unwrap();
    }
    assert_eq!(table.asked(), 1);
    cluster.doubt("b");
    cluster.locate(&key("1"), Access::Make, Came::Directly).await.unwrap();
    assert_eq!(table.asked(), 2);
    for _ in 0..3 {
        cluster.locate(&key("2"), Access::Make, Came::Directly).await.unwrap();
    }
    assert_eq!(table.asked(), 5);
    // What is believed answers nothing that came by hop.
    let refused = cluster.locate(&key("1"), Access::Make, Came::ByHop).await;
    assert!(matches!(refused, Err(ClusterFault::NotHere(_))) && table.asked() == 6, "{refused:?}");
}

#[tokio::test]
async fn without_the_table_nothing_is_served_that_could_be_another_nodes() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    table.is_gone.store(true, Ordering::Relaxed);
    for came in [Came::Directly, Came::ToStay, Came::ByHop] {
        let fault = cluster.locate(&key("1"), Access::Existing, came).await;
        assert!(matches!(fault, Err(ClusterFault::Owners(_))), "{fault:?}");
    }
}

#[tokio::test]
async fn what_waits_for_a_node_is_given_up_only_when_it_is_silent_and_has_ended() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    let (of_b, of_c) = (cluster.end_of("b"), cluster.end_of("c"));
    let (mut of_b, mut of_c) = (std::pin::pin!(of_b), std::pin::pin!(of_c));
    // The table has it as ended, and it answers: its clock or the table's is wrong, and it says what it does.
    table.ended.lock().unwrap().insert("b".to_owned());
    cluster.judge().await;
    assert!(!futures_util::poll!(of_b.as_mut()).is_ready());
    // Both are silent; one of them may still do what it was asked.
    cluster.view.write().unwrap().set_lost_after(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(2)).await;
    cluster.judge().await;
    assert!(futures_util::poll!(of_b.as_mut()).is_ready());
    assert!(!futures_util::poll!(of_c.as_mut()).is_ready());
    assert!(futures_util::poll!(std::pin::pin!(cluster.end_of("b"))).is_ready(), "whoever comes later");
    // It answers again.
    cluster.view.write().unwrap().set_lost_after(Duration::from_secs(60));
    cluster.judge().await;
    assert!(!futures_util::poll!(std::pin::pin!(cluster.end_of("b"))).is_ready());
}

#[tokio::test]
async fn an_id_leads_to_the_node_that_made_it() {
    let table = Arc::<Table>::default();
    let cluster = cluster(&table);
    assert_eq!(cluster.locate_tag(NodeTag::of("a")), Ok(Location::Here));
    assert_eq!(cluster.locate_tag(NodeTag::of("b")), Ok(at("b", 2)));
    assert_eq!(cluster.locate_tag(NodeTag::of("nobody")), Ok(Location::Here), "nobody knows it here");
    cluster.view.write().unwrap().set_lost_after(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(2)).await;
    cluster.judge().await;
    let silent = Err(ClusterFault::Silent("b".to_owned()));
    assert_eq!(cluster.locate_tag(NodeTag::of("b")), silent, "it may come back");
    table.ended.lock().unwrap().insert("b".to_owned());
    cluster.judge().await;
    assert_eq!(cluster.locate_tag(NodeTag::of("b")), Ok(Location::Here), "what it had is gone");
}
