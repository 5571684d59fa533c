//! The store of many machines, with a real PostgreSQL and a real S3 server: the same changes as on one disk,
//! with crashes between the ledger and the disk, lost disks, and other nodes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use paddock_ledger::{Ledger, LedgerConfig, LedgerError, Node, ObjectsConfig, Terms};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::model::{Change, Numbers, Tree, change, commit, tree};
use super::*;

#[path = "../../../../../tests/support/shared_store.rs"]
mod servers;

pub(super) use servers::SharedServers;

/// Short, so that a node dies quickly here. The machine of the tests is slow: nothing may end by itself
/// meanwhile.
const SHORT: Terms = Terms { lease: Duration::from_millis(1500), margin: Duration::from_millis(500) };

/// A ledger of a test's own.
#[derive(Clone)]
pub(super) struct World {
    url: String,
    objects: ObjectsConfig,
    terms: Terms,
}

impl World {
    pub(super) fn new() -> Self {
        let servers = SharedServers::of_process();
        let (url, objects) = servers.fresh();
        let objects = ObjectsConfig { url: objects, options: servers.aws() };
        Self { url, objects, terms: Terms { lease: Duration::from_secs(30), margin: Duration::from_secs(5) } }
    }

    /// One whose nodes die quickly.
    pub(super) fn short() -> Self {
        World { terms: SHORT, ..World::new() }
    }

    /// The address of its database.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// In words that a child process gets.
    pub(super) fn in_words(&self) -> String {
        let options = self.objects.options.iter().map(|(name, value)| format!("{name}={value}"));
        let words = [self.url.clone(), self.objects.url.clone()].into_iter().chain(options);
        words.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn of_words(words: &str) -> Self {
        let mut words = words.split(' ').map(str::to_owned);
        let (url, objects) = (words.next().unwrap(), words.next().unwrap());
        let options =
            words.map(|word| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap());
        let objects = ObjectsConfig { url: objects, options: options.collect() };
        Self { url, objects, terms: Terms { lease: Duration::from_secs(30), margin: Duration::from_secs(5) } }
    }

    pub(super) async fn node(&self, name: &str, id: &str) -> Ledger {
        let node = Node { name: name.to_owned(), id: id.to_owned(), address: String::new() };
        let (url, objects) = (self.url.clone(), self.objects.clone());
        let config = LedgerConfig { url, objects, node, terms: self.terms, grace: Duration::ZERO };
        Ledger::open(config).await.unwrap()
    }

    /// The store of a node in this folder.
    pub(super) async fn store(&self, root: &Path, name: &str) -> Arc<Store> {
        let store = Arc::new(once_free(root, OPTIONS));
        store.share(self.node(name, &store.owner).await);
        store
    }
}

/// The way of one node to the database, which can be cut.
struct Wire {
    port: u16,
    is_cut: watch::Sender<bool>,
}

impl Wire {
    /// To the server at this address.
    async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, is_cut) = (listener.local_addr().unwrap().port(), watch::Sender::new(false));
        let cut = is_cut.subscribe();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut cut, address) = (cut.clone(), address.clone());
                tokio::spawn(async move {
                    if *cut.borrow() {
                        return;
                    }
                    let mut far = TcpStream::connect(address).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { port, is_cut }
    }
}

fn is_away(error: &StoreError, what: fn(&LedgerError) -> bool) -> bool {
    matches!(error, StoreError::Ledger(error) if what(error))
}

