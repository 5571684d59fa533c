//! Which connections get permits, and which are cut for them.

use futures_util::FutureExt as _;

use super::*;

fn peer(n: u8) -> Option<IpAddr> {
    Some(IpAddr::from([10, 0, 0, n]))
}

fn permits(regular: usize, spare: usize) -> Arc<ConnectionPermits> {
    ConnectionPermits::new(regular, spare, Metrics::default())
}

/// A connection that is not new.
fn take(permits: &Arc<ConnectionPermits>, n: u8) -> Arc<ConnectionPermit> {
    let permit = permits.try_take(peer(n), Instant::now()).unwrap();
    permit.change(|one| one.since -= FRESH);
    Arc::new(permit)
}

/// A connection that is being answered, and whose caller showed a token.
fn busy(permits: &Arc<ConnectionPermits>, n: u8) -> (Arc<ConnectionPermit>, RequestInProgress) {
    let permit = take(permits, n);
    let in_progress = permit.begin().unwrap();
    assert!(permit.set_known(&CancellationToken::new()));
    (permit, in_progress)
}

#[test]
fn a_connection_ends_with_its_token_whatever_it_is_doing() {
    let permits = permits(4, 2);
    let (revoked, good) = (CancellationToken::new(), CancellationToken::new());
    let (one, _busy) = busy(&permits, 1);
    let (other, _other_busy) = busy(&permits, 2);
    assert!(one.set_known(&revoked) && other.set_known(&good));
    permits.cut_ended();
    assert!(!one.cut.is_cancelled());
    revoked.cancel();
    permits.cut_ended();
    assert!(one.cut.is_cancelled() && !other.cut.is_cancelled());
    assert!(!other.set_known(&revoked), "a request that comes at that moment is told");
}

#[test]
fn a_silent_connection_is_cut_first_and_a_busy_one_never() {
    let permits = permits(4, 0);
    let (working, _in_progress) = busy(&permits, 1);
    let (rests, in_progress) = busy(&permits, 1);
    drop(in_progress);
    let stranger = take(&permits, 2);
    drop(stranger.begin());
    let silent = take(&permits, 3);
    let order = [&silent, &stranger, &rests];
    let mut newcomers = Vec::new();
    for (at, gone) in order.iter().enumerate() {
        newcomers.push(busy(&permits, 4));
        assert!(gone.cut.is_cancelled(), "{at}");
        assert!(order[at + 1..].iter().all(|later| !later.cut.is_cancelled()), "{at}");
        assert!(gone.begin().is_none(), "a request that comes now is not begun");
    }
    assert!(permits.try_take(peer(5), Instant::now()).is_none() && !working.cut.is_cancelled());
    newcomers.clear();
    assert_eq!(permits.open().regular, 1, "a connection that was cut is not counted twice");
}

#[test]
fn a_new_connection_is_not_cut_before_its_request_can_have_come() {
    let permits = permits(1, 1);
    let now = Instant::now();
    let first = permits.try_take(peer(1), now).unwrap();
    let spare = permits.try_take(peer(1), now).unwrap();
    assert!(permits.try_take(peer(2), now + FRESH / 2).is_none(), "it waits in the kernel's queue");
    assert!(!first.cut.is_cancelled() && !spare.cut.is_cancelled());
    let newcomer = permits.try_take(peer(2), now + FRESH);
    assert!(newcomer.is_some() && first.cut.is_cancelled() != spare.cut.is_cancelled());
}

#[test]
fn the_oldest_connection_of_the_peer_with_most_of_them_is_cut() {
    let permits = permits(5, 0);
    let now = Instant::now();
    let later = |n: u32| now + Duration::from_secs(n.into());
    let held: Vec<_> = [1, 2, 2, 2, 3]
        .into_iter()
        .zip(0..)
        .map(|(n, at)| permits.try_take(peer(n), later(at)).unwrap())
        .collect();
    let _newcomer = permits.try_take(peer(4), later(9)).unwrap();
    let cut: Vec<_> = held.iter().map(|permit| permit.cut.is_cancelled()).collect();
    assert_eq!(cut, [false, true, false, false, false]);
}

#[test]
fn a_stranger_may_be_cut_after_a_short_time_and_a_known_caller_not() {
    let permits = permits(2, 0);
    let (known, _in_progress) = busy(&permits, 1);
    let stranger = take(&permits, 2);
    let _begun = stranger.begin().unwrap();
    let now = Instant::now();
    assert!(permits.try_take(peer(3), now).is_none());
    let newcomer = permits.try_take(peer(3), now + STRANGER);
    assert!(newcomer.is_some() && stranger.cut.is_cancelled() && !known.cut.is_cancelled());
}

#[tokio::test]
async fn a_request_on_a_spare_permit_waits_for_a_regular_one() {
    let permits = permits(1, 4);
    let (permit, in_progress) = busy(&permits, 1);
    assert!(!permit.is_spare());
    let spare: Vec<_> = (0..4).map(|_| busy(&permits, 2)).collect();
    assert!(spare.iter().all(|(permit, _)| permit.is_spare()));
    assert!(permits.try_take(peer(3), Instant::now()).is_none());
    // Two may wait; the third is refused at once.
    let mut waiting: Vec<_> = spare[..2].iter().map(|(permit, _)| Box::pin(permit.promoted())).collect();
    for one in &mut waiting {
        assert!(one.now_or_never().is_none());
    }
    assert!(!spare[2].0.promoted().await);
    drop((in_progress, permit));
    assert!(waiting.remove(0).await);
    assert!(!spare[0].0.is_spare() && spare[1].0.is_spare());
    assert!((&mut waiting[0]).now_or_never().is_none(), "there was one permit");
}

#[tokio::test]
async fn a_new_connection_waits_until_there_is_a_permit() {
    let permits = permits(1, 0);
    let (permit, in_progress) = busy(&permits, 1);
    let mut coming = Box::pin(permits.take(peer(2)));
    assert!((&mut coming).now_or_never().is_none());
    drop(in_progress); // idle now: it may be cut
    let newcomer = coming.await;
    assert!(permit.cut.is_cancelled() && !newcomer.cut.is_cancelled());
}
