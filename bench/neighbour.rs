//! What a tenant waits for while another one floods the daemon: a warm run, a new session, a file in and a
//! file out, beside floods of one kind after the other, and at last beside all of them; and before each of
//! these alone, since a machine is not as fast in one minute as in another. It has a daemon of its own, with
//! the defaults of a real one; both tenants have a token and no limit.
//!
//! Everything that the quiet tenant asks for must be served, and right: the first refusal ends the
//! measurement. It must never count a flood that did nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::process::Command;

use crate::Result;
use crate::client::Client;
use crate::flooder::{Flood, Flooding};
use crate::host::{TICKS, busy};
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLES: [&str; 4] = [
    "Beside a tenant that floods: a warm run",
    "Beside a tenant that floods: a new session",
    "Beside a tenant that floods: a file in",
    "Beside a tenant that floods: a file out",
];
pub(crate) const ALONE: &str = "alone";
pub(crate) const EVERYTHING: &str = "beside everything at once";

/// The name of the daemon's folder.
const NAME: &str = "neighbour";
/// The defaults, but for what belongs to this run.
const CONFIG: &str = r#"
http.addr = "127.0.0.1:0"
pool = { uids = "33000-33999" }
runners = { python = "paddock-runner-python" }
"#;

/// How long the quiet tenant is measured beside each flood, and alone before that: long enough for the twenty
/// new sessions without which no p95 is told, on a slow machine too.
const BESIDE: Duration = Duration::from_secs(40);
const BEFORE: Duration = Duration::from_secs(30);
/// Between two of its calls: somebody who works, and thinks.
const REST: Duration = Duration::from_millis(40);
/// Warm runs in a round, beside files in and as many out.
const RUNS: usize = 4;
const FILES: usize = 2;
/// Rounds with one new session. The engine computes for a quarter of a second for each: with one a round,
/// that alone would be most of the tenant's part of two processors.
const ROUNDS: u32 = 4;
/// How often the quiet tenant is measured beside everything, and alone before each time: of 200 files the p95
/// is the tenth slowest, which a second of the disk decides.
const TURNS: usize = 2;
/// Its file.
const FILE: usize = 100_000;
/// For a flood to be at its height before anything is measured.
const RISE: Duration = Duration::from_secs(3);
/// For what a flood left behind to be removed, and until the quiet tenant counts as away: each flood begins
/// alone, and so with as much as it likes.
const EBB: Duration = Duration::from_secs(6);
/// For a new token to be taken.
const TAKEN: Duration = Duration::from_secs(5);

/// One situation: its row, and the connections of each kind of flood.
type Situation = (&'static str, &'static [(Flood, usize)]);

const SITUATIONS: [Situation; 6] = [
    ("beside 64 that run code", &[(Flood::Runs, 64)]),
    ("beside 32 that make sessions", &[(Flood::Sessions, 32)]),
    ("beside 24 that move files", &[(Flood::Uploads, 8), (Flood::Downloads, 8), (Flood::Tars, 8)]),
    ("beside 32 whose commands write", &[(Flood::Commands, 32)]),
    (
        "beside 160 that only ask",
        &[(Flood::Cheap, 32), (Flood::Invalid, 32), (Flood::BadTokens, 32), (Flood::Slow, 64)],
    ),
    (
        EVERYTHING,
        &[
            (Flood::Runs, 24),
            (Flood::Sessions, 12),
            (Flood::Uploads, 4),
            (Flood::Downloads, 4),
            (Flood::Tars, 4),
            (Flood::Commands, 8),
            (Flood::Cheap, 4),
            (Flood::Invalid, 2),
            (Flood::BadTokens, 2),
            (Flood::Slow, 32),
        ],
    ),
];

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let store = setup.dir.path().join(NAME).join("store");
    let (daemon, client) = setup.other(NAME, CONFIG).await?;
    let addr = daemon.addr;
    let token = add_token(&store).await?;
    let mut other = Client::new(addr, &token).await?;
    let until = Instant::now() + TAKEN;
    while other.get("/status").await.is_err() {
        if Instant::now() > until {
            return Err("the token of the flood was not taken".into());
        }
        tokio::time::sleep(REST).await;
    }
    let mut quiet = Quiet { client, count: 0, file: Bytes::from(vec![b'q'; FILE]) };
    quiet.round(&mut Default::default()).await?;
    let only = std::env::var("PADDOCK_BENCH_SITUATION").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    if !SITUATIONS.iter().any(|(name, _)| wanted(name)) {
        return Err(format!(
            "PADDOCK_BENCH_SITUATION={}: no situation has that name",
            only.unwrap_or_default()
        )
        .into());
    }
    let mut alone = Measured::default();
    let mut beside: Vec<(&str, Measured)> = Vec::new();
    let turns = |situation: Situation| {
        std::iter::repeat_n(situation, if situation.0 == EVERYTHING { TURNS } else { 1 })
    };
    for (name, floods) in SITUATIONS.into_iter().filter(|(name, _)| wanted(name)).flat_map(turns) {
        quiet.work(BEFORE, &mut alone).await.map_err(|why| format!("{ALONE}: {why}"))?;
        Flood::prepare(&mut other, floods).await?;
        tokio::time::sleep(EBB).await;
        let flooding = Flooding::begin(addr, &token, floods)?;
        tokio::time::sleep(RISE).await;
        if beside.last().is_none_or(|(last, _)| *last != name) {
            beside.push((name, Measured::default()));
        }
        if let Some((_, measured)) = beside.last_mut() {
            quiet.work(BESIDE, measured).await.map_err(|why| format!("{name}: {why}"))?;
        }
        let counts = flooding.end()?;
        expect_flood(name, &counts)?;
        if let Some((_, measured)) = beside.last_mut() {
            measured.count(counts);
        }
        Flood::clear_up(&mut other).await;
        tokio::time::sleep(EBB).await;
    }
    for (name, measured) in [(ALONE, alone)].into_iter().chain(beside) {
        measured.report(name, report);
    }
    setup.end(NAME).await
}

