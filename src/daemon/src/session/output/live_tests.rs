//! Followers that keep up, that do not, and that go; programs that wait for them, and that do not.

use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;

const OUT: OutputStream = OutputStream::Stdout;
const ERR: OutputStream = OutputStream::Stderr;

/// What a follower can read without waiting; whether the output has ended.
fn read(follower: &mut OutputFollower) -> (Vec<(Option<OutputStream>, String)>, bool) {
    let mut pieces = Vec::new();
    loop {
        match follower.next().now_or_never() {
            Some(Some(piece)) => pieces.push((piece.stream, piece.text)),
            Some(None) => return (pieces, true),
            None => return (pieces, false),
        }
    }
}

fn has_room(backlog: &OutputBacklog) -> bool {
    poll_fn(|context| backlog.poll_room(context)).now_or_never().is_some()
}

fn held(backlog: &OutputBacklog) -> usize {
    backlog.0.0.lock().pieces.iter().map(|(_, bytes)| bytes.len()).sum()
}

#[test]
fn streams_stay_apart_and_in_their_order() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossy);
    backlog.append(OUT, b"a");
    backlog.append(ERR, b"b\n");
    backlog.append(OUT, b"c");
    backlog.append(OUT, b"d");
    let expected = [(OUT, "a"), (ERR, "b\n"), (OUT, "cd")];
    let expected = expected.map(|(stream, text)| (Some(stream), text.to_owned()));
    assert_eq!(read(&mut follower), (expected.to_vec(), false));
    assert_eq!(held(&backlog), 0, "what was read is held");
}

#[test]
fn a_character_that_comes_in_parts_is_one() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossy);
    let mut all = String::new();
    for byte in "aä\u{1f40e}".as_bytes() {
        backlog.append(OUT, &[*byte]);
        backlog.append(ERR, b"x");
        all.extend(
            read(&mut follower).0.into_iter().filter(|(of, _)| *of == Some(OUT)).map(|(_, text)| text),
        );
    }
    backlog.append(OUT, b"\xff\xc3(");
    all.extend(read(&mut follower).0.into_iter().map(|(_, text)| text));
    assert_eq!(all, "aä\u{1f40e}\u{fffd}\u{fffd}(");
}

#[test]
fn a_character_that_is_never_finished_is_the_last_piece_of_its_stream() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossy);
    backlog.append(ERR, &"\u{20ac}".as_bytes()[..2]);
    backlog.append(OUT, b"a\xc3");
    let piece = |stream, text: &str| (Some(stream), text.to_owned());
    assert_eq!(read(&mut follower), (vec![piece(OUT, "a")], false), "the rest may still come");
    drop(backlog);
    let ends = vec![piece(OUT, "\u{fffd}"), piece(ERR, "\u{fffd}")];
    assert_eq!(read(&mut follower), (ends, true));
    assert_eq!(read(&mut follower), (Vec::new(), true), "once for each stream");
}

#[test]
fn a_slow_follower_loses_the_middle_and_is_told_how_much() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossy);
    backlog.append(OUT, b"first");
    assert_eq!(read(&mut follower).0, [(Some(OUT), "first".to_owned())]);
    for n in 0..3 {
        backlog.append(OUT, &[b'x'; HELD - 1]);
        backlog.append(ERR, &[b'0' + n]);
        assert!(held(&backlog) <= HELD && has_room(&backlog));
    }
    let (pieces, ended) = read(&mut follower);
    let missed = (None, format!("[{} bytes are not shown here]\n", 2 * HELD));
    let rest = (Some(OUT), "x".repeat(HELD - 1));
    assert_eq!((pieces, ended), (vec![missed, rest, (Some(ERR), "2".to_owned())], false));
}

#[test]
fn a_lossless_follower_is_waited_for_and_misses_nothing() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossless);
    backlog.append(OUT, &[b'x'; HELD - 1]);
    assert!(has_room(&backlog));
    backlog.append(OUT, b"x");
    assert!(!has_room(&backlog), "the program goes on");
    // What was under way still arrives.
    backlog.append(ERR, &[b'y'; FRAME]);
    assert_eq!(held(&backlog), HELD + FRAME);
    let (pieces, _) = read(&mut follower);
    assert_eq!(pieces, [(Some(OUT), "x".repeat(HELD)), (Some(ERR), "y".repeat(FRAME))]);
    assert!(has_room(&backlog));
}

