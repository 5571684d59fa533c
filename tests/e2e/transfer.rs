//! A transfer of files into a container that breaks off: the daemon was killed while it sent them.

use bytes::Bytes;
use paddock::link::{Incoming, Stream};
use paddock_proto::message::{CollectRules, Entry, EntryKind, Outcome};
use paddock_proto::{Channel, Event, RelPath, Request};

use crate::container::{Container, ended, spec};

fn file(path: &str, size: u64) -> Entry {
    let path = RelPath::new(path).expect("a path");
    Entry { path, kind: EntryKind::File(size), mode: 0o644, mtime_ns: 1_000_000_000 }
}

/// Begins to send a file of 1,000 bytes, with this many of them.
async fn begin(container: &Container, path: &str, sent: usize) -> Stream {
    let stream = container.link().request(&Request::Apply).expect("a stream");
    stream.say(&Request::Put(file(path, 1000))).await.expect("said");
    stream.data(Channel::File, Bytes::from(vec![b'x'; sent])).await.expect("sent");
    stream
}

/// What a collection reports, without its end.
async fn collected(container: &Container) -> Vec<Event> {
    let stream = container.link().request(&Request::Collect(CollectRules::All)).expect("a stream");
    let mut events = Vec::new();
    loop {
        match stream.next().await.expect("an answer") {
            Incoming::Event(Event::Collected { .. }) => break,
            Incoming::Event(event) => events.push(event),
            Incoming::Data(..) => {}
            Incoming::End => panic!("it ended after {events:?}"),
        }
    }
    stream.say(&Request::Commit).await.expect("said");
    assert_eq!(stream.next().await.expect("its last word"), Incoming::End);
    events
}

#[tokio::test]
async fn a_part_of_a_file_is_never_taken_for_a_file_of_a_program() {
    let container = Container::start().await;
    // One that is new, and one that replaces another.
    let whole = begin(&container, "known", 1000).await;
    whole.close().await.expect("closed");
    assert_eq!(whole.next().await.expect("an answer"), Incoming::Event(Event::Applied));
    for path in ["new", "known"] {
        let broken = begin(&container, path, 600).await;
        // What was sent must have arrived before the transfer breaks off.
        let arrived = format!("until [ \"$(wc -c 2>/dev/null < {path})\" -eq 600 ]; do sleep 0.01; done");
        let (output, end) = ended(&container.run(&spec(&arrived))).await;
        assert_eq!(end.outcome, Outcome::Exited(0), "{output}");
        drop(broken);
    }
    // By its answer the agent has heard of the broken streams too.
    let base = container.link().request(&Request::Base).expect("a stream");
    while !matches!(base.next().await.expect("an answer"), Incoming::Event(Event::Collected { .. })) {}
    assert_eq!(collected(&container).await, [], "neither a part, nor a removal that no program made");
    container.stop().await;
}
