//! The agent's runs over its link, without a daemon: input that comes while they run, their own limits, their
//! end on request, and several of them side by side.

use std::time::Duration;

use bytes::Bytes;
use paddock::link::{Incoming, Stream};
use paddock_proto::message::{Input, Limit, Outcome, RunEnd, RunLimits, RunSpec};
use paddock_proto::{Channel, Event, Request};
use tokio::join;

use crate::container::{Container, ended, spec};

const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// Reads until the output is this.
async fn until(stream: &Stream, wanted: &str) {
    let mut output = String::new();
    while output != wanted {
        match stream.next().await.expect("output") {
            Incoming::Event(Event::Begun | Event::Used { .. }) => {}
            Incoming::Data(_, bytes) => output.push_str(&String::from_utf8_lossy(&bytes)),
            other @ (Incoming::Event(_) | Incoming::End) => panic!("{other:?} after {output:?}"),
        }
    }
}

#[tokio::test]
async fn input_that_comes_during_a_run_is_read_at_once() {
    let container = Container::start().await;
    let open = |command| RunSpec { input: Input::Open, ..spec(command) };
    let stream = container.run(&open("while read -r line; do echo \"got $line\"; done; echo end"));
    stream.data(Channel::Stdin, Bytes::from_static(b"one\n")).await.expect("a line");
    until(&stream, "got one\n").await;
    stream.data(Channel::Stdin, Bytes::from_static(b"two\nthr")).await.expect("a line and a half");
    until(&stream, "got two\n").await;
    stream.data(Channel::Stdin, Bytes::from_static(b"ee\n")).await.expect("the rest");
    until(&stream, "got three\n").await;
    stream.eof(Channel::Stdin).await.expect("its end");
    let (output, end) = ended(&stream).await;
    assert_eq!((output.as_str(), end.outcome, end.limit), ("end\n", Outcome::Exited(0), None));

    // A lot of it, into a program that reads slower than it comes.
    let stream = container.run(&open("sleep 0.2; wc -c"));
    for _ in 0..40 {
        stream.data(Channel::Stdin, Bytes::from(vec![b'x'; 50_000])).await.expect("a piece");
    }
    stream.eof(Channel::Stdin).await.expect("its end");
    assert_eq!(ended(&stream).await.0.trim(), "2000000");

    // A program that closes its input, and a program that ends without reading any.
    let stream = container.run(&open("exec <&-; echo closed; sleep 0.2; echo end"));
    until(&stream, "closed\n").await;
    stream.data(Channel::Stdin, Bytes::from_static(b"for nobody")).await.expect("a piece");
    assert_eq!(ended(&stream).await.0, "end\n");
    // And no input at all.
    let stream = container.run(&spec("wc -c; echo end"));
    assert_eq!(ended(&stream).await.0, "0\nend\n");
    container.stop().await;
}

#[tokio::test]
async fn a_run_that_reads_nothing_can_be_ended_and_delays_nobody() {
    let container = Container::start().await;
    let deaf = RunSpec { input: Input::Open, ..spec("sleep 60") };
    let stream = container.run(&deaf);
    let flood = async {
        // More than it accepts: the rest waits until the run is over.
        let _ = stream.data(Channel::Stdin, Bytes::from(vec![b'x'; 2 << 20])).await;
    };
    let other = async {
        let beside = container.run(&spec("echo beside"));
        assert_eq!(ended(&beside).await.0, "beside\n");
        assert_eq!(container.end(&deaf.id, 0).await, Event::Ending);
    };
    let end = async {
        let (_, end) = ended(&stream).await;
        assert_eq!((end.outcome, end.limit), (Outcome::Signaled(9), Some(Limit::Cancelled)));
    };
    tokio::select! {
        ((), ()) = async { join!(other, end) } => {}
        () = async { flood.await; std::future::pending().await } => {}
    }
    container.stop().await;
}

