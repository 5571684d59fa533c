//! Questions as programs write them, and as they must not.

use proptest::prelude::*;

use super::*;

/// A question for `name`, whose labels are taken as they are.
fn question(labels: &[&[u8]], kind: u16, class: u16) -> Vec<u8> {
    let mut message = vec![0xAB, 0xCD, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        message.push(u8::try_from(label.len()).expect("short"));
        message.extend_from_slice(label);
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend(class.to_be_bytes());
    message
}

fn code(refused: Result<Query<'_>, NoQuery>) -> u8 {
    match refused {
        Err(NoQuery::Refused(message)) => message[3] & 15,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_question_is_read_and_repeated_as_it_was_written() {
    let message = question(&[b"Api", b"GitHub", b"com"], 1, 1);
    let query = Query::read(&message).expect("a question");
    assert_eq!(query.name.as_deref(), Some("api.github.com"));
    assert_eq!(query.wants, RecordType::Address);
    let answer = query.answer(Answer::Address(Ipv4Addr::new(127, 64, 0, 1)));
    let mut wanted = vec![0xAB, 0xCD, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    wanted.extend_from_slice(&message[HEADER..]);
    wanted.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 64, 0, 1]);
    assert_eq!(answer, wanted);
}

#[test]
fn what_is_said_has_its_code_and_no_record_but_the_one_that_is_asked_for() {
    let message = question(&[b"a"], 28, 1);
    let query = Query::read(&message).expect("a question");
    assert_eq!(query.wants, RecordType::Other);
    for (answer, code, records) in [
        (Answer::Nothing, 0, 0),
        (Answer::NoName, 3, 0),
        (Answer::Failure, 2, 0),
        (Answer::Pointer("a.example"), 0, 1),
    ] {
        let message = query.answer(answer);
        assert_eq!((message[3] & 15, message[7]), (code, records), "{answer:?}");
    }
    let pointer = query.answer(Answer::Pointer("a.example"));
    assert!(pointer.ends_with(&[0, 11, 1, b'a', 7, b'e', b'x', b'a', b'm', b'p', b'l', b'e', 0]));
}

#[test]
fn types_that_have_no_record_are_questions_all_the_same() {
    for (kind, wants) in [
        (1, RecordType::Address),
        (255, RecordType::Address),
        (12, RecordType::Pointer),
        (28, RecordType::Other),
        (65, RecordType::Other),
        (33, RecordType::Other),
        (15, RecordType::Other),
    ] {
        assert_eq!(Query::read(&question(&[b"x"], kind, 1)).expect("a question").wants, wants, "{kind}");
    }
}

#[test]
fn a_name_with_other_bytes_is_no_name_of_a_host() {
    for label in [&b"a\0b"[..], b"a b", b"a.b", b"*", b"caf\xc3\xa9", b"a/b", b"a\\", b"\xff", b"a@b", b"\n"]
    {
        let message = question(&[b"x", label, b"com"], 1, 1);
        assert_eq!(Query::read(&message).expect("a question").name, None, "{label:?}");
    }
    assert_eq!(Query::read(&question(&[], 1, 1)).expect("a question").name, None, "the root");
    for label in [&b"_srv"[..], b"xn--caf-dma", b"0-9", &[b'a'; 63]] {
        assert!(Query::read(&question(&[label], 1, 1)).expect("a question").name.is_some());
    }
}

#[test]
fn what_asks_nothing_that_can_be_answered_is_refused_or_ignored() {
    let good = question(&[b"a", b"com"], 1, 1);
    let with = |change: fn(&mut Vec<u8>)| {
        let mut message = good.clone();
        change(&mut message);
        message
    };
    assert_eq!(Query::read(&[]), Err(NoQuery::Ignored));
    assert_eq!(Query::read(&[1, 2, 3]), Err(NoQuery::Ignored));
    assert_eq!(Query::read(&with(|m| m[2] |= 0x80)), Err(NoQuery::Ignored), "an answer");
    assert_eq!(code(Query::read(&with(|m| m[2] |= 0x28))), 4, "an update");
    assert_eq!(code(Query::read(&with(|m| m[2] |= 0x02))), 1, "cut off");
    assert_eq!(code(Query::read(&with(|m| m[5] = 0))), 1, "no question");
    assert_eq!(code(Query::read(&with(|m| m[5] = 2))), 1, "two questions");
    assert_eq!(code(Query::read(&with(|m| m[7] = 1))), 1, "an answer in a question");
    assert_eq!(code(Query::read(&good[..HEADER])), 1, "nothing behind the header");
    assert_eq!(code(Query::read(&good[..good.len() - 1])), 1, "half a question");
    assert_eq!(code(Query::read(&with(|m| m[12] = 0xC0))), 1, "a pointer");
    assert_eq!(code(Query::read(&with(|m| m[12] = 0x40))), 1, "a label of another kind");
    assert_eq!(code(Query::read(&question(&[b"a"], 1, 3))), 4, "another class");
    let long = [b'a'; 63];
    assert!(Query::read(&question(&[&long, &long, &long, &long[..61]], 1, 1)).is_ok(), "255 bytes");
    assert_eq!(code(Query::read(&question(&[&long, &long, &long, &long[..62]], 1, 1))), 1, "256 bytes");
    // EDNS, and whatever else comes behind the question.
    let edns = with(|m| {
        m[11] = 1;
        m.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    });
    assert_eq!(Query::read(&edns).expect("a question").question, &good[HEADER..]);
}

#[test]
fn an_address_is_read_backwards() {
    assert_eq!(reversed("4.3.64.127.in-addr.arpa"), Some(Ipv4Addr::new(127, 64, 3, 4)));
    for name in [
        "in-addr.arpa",
        "3.64.127.in-addr.arpa",
        "5.4.3.64.127.in-addr.arpa",
        "04.3.64.127.in-addr.arpa",
        "256.3.64.127.in-addr.arpa",
        "+4.3.64.127.in-addr.arpa",
        "4.3.64.127.ip6.arpa",
        "x",
    ] {
        assert_eq!(reversed(name), None, "{name}");
    }
}

#[test]
fn localhost_and_what_is_below_it_is_this_machine() {
    assert!(is_localhost("localhost") && is_localhost("a.localhost"));
    assert!(!is_localhost("notlocalhost") && !is_localhost("localhost.com") && !is_localhost(""));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic_and_are_never_repeated_beyond_the_question(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        if let Ok(query) = Query::read(&bytes) {
            let answer = query.answer(Answer::NoName);
            prop_assert!(answer.len() <= HEADER + MAX_NAME + 4);
            prop_assert_eq!(&answer[HEADER..], &bytes[HEADER..answer.len()]);
        }
    }

    /// By a reader that shares nothing with the one that is tested.
    #[test]
    fn a_name_is_read_as_it_was_written(labels in proptest::collection::vec("[a-z0-9_-]{1,63}", 1..4)) {
        let parts: Vec<&[u8]> = labels.iter().map(String::as_bytes).collect();
        let message = question(&parts, 1, 1);
        let name = Query::read(&message).expect("a question").name;
        prop_assert_eq!(name, Some(labels.join(".")));
    }
}