/// Ends the measurement if a flood did nothing.
fn expect_flood(name: &str, counts: &[(String, u32, u32)]) -> Result<()> {
    // Of several kinds, the daemon decides what it serves of each. But it has a file for each download.
    let is_nothing = |(kind, done, refused): &(String, u32, u32)| match kind == "Downloads" {
        true => *done == 0,
        false => done + refused == 0,
    };
    let downloads = counts.iter().find(|(kind, ..)| kind == "Downloads");
    if counts.iter().all(is_nothing) || downloads.is_some_and(is_nothing) {
        return Err(format!("{name}: nothing came of it").into());
    }
    Ok(())
}

/// What the quiet tenant waited for in one situation.
#[derive(Default)]
struct Measured {
    /// A warm run, a new session, a file in, a file out.
    times: [Times; 4],
    /// How long it worked.
    took: Duration,
    /// Seconds of all processors that computed meanwhile.
    computed: f64,
    /// Of each kind of flood, what was served, and what was refused or broken off.
    floods: BTreeMap<String, (u32, u32)>,
}

impl Measured {
    fn count(&mut self, counts: Vec<(String, u32, u32)>) {
        for (kind, done, refused) in counts {
            let all = self.floods.entry(kind).or_default();
            *all = (all.0 + done, all.1 + refused);
        }
    }

    fn report(self, name: &str, report: &mut Measurements) {
        for (title, times) in TITLES.into_iter().zip(self.times) {
            report.block(title).line(name, times, None);
        }
        let block = report.block(TITLES[0]);
        for (kind, (done, refused)) in self.floods {
            block.fact(format!("{name}: {kind}, served"), f64::from(done), "");
            block.fact(format!("{name}: {kind}, refused or broken off"), f64::from(refused), "");
        }
        let computed = self.computed / self.took.as_secs_f64();
        let what = format!("{name}: processors of the machine that computed");
        block.fact(what, computed, "");
    }
}

/// A second tenant, as an operator adds it.
async fn add_token(store: &Path) -> Result<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
    command.args(["token", "add", "flood", "--store"]).arg(store).env_clear();
    let added = command.output().await?;
    if !added.status.success() {
        return Err(format!("no token: {}", String::from_utf8_lossy(&added.stderr)).into());
    }
    Ok(String::from_utf8(added.stdout)?.trim().to_owned())
}

/// The tenant that works beside the flood.
struct Quiet<'a> {
    client: &'a mut Client,
    count: u32,
    file: Bytes,
}

impl Quiet<'_> {
    const SESSION: &'static str = "bench-quiet";

    /// It works for so long.
    async fn work(&mut self, time: Duration, measured: &mut Measured) -> Result<()> {
        let (begun, before) = (Instant::now(), busy()?);
        while begun.elapsed() < time {
            self.round(&mut measured.times).await?;
        }
        measured.took += begun.elapsed();
        measured.computed += (busy()? - before) / TICKS;
        Ok(())
    }

    /// Its calls, with a rest before each.
    async fn round(&mut self, [runs, sessions, files_in, files_out]: &mut [Times; 4]) -> Result<()> {
        let Self { client, count, file } = self;
        for _ in 0..RUNS {
            tokio::time::sleep(REST).await;
            let run = client.run(PYTHON.language, Self::SESSION, PYTHON.code, PYTHON.prints);
            runs.record(run.await?.1)?;
        }
        for _ in 0..FILES {
            tokio::time::sleep(REST).await;
            files_in.record(client.put(Self::SESSION, Some("file"), file.clone()).await?)?;
            tokio::time::sleep(REST).await;
            let (bytes, taken) = client.get(&format!("/sessions/{}/files/file", Self::SESSION)).await?;
            if bytes != *file {
                return Err("another file came out".into());
            }
            files_out.record(taken)?;
        }
        *count += 1;
        if !count.is_multiple_of(ROUNDS) {
            return Ok(());
        }
        tokio::time::sleep(REST).await;
        let session = format!("{}-{count}", Self::SESSION);
        sessions.record(client.run(PYTHON.language, &session, PYTHON.code, PYTHON.prints).await?.1)?;
        let arguments = serde_json::json!({ "session_id": session, "delete_files": true });
        client.call("close_session", arguments).await?;
        Ok(())
    }
}