#[tokio::test]
async fn a_run_that_is_told_to_end_has_exactly_its_grace_period() {
    let container = Container::start().await;
    let polite = spec("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done");
    let stream = container.run(&polite);
    until(&stream, "up\n").await;
    assert_eq!(container.end(&polite.id, 20_000).await, Event::Ending);
    let (output, end) = ended(&stream).await;
    // Its shell reports that the process it waited for was ended too.
    assert!(output.ends_with("bye\n"), "{output}");
    assert_eq!(end.outcome, Outcome::Exited(3));
    assert_eq!(end.limit, Some(Limit::Cancelled));

    let deaf = || {
        spec(
            "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 1000\" & echo up; while :; do sleep 0.05; done",
        )
    };
    let (patient, hurried) = (deaf(), deaf());
    let streams = [container.run(&patient), container.run(&hurried)];
    for stream in &streams {
        until(stream, "up\n").await;
    }
    assert_eq!(container.end(&patient.id, 400).await, Event::Ending);
    assert_eq!(container.end(&hurried.id, 60_000).await, Event::Ending);
    let (_, end) = ended(&streams[0]).await;
    assert_eq!((end.outcome, end.limit), (Outcome::Signaled(9), Some(Limit::Cancelled)));
    assert!(end.wall_us >= 400_000 && end.leftovers > 0 && end.survivors == 0, "{end:?}");
    // When it is told again, the shorter grace period applies.
    assert_eq!(container.end(&hurried.id, 0).await, Event::Ending);
    assert_eq!(ended(&streams[1]).await.1.outcome, Outcome::Signaled(9));
    assert!(matches!(container.end(&hurried.id, 0).await, Event::Failed { .. }), "it is over");
    assert!(matches!(container.end("unheard-of", 0).await, Event::Failed { .. }));
    container.stop().await;
}

#[tokio::test]
async fn each_run_has_its_own_limits() {
    let container = Container::start().await;
    let none = RunLimits::default();
    let beside = container.run(&spec("sleep 3; echo beside"));
    for (command, limits, limit, outcomes) in [
        (
            "while :; do :; done",
            RunLimits { cpu_seconds: Some(1), ..none },
            Limit::Cpu,
            [Outcome::Signaled(SIGXCPU), Outcome::Signaled(SIGXCPU)],
        ),
        (
            "head -c 3000000 /dev/zero > f; exit $?",
            RunLimits { file_size: Some(1_000_000), ..none },
            Limit::FileSize,
            [Outcome::Exited(153), Outcome::Signaled(SIGXFSZ)],
        ),
        (
            "perl -e '$x = \"a\" x 200_000_000; sleep 60'",
            RunLimits { memory: Some(100_000_000), ..none },
            Limit::Memory,
            [Outcome::Signaled(9), Outcome::Signaled(9)],
        ),
        (
            "for n in 1 2 3 4 5; do setsid sleep 60 & done; wait",
            RunLimits { processes: Some(3), ..none },
            Limit::Pids,
            [Outcome::Signaled(9), Outcome::Signaled(9)],
        ),
    ] {
        let stream = container.run(&RunSpec { limits, ..spec(command) });
        let (_, end) = ended(&stream).await;
        assert_eq!(end.limit, Some(limit), "{command}: {end:?}");
        assert!(outcomes.contains(&end.outcome), "{command}: {end:?}");
        assert!(end.survivors == 0 && end.wall_us < 10_000_000, "{command}: {end:?}");
    }
    assert_eq!(ended(&beside).await.0, "beside\n", "nothing of that was its affair");
    // Within its limits a run is like any other.
    let limits = RunLimits {
        cpu_seconds: Some(5),
        file_size: Some(5_000_000),
        memory: Some(1 << 30),
        processes: Some(20),
        disk: None,
    };
    let stream = container.run(&RunSpec { limits, ..spec("head -c 3000000 /dev/zero > f; wc -c < f") });
    let (output, end) = ended(&stream).await;
    assert_eq!((output.as_str(), end.outcome, end.limit), ("3000000\n", Outcome::Exited(0), None));
    container.stop().await;
}