#[test]
fn not_even_a_lossless_follower_is_held_for_without_bound() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossless);
    // The program's time is over, so nobody waits.
    for _ in 0..20 {
        backlog.append(OUT, &[b'x'; HELD]);
        assert!(held(&backlog) <= HELD + FRAME);
    }
    let missed = 20 * HELD - (HELD + FRAME);
    assert_eq!(read(&mut follower).0[0], (None, format!("[{missed} bytes are not shown here]\n")));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_waits_goes_on_when_its_follower_has_read_or_has_gone() {
    for goes in [false, true] {
        let backlog = OutputBacklog::default();
        let mut follower = backlog.follow(Pace::Lossless);
        backlog.append(OUT, &[b'x'; 2 * HELD]);
        let waiting = tokio::spawn({
            let backlog = backlog.clone();
            async move { poll_fn(|context| backlog.poll_room(context)).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        if goes {
            drop(follower);
        } else {
            assert!(follower.next().await.is_some());
        }
        tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("it is woken").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_waits_without_a_timer_and_hears_the_end_behind_the_last_byte() {
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossy);
    let following = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(piece) = follower.next().await {
            all.push(piece.text);
        }
        all
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    backlog.append(OUT, b"one");
    tokio::task::yield_now().await;
    backlog.append(OUT, b"two");
    let other = backlog.clone();
    drop(backlog);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!following.is_finished(), "another writer is there");
    other.append(ERR, b"three");
    drop(other);
    let all = tokio::time::timeout(Duration::from_secs(1), following).await.expect("the end").unwrap();
    assert_eq!(all, ["one", "two", "three"]);
}

#[test]
fn nothing_is_held_for_nobody() {
    let backlog = OutputBacklog::default();
    backlog.append(OUT, b"before");
    assert_eq!(held(&backlog), 0);
    let follower = backlog.follow(Pace::Lossless);
    backlog.append(OUT, &[b'x'; 2 * HELD]);
    assert!(held(&backlog) > 0 && !has_room(&backlog));
    drop(follower);
    assert!(held(&backlog) == 0 && has_room(&backlog));
    // A follower that comes late begins where the output is now.
    let mut late = backlog.follow(Pace::Lossy);
    backlog.append(ERR, b"now");
    assert_eq!(read(&mut late).0, [(Some(ERR), "now".to_owned())]);
}

#[test]
fn each_follower_has_its_own_position() {
    let backlog = OutputBacklog::default();
    let (mut quick, mut slow) = (backlog.follow(Pace::Lossy), backlog.follow(Pace::Lossy));
    for piece in ["a", "b", "c"] {
        backlog.append(OUT, piece.as_bytes());
        assert_eq!(read(&mut quick).0, [(Some(OUT), piece.to_owned())]);
    }
    assert_eq!(read(&mut slow).0, [(Some(OUT), "abc".to_owned())]);
    assert_eq!(held(&backlog), 0);
}

proptest! {
    /// However a program writes and a follower reads: each byte is read or told as missed, once and in its
    /// order.
    #[test]
    fn every_byte_is_read_or_told_as_missed(
        steps in proptest::collection::vec((any::<bool>(), 0_usize..40_000, any::<bool>()), 1..30),
        lossless in any::<bool>(),
    ) {
        let backlog = OutputBacklog::default();
        let pace = if lossless { Pace::Lossless } else { Pace::Lossy };
        let mut follower = backlog.follow(pace);
        let (mut wrote, mut position) = (Vec::new(), 0);
        let mut reading = |follower: &mut OutputFollower, wrote: &Vec<(OutputStream, u8)>| {
            for (stream, text) in read(follower).0 {
                match stream {
                    Some(stream) => for byte in text.bytes() {
                        assert_eq!(wrote[position], (stream, byte));
                        position += 1;
                    },
                    None => position += text[1..].split(' ').next().unwrap().parse::<usize>().unwrap(),
                }
            }
            position
        };
        for (err, length, reads) in steps {
            let stream = if err { ERR } else { OUT };
            if !lossless || has_room(&backlog) {
                let letter = |at| b'a' + u8::try_from((wrote.len() + at) % 26).unwrap();
                let bytes: Vec<u8> = (0..length).map(letter).collect();
                wrote.extend(bytes.iter().map(|byte| (stream, *byte)));
                backlog.append(stream, &bytes);
            }
            let most = if lossless { HELD + FRAME } else { HELD };
            prop_assert!(held(&backlog) <= most);
            if reads {
                prop_assert_eq!(reading(&mut follower, &wrote), wrote.len());
            }
        }
        drop(backlog);
        prop_assert_eq!(reading(&mut follower, &wrote), wrote.len());
        prop_assert!(read(&mut follower).1);
    }
}