#[tokio::test(flavor = "multi_thread")]
async fn any_changes_are_there_after_any_restart_and_after_the_loss_of_the_disk() {
    for seed in 0..4 {
        let world = World::new();
        let mut root = TempDir::new_in(MEMORY).unwrap();
        let mut numbers = Numbers(seed + 500);
        let mut expected = Tree::new();
        let mut store = world.store(root.path(), "a").await;
        for n in 0..40 {
            let one = Numbers::change(seed, n);
            let breaks = numbers.below(6) == 0 && matches!(one, Change::Batch(_));
            // The ledger has it, and this disk's journal does not.
            store.shared.journal.hooks.broken.store(breaks, Ordering::Relaxed);
            let done = commit(&store, "s", &expected, &one).await;
            store.shared.journal.hooks.broken.store(false, Ordering::Relaxed);
            change(&mut expected, &one);
            match done {
                Ok(()) => {}
                Err(StoreError::Pending(_)) => assert!(breaks, "seed {seed}, change {n}"),
                Err(error) => panic!("seed {seed}, change {n}: {error}"),
            }
            let next = numbers.below(8);
            if next < 3 {
                let ledger = store.ledger().unwrap().clone();
                drop(store);
                if next == 0 {
                    ledger.leave().await.unwrap(); // or the new disk's daemon waits for the old lease
                    root = TempDir::new_in(MEMORY).unwrap();
                }
                store = world.store(root.path(), "a").await;
            }
            assert_eq!(tree(&store, "s").await, expected, "seed {seed}, change {n}, {next}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_one_owner_and_what_a_dead_one_acknowledged_is_with_the_next() {
    let world = World::short();
    let (one, two) = (TempDir::new_in(MEMORY).unwrap(), TempDir::new_in(MEMORY).unwrap());
    let (host, database) = world.url.trim_start_matches("postgres://postgres@").split_once('/').unwrap();
    let wire = Wire::to(host.to_owned()).await;
    let by_wire = format!("postgres://postgres@127.0.0.1:{}/{database}", wire.port);
    let a = World { url: by_wire, ..world.clone() }.store(one.path(), "a").await;
    let b = world.store(two.path(), "b").await;
    let space = a.space("t", "s").await.unwrap();
    save(&space, &[("f", b"of a"), ("d/g", &[b'x'; 300_000])]).await;
    let refused = b.space("t", "s").await.err().unwrap();
    assert!(
        is_away(&refused, |error| matches!(error, LedgerError::Elsewhere { node } if node == "a")),
        "{refused}"
    );
    assert!(b.find("t", "s").await.is_err());

    wire.is_cut.send_replace(true);
    let taken = loop {
        match b.space("t", "s").await {
            Ok(space) => break space,
            Err(error) => {
                assert!(is_away(&error, |error| matches!(error, LedgerError::Elsewhere { .. })), "{error}")
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(!a.ledger().unwrap().may_acknowledge(), "taken while its owner could acknowledge");
    assert_eq!(content(&taken, "f"), "of a");
    assert_eq!(content(&taken, "d/g").len(), 300_000);
    save(&taken, &[("f", b"of b")]).await;

    // It still has the session in its hands.
    let mut batch = Batch::new(space.clone());
    batch.file(file("f"));
    batch.write(b"late").await.unwrap();
    batch.keep();
    let error = batch.commit().await.err().unwrap();
    assert!(matches!(error, StoreError::Ledger(_)), "{error}");
    wire.is_cut.send_replace(false);
    let error = loop {
        match a.space("t", "s").await {
            Err(StoreError::Ledger(error)) if error.is_passing() => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            other => break other.err().unwrap(),
        }
    };
    assert!(
        is_away(&error, |error| matches!(error, LedgerError::Elsewhere { node } if node == "b")),
        "{error}"
    );
    let reader = a.clone();
    let read =
        tokio::task::spawn_blocking(move || reader.open_file("t", "s", SavedFile::Data(&path("f"))).is_ok());
    assert!(!read.await.unwrap(), "a reader gets what is old");
    assert_eq!(content(&taken, "f"), "of b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_the_fence_of_before_changes_nothing() {
    let world = World::new();
    let root = TempDir::new_in(MEMORY).unwrap();
    let store = world.store(root.path(), "a").await;
    let space = store.space("t", "s").await.unwrap();
    save(&space, &[("f", b"1")]).await;
    // Another claim of the same node: the daemon that was killed before this one.
    let key = paddock_ledger::SessionKey::new("t", "s");
    let ledger = store.ledger().unwrap();
    let claim = ledger.claim(&key).await.unwrap();
    let mut batch = Batch::new(space.clone());
    batch.remove(path("f"));
    let error = batch.commit().await.err().unwrap();
    assert!(is_away(&error, |error| matches!(error, LedgerError::Fenced)), "{error}");
    assert_eq!(ledger.read(&key).await.unwrap().len(), 1);
    // It asks again, and is the owner.
    save(&space, &[("f", b"2")]).await;
    assert_eq!(content(&space, "f"), "2");
    let late = ledger.publish(&key, claim.grant, &paddock_ledger::Change::default()).await;
    assert!(matches!(late, Err(LedgerError::Fenced)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_handed_over_is_the_other_nodes_at_once() {
    let world = World::new();
    let (one, two) = (TempDir::new_in(MEMORY).unwrap(), TempDir::new_in(MEMORY).unwrap());
    let (a, b) = (world.store(one.path(), "a").await, world.store(two.path(), "b").await);
    save(&a.space("t", "s").await.unwrap(), &[("f", b"of a")]).await;
    assert!(a.hand_over("t", "s", "nobody").await.is_err(), "a node that is not there");
    a.hand_over("t", "s", "b").await.unwrap();
    assert!(a.space("t", "s").await.is_err());
    assert_eq!(content(&b.space("t", "s").await.unwrap(), "f"), "of a");
    // The cache of the node before goes away, and is no session of it.
    assert_eq!(a.stored().await.unwrap(), []);
    assert!(!a.session_dir("t", "s").exists());
    assert_eq!(b.stored().await.unwrap().len(), 1);
    // Deleted there, it is nowhere.
    b.forget("t", "s").await.unwrap();
    assert!(a.find("t", "s").await.unwrap().is_none());
    // All sessions of a node that leaves are free.
    save(&a.space("t", "other").await.unwrap(), &[("f", b"2")]).await;
    a.ledger().unwrap().leave().await.unwrap();
    assert_eq!(content(&b.space("t", "other").await.unwrap(), "f"), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_on_this_disk_before_goes_into_the_ledger() {
    let world = World::new();
    let (one, two) = (TempDir::new_in(MEMORY).unwrap(), TempDir::new_in(MEMORY).unwrap());
    {
        let store = Arc::new(once_free(one.path(), OPTIONS));
        save(&store.space("t", "s").await.unwrap(), &[("a/f", b"old"), ("big", &[b'x'; 300_000])]).await;
    }
    let a = world.store(one.path(), "a").await;
    assert_eq!(a.stored().await.unwrap().len(), 1);
    assert_eq!(content(&a.find("t", "s").await.unwrap().unwrap(), "a/f"), "old");
    a.hand_over("t", "s", "a").await.unwrap();
    a.ledger().unwrap().leave().await.unwrap();
    let b = world.store(two.path(), "b").await;
    assert_eq!(content(&b.space("t", "s").await.unwrap(), "big").len(), 300_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_contents_that_no_file_names_are_swept_and_they_can_come_back() {
    let world = World::new();
    let root = TempDir::new_in(MEMORY).unwrap();
    let store = world.store(root.path(), "a").await;
    let space = store.space("t", "s").await.unwrap();
    save(&space, &[("f", b"kept"), ("g", b"gone"), ("h", b"kept")]).await;
    let ledger = store.ledger().unwrap();
    assert_eq!(ledger.sweep().await.unwrap(), 0);
    let mut batch = Batch::new(space.clone());
    batch.remove(path("f"));
    batch.remove(path("g"));
    batch.commit().await.unwrap();
    // The first marks, a later one deletes; the grace here is nothing.
    let swept = ledger.sweep().await.unwrap() + ledger.sweep().await.unwrap();
    assert_eq!(swept, 1);
    save(&space, &[("g", b"gone")]).await;
    assert_eq!(ledger.sweep().await.unwrap() + ledger.sweep().await.unwrap(), 0);
    drop(space);
    ledger.leave().await.unwrap();
    drop(store);
    let fresh = TempDir::new_in(MEMORY).unwrap();
    let store = world.store(fresh.path(), "b").await;
    let space = store.space("t", "s").await.unwrap();
    assert_eq!((content(&space, "g"), content(&space, "h")), ("gone".to_owned(), "kept".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_never_saved_leaves_no_row() {
    let world = World::new();
    let root = TempDir::new_in(MEMORY).unwrap();
    let store = world.store(root.path(), "a").await;
    let key = paddock_ledger::SessionKey::new("t", "s");
    let ledger = store.ledger().unwrap();
    drop(store.space("t", "s").await.unwrap());
    while ledger.owner_of(&key).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(store.find("t", "s").await.unwrap().is_none());
    assert_eq!(ledger.owner_of(&key).await.unwrap(), None, "a look makes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_while_a_server_is_away_and_all_goes_on_when_it_is_back() {
    let servers = SharedServers::start();
    let (url, objects) = servers.fresh();
    let objects = ObjectsConfig { url: objects, options: servers.aws() };
    let world = World { url, objects, terms: SHORT };
    let root = TempDir::new_in(MEMORY).unwrap();
    let store = world.store(root.path(), "a").await;
    let space = store.space("t", "s").await.unwrap();
    save(&space, &[("f", b"1")]).await;
    let put = async |content: &str| {
        let mut batch = Batch::new(space.clone());
        batch.file(file("f"));
        batch.write(content.as_bytes()).await.unwrap();
        batch.keep();
        batch.commit().await.map(drop)
    };
    servers.stop(servers::Kind::S3);
    let error = put("2").await.unwrap_err();
    assert!(is_away(&error, |error| matches!(error, LedgerError::ObjectsAway(_))), "{error}");
    assert!(error.to_string().contains("store.objects"), "{error}");
    assert_eq!(content(&space, "f"), "1");
    servers.resume(servers::Kind::S3);
    put("3").await.unwrap();

    servers.stop(servers::Kind::Postgres);
    let error = put("4").await.unwrap_err();
    assert!(is_away(&error, LedgerError::is_passing), "{error}");
    assert!(error.to_string().contains("store.url"), "{error}");
    servers.resume(servers::Kind::Postgres);
    while let Err(error) = put("5").await {
        assert!(is_away(&error, LedgerError::is_passing), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(content(&space, "f"), "5");
}
