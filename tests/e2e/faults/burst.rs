//! A burst of calls: what it gets, what it takes from others, and SIGTERM in the middle of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::support::{Daemon, Ran, Store, TOKEN};

/// Sessions that go on working beside a burst.
const STEADY: usize = 8;
/// A refusal takes this long at most.
const AT_ONCE: f64 = 0.05;

/// Runs one after the other in each of the steady sessions, for so long; how many there were in a second.
async fn goodput(d: &Daemon, time: Duration) -> f64 {
    let begun = Instant::now();
    let working = (0..STEADY).map(|n| async move {
        let (session, mut runs) = (d.session(&format!("steady-{n}")), 0_u32);
        while begun.elapsed() < time {
            session.sh("echo steady").await.expect_stdout("steady\n");
            runs += 1;
        }
        runs
    });
    let runs: u32 = join_all(working).await.into_iter().sum();
    f64::from(runs) / begun.elapsed().as_secs_f64()
}

/// So many calls at once, each on a connection of its own, on which it is sent as soon as there is one: the
/// answer of each, if it got one, and how long it took. What these clients cost is not the daemon's: their
/// thread steps aside for everything else.
async fn burst(address: SocketAddr, calls: u64) -> Vec<(Option<Value>, Duration)> {
    let request = |n: u64| {
        let arguments = json!({ "command": "echo never", "session_id": format!("burst-{n}") });
        let params = json!({ "name": "execute_code", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params }).to_string();
        let length = call.len();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\
             Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n\
             {call}"
        )
    };
    let requests: Vec<String> = (0..calls).map(request).collect();
    let (done, answers) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        rustix::process::setpriority_process(None, 10).expect("a lower priority");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sent = requests.into_iter().map(|request| {
            let begun = Instant::now();
            let mut stream = std::net::TcpStream::connect(address).expect("a connection");
            let sent = stream.write_all(request.as_bytes()).and_then(|()| stream.set_nonblocking(true));
            (sent.map(|()| stream), begun)
        });
        let sent: Vec<_> = sent.collect();
        let all = sent.into_iter().map(|(stream, begun)| async move {
            let mut answer = String::new();
            let answered = match stream.and_then(tokio::net::TcpStream::from_std) {
                Ok(mut stream) => stream.read_to_string(&mut answer).await.is_ok(),
                Err(_) => false,
            };
            // Its body is one chunk.
            let body = answer.find('{').zip(answer.rfind('}')).map(|(from, to)| &answer[from..=to]);
            let document = body.and_then(|body| serde_json::from_str(body).ok());
            (document.filter(|_| answered), begun.elapsed())
        });
        let _ = done.send(runtime.expect("a runtime").block_on(async { join_all(all).await }));
    });
    answers.await.expect("the answers")
}

/// The share of the calls of a tool that the daemon answered in time, by its own clock.
async fn in_time(d: &Daemon, tool: &str) -> f64 {
    let text = d.request("GET", "/metrics").send().await.expect(200).text();
    let figure = |name: &str| {
        let name = format!("paddock_tool_call_duration_seconds_{name}");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("a figure");
        line.trim().parse::<f64>().expect("a number")
    };
    let buckets = figure(&format!("bucket{{tool=\"{tool}\",le=\"{AT_ONCE}\"}}"));
    buckets / figure(&format!("count{{tool=\"{tool}\"}}"))
}

