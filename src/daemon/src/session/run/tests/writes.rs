//! While a sink writes what a program wrote: what the agent may forget, and which piece is next.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use paddock_proto::OutputStream;
use tokio::time::{Instant, Sleep};

use super::*;

/// How long each write takes.
const WRITE: Duration = Duration::from_secs(1);

/// A sink on a slow disk.
#[derive(Default)]
struct SlowSink {
    writing: Mutex<Option<Pin<Box<Sleep>>>>,
    /// The most bytes that were being written at one time.
    most: usize,
    bytes: usize,
    unwritten: usize,
    has_ended: bool,
}

impl SlowSink {
    fn write(&mut self, bytes: usize) {
        let mut writing = self.writing.lock().unwrap();
        self.unwritten = if writing.is_some() { self.unwritten + bytes } else { bytes };
        self.most = self.most.max(self.unwritten);
        *writing = Some(Box::pin(tokio::time::sleep(WRITE)));
    }
}

impl OutputSink for SlowSink {
    fn resumed(&mut self, _: u64) {}

    fn take(&mut self, _: OutputStream, bytes: Bytes) {
        self.bytes += bytes.len();
        self.write(bytes.len());
    }

    fn poll_written(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut writing = self.writing.lock().unwrap();
        if let Some(sleep) = writing.as_mut() {
            ready!(sleep.as_mut().poll(context));
            *writing = None;
        }
        Poll::Ready(())
    }

    fn is_kept(&self) -> bool {
        self.writing.lock().unwrap().is_none()
    }

    fn ended(&mut self, _: &ReportedEnd, _: Duration) {
        self.has_ended = true;
        self.write(1);
    }
}

fn writing(pieces: &[usize]) -> FakeContainer {
    let pieces: Vec<_> =
        pieces.iter().map(|bytes| Step::Write(Channel::Stdout, vec![b'x'; *bytes].into())).collect();
    FakeContainer::scripted("c1", |script| {
        script.run = [vec![Step::UntilEof(Channel::Code)], pieces, vec![Step::Say(ended())]].concat();
    })
}

async fn run(pieces: &[usize]) -> (SlowSink, Duration) {
    let container = writing(pieces);
    let world = World::new(&[&container]).await;
    let mut sink = SlowSink::default();
    let begun = Instant::now();
    let cancel = CancellationToken::new();
    let report = world.execute(&code(), Control::end_only(&cancel), &mut sink).await.unwrap();
    assert_eq!(report.end, exited(0));
    assert_eq!(sink.bytes, pieces.iter().sum::<usize>());
    (sink, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn large_pieces_are_taken_one_by_one_each_when_the_one_before_is_written() {
    let (sink, took) = run(&[64 * 1024; 5]).await;
    assert_eq!(sink.most, 64 * 1024, "two large pieces at one time");
    assert!(took >= WRITE * 5, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn small_pieces_do_not_wait_for_a_write() {
    let (sink, took) = run(&[1000; 50]).await;
    assert!(sink.most > 1000 && took < WRITE * 10, "{} bytes at a time, {took:?}", sink.most);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_acknowledged_when_it_is_written() {
    let (sink, took) = run(&[]).await;
    assert!(sink.has_ended && took >= WRITE, "{took:?}");
}