#[tokio::test]
async fn runs_side_by_side_do_not_affect_each_other() {
    let container = Container::start().await;
    let commands: Vec<_> =
        (0..20).map(|n| format!("for i in $(seq 50); do echo {n}-$i; done; exit {n}")).collect();
    let streams: Vec<_> = commands.iter().map(|command| container.run(&spec(command))).collect();
    for (n, stream) in (0..).zip(&streams) {
        let (output, end) = ended(stream).await;
        let wanted: String = (1..=50).map(|i| format!("{n}-{i}\n")).collect();
        assert_eq!((output, end.outcome), (wanted, Outcome::Exited(n)));
    }
    // The process that one run leaves behind is killed, that of another run is not.
    let stays = container.run(&spec("setsid sleep 1.5 & wait; echo stayed"));
    let leaves = container.run(&spec("setsid sleep 1000 & echo gone"));
    let (output, end) = ended(&leaves).await;
    assert_eq!((output.as_str(), end.leftovers), ("gone\n", 1));
    let (output, end) = tokio::time::timeout(Duration::from_secs(20), ended(&stays)).await.expect("its end");
    assert_eq!((output.as_str(), end.outcome, end.leftovers), ("stayed\n", Outcome::Exited(0), 0));
    container.stop().await;
}

/// The end of a run, and the microseconds of the processors that `meter` told until then.
async fn metered(stream: &Stream, meter: &Stream) -> (u64, RunEnd) {
    let mut told = 0;
    loop {
        tokio::select! {
            used = meter.next() => match used.expect("a meter that goes on") {
                Incoming::Event(Event::Used { cpu_us }) => told += cpu_us,
                other @ (Incoming::Event(_) | Incoming::Data(..) | Incoming::End) => panic!("{other:?}"),
            },
            incoming = stream.next() => match incoming.expect("an end") {
                Incoming::Event(Event::Ended(end)) => {
                    stream.say(&Request::Commit).await.expect("an agent that hears that it was heard");
                    return (told, end);
                }
                Incoming::Event(Event::Begun) | Incoming::Data(..) => {}
                other @ (Incoming::Event(_) | Incoming::End) => panic!("{other:?}"),
            },
        }
    }
}

#[tokio::test]
async fn what_runs_use_of_the_processors_is_told_while_they_go_on_and_once() {
    let container = Container::start().await;
    let limits = RunLimits { cpu_seconds: Some(1), ..RunLimits::default() };
    let busy = || RunSpec { limits, ..spec("(while :; do :; done) & wait $!") };
    let meter = || container.link().request(&Request::Meter).expect("a stream");
    let one = meter();
    let (told, end) = metered(&container.run(&busy()), &one).await;
    assert!(told >= 500_000, "while it went on: {told} {end:?}");
    let all = told + end.metered_us;
    assert!((end.cpu_us..3_000_000).contains(&all), "of all processes: {told} {end:?}");
    // Two runs compute beside one that sleeps, and each meter tells a part of what all of them use.
    let (other, three) =
        (meter(), [container.run(&spec("sleep 5")), container.run(&busy()), container.run(&busy())]);
    let (mut all, mut ends) = (0, Vec::new());
    for (stream, meter) in three.iter().zip([&one, &other, &other]).rev() {
        let (told, end) = metered(stream, meter).await;
        all += told + end.metered_us;
        ends.push((told, end));
    }
    let known: u64 = ends.iter().map(|(_, end)| end.cpu_us).sum();
    assert!((known..5_000_000).contains(&all), "two seconds, once: {all} {ends:?}");
    drop((one, other));
    let quick = container.run(&spec("true"));
    let (_, end) = metered(&quick, &meter()).await;
    assert!((1..500_000).contains(&end.metered_us), "{end:?}");
    container.stop().await;
}