/// `BURST_CALLS` at once, which find no place, and `BURST_SECONDS` of the others' work. With `BURST_STRICT`,
/// for a release on a machine that does nothing else, the figures count; otherwise only that every call is
/// refused as it must be, and that the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_refused_at_once_and_leaves_the_rest_to_the_others() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (calls, seconds) = (number("BURST_CALLS", 400), number("BURST_SECONDS", 4));
    let time = Duration::from_secs(seconds);
    let setup = Daemon::with().set("sessions.max", i64::try_from(STEADY).expect("few"));
    let d = setup.set("sessions.when_full", "refuse").set("exec.runner", "sh").start().await;
    for n in 0..STEADY {
        d.session(&format!("steady-{n}")).sh("true").await.expect_success();
    }
    let before = goodput(&d, time).await;
    let (during, answers) = tokio::join!(goodput(&d, time), burst(d.addr, calls));
    let mut took: Vec<Duration> = Vec::new();
    for (answer, time) in answers {
        let Some(answer) = answer else { continue };
        // With more requests than it takes at one time, the daemon refuses before it looks at the call.
        if answer["error"] != "busy" {
            Ran::of(answer).expect_error("max_sessions");
        }
        took.push(time);
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100];
    let in_time = in_time(&d, "execute_code").await;
    eprintln!(
        "{calls} calls at once: {} refused, {:.1} % of them within {AT_ONCE} s by the daemon's clock; with \
         connecting, by this client's clock: median {:?}, p99 {:?}; {} had no place for a connection. \
         Goodput of {STEADY} others: {before:.0} runs a second before, {during:.0} in the {seconds} s from \
         the burst on ({:.0} %)",
        took.len(),
        in_time * 100.0,
        at(50),
        at(99),
        calls - took.len() as u64,
        during / before * 100.0
    );
    let strict = std::env::var_os("BURST_STRICT").is_some();
    assert!(during > 0.0 && !took.is_empty(), "{during} runs a second, {} refusals", took.len());
    assert!(!strict || in_time >= 0.99, "{in_time}");
    assert!(!strict || during >= before * 0.9, "{before} and {during}");
    d.stop().await;
}

const CALLS: usize = 400;
/// The signal comes after so many answers.
const BEFORE: usize = 20;

/// Refusals of a daemon that is busy or stops.
const REFUSALS: [&str; 4] = ["queue_full", "max_sessions", "engine_unavailable", "lost"];

#[tokio::test]
async fn sigterm_in_the_middle_of_a_burst_loses_nothing_that_was_answered() {
    let store = Store::new();
    let d = Daemon::with().store(&store).set("shutdown.drain", "3s").start().await;
    d.session("warm").sh("true").await.expect_success();
    let mut calls: FuturesUnordered<_> = (0..CALLS)
        .map(|n| {
            let s = d.session(&format!("s{}", n % 50));
            let name = format!("f{n}");
            let call = if n % 4 == 0 {
                s.sh(&format!("echo {n} > {name}"))
            } else {
                s.upload(&name, format!("{n}\n").as_bytes())
            };
            async move { (n, call.try_answer().await) }
        })
        .collect();
    let (mut saved, mut refused) = (Vec::new(), BTreeMap::new());
    let (mut cut, mut unanswered) = (Vec::new(), 0);
    let mut answers = 0;
    while let Some((n, answer)) = calls.next().await {
        answers += 1;
        if answers == BEFORE {
            d.terminate();
        }
        let Some(answer) = answer else {
            unanswered += 1;
            continue;
        };
        if answer.get("result").is_none() {
            // A daemon that stops refuses as the protocol does.
            *refused.entry(answer["error"]["code"].to_string()).or_insert(0) += 1;
            continue;
        }
        let ran = Ran::of(answer);
        match ran.document["error"].as_str() {
            // Its program ran longer than a daemon that stops waits, and was ended.
            None if ran.document["limit"] == "cancelled" => {
                assert!(ran.text("stderr").contains("shutting down"), "{}", ran.document);
                cut.push(format!("f{n}"));
            }
            None => {
                assert_eq!(ran.document["success"], true, "{}", ran.document);
                saved.push(n);
            }
            Some(code) => {
                assert!(REFUSALS.contains(&code), "{}", ran.document);
                *refused.entry(code.to_owned()).or_insert(0) += 1;
            }
        }
    }
    drop(calls);
    eprintln!("{} saved, {refused:?} refused, {cut:?} cut, {unanswered} without an answer", saved.len());
    assert!(saved.len() >= BEFORE && saved.len() < CALLS, "the signal came too late");
    d.log.line("stopped").await;
    drop(d);
    let d = Daemon::with().store(&store).start().await;
    for n in saved {
        let got = d.request("GET", &format!("/sessions/s{}/files/f{n}", n % 50)).send().await.expect(200);
        assert_eq!(got.text(), format!("{n}\n"));
    }
    // What was not answered happened as a whole, or not at all; a program that was ended may have made its
    // file and not written it yet.
    for n in 0..50 {
        let listed = d.session(&format!("s{n}")).tool("list_artifacts").await;
        for one in listed.document["artifacts"].as_array().into_iter().flatten() {
            let is_cut = cut.iter().any(|name| one["filename"] == name.as_str());
            assert!(is_cut || one["size_bytes"] != 0, "{one}");
        }
    }
    d.stop().await;
}
