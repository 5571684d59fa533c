//! A tenant that floods the daemon with everything it may, on a thread and connections of its own.
//!
//! The thread steps aside for everything else (nice 10): what a flood costs its own clients is not what is
//! measured, and they would be on another machine. It must never measure anything itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::client::Client;
use crate::data::{Payload, tar};

/// Sessions that the flood comes back to.
const SESSIONS: usize = 8;
const NICE: i32 = 10;
/// After a refusal: less than a client would wait, and not a loop that only loads this thread.
const AGAIN: Duration = Duration::from_millis(20);
/// Bytes of an upload, and of a download.
const LARGE: usize = 20_000_000;
/// The file that is downloaded.
const TO_GET: &str = "to-get";
/// Between two bytes of a connection that sends slowly.
const SLOWLY: Duration = Duration::from_secs(1);
/// How many bytes such a connection sends before another takes its place.
const BYTES: usize = 10;

const CODE: &str = "import time\nwhile time.process_time() < 0.3: pass\nopen('f', 'w').write('x' * 100_000)\n\
                    print('done')";
const COMMAND: &str = "timeout 5 yes 'a line of a flood, of some length, as a build writes them' | \
                       head -c 200000000";

/// The kinds of flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flood {
    /// Programs that compute and write, in a few sessions.
    Runs,
    /// Sessions that are made, run once and are closed.
    Sessions,
    /// Large files in.
    Uploads,
    /// Large files out.
    Downloads,
    /// Archives of 1,000 files.
    Tars,
    /// Commands that write as fast as they can.
    Commands,
    /// Calls that cost little.
    Cheap,
    /// Calls that are wrong.
    Invalid,
    /// Calls with a token that is none.
    BadTokens,
    /// Connections that send a byte now and then.
    Slow,
}

type Counts = Arc<Mutex<BTreeMap<Flood, (u32, u32)>>>;

/// A flood under way.
pub(crate) struct Flooding {
    over: CancellationToken,
    counts: Counts,
    thread: JoinHandle<std::result::Result<(), String>>,
}

impl Flooding {
    /// Begins a flood: so many connections of each kind.
    pub(crate) fn begin(addr: SocketAddr, token: &str, floods: &[(Flood, usize)]) -> Result<Self> {
        let (over, counts) = (CancellationToken::new(), Counts::default());
        counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(floods.iter().map(|(f, _)| (*f, (0, 0))));
        let (ended, counted) = (over.clone(), counts.clone());
        let (floods, token) = (floods.to_vec(), token.to_owned());
        let thread = std::thread::Builder::new().name("flood".to_owned()).spawn(move || {
            rustix::process::setpriority_process(None, NICE).map_err(|error| error.to_string())?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(async {
                for (flood, connections) in floods {
                    for place in 0..connections {
                        let one = Flooder { addr, token: token.clone(), flood, place, count: 0 };
                        tokio::spawn(one.go_on(counted.clone()));
                    }
                }
                ended.cancelled().await;
            });
            Ok(())
        })?;
        Ok(Self { over, counts, thread })
    }

    /// Ends it: all its connections are closed. What was served, and what was not, of each kind.
    pub(crate) fn end(self) -> Result<Vec<(String, u32, u32)>> {
        self.over.cancel();
        self.thread.join().map_err(|_| "the flood failed")??;
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(counts.iter().map(|(flood, (done, refused))| (format!("{flood:?}"), *done, *refused)).collect())
    }
}

/// One connection of a flood.
struct Flooder {
    addr: SocketAddr,
    token: String,
    flood: Flood,
    place: usize,
    count: u64,
}

impl Flooder {
    async fn go_on(mut self, counts: Counts) {
        let archive = match self.flood {
            Flood::Tars => tar(&Payload::Many.content(), 0).await.unwrap_or_default(),
            Flood::Uploads => Bytes::from(vec![b'u'; LARGE]),
            Flood::Runs
            | Flood::Sessions
            | Flood::Downloads
            | Flood::Commands
            | Flood::Cheap
            | Flood::Invalid
            | Flood::BadTokens
            | Flood::Slow => Bytes::new(),
        };
        let mut client = None;
        loop {
            if client.is_none() {
                let token = if self.flood == Flood::BadTokens { "no-token" } else { &self.token };
                client = Client::new(self.addr, token).await.ok();
            }
            let done = match &mut client {
                Some(client) => self.once(client, &archive).await.is_ok(),
                None => false,
            };
            {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                let (served, refused) = counts.entry(self.flood).or_default();
                *(if done { served } else { refused }) += 1;
            }
            if !done {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    async fn once(&mut self, client: &mut Client, archive: &Bytes) -> Result<()> {
        self.count += 1;
        let session = session(self.place);
        match self.flood {
            Flood::Runs => {
                client.run("python", &session, CODE, "done\n").await?;
            }
            Flood::Sessions => {
                let session = format!("bench-flood-new-{}-{}", self.place, self.count);
                client.run("python", &session, "print('hi')", "hi\n").await?;
                let arguments = json!({ "session_id": session, "delete_files": true });
                client.call("close_session", arguments).await?;
            }
            Flood::Uploads => {
                client.put(&session, Some("large"), archive.clone()).await?;
            }
            Flood::Downloads => {
                client.get(&format!("/sessions/{session}/files/{TO_GET}")).await?;
            }
            Flood::Tars => {
                client.put(&session, None, archive.clone()).await?;
            }
            Flood::Commands => {
                let arguments = json!({ "command": COMMAND, "session_id": session });
                client.call("execute_code_async", arguments).await?;
            }
            Flood::Cheap | Flood::BadTokens => {
                client.get("/status").await?;
            }
            Flood::Invalid => {
                client.call("no_such_tool", json!({ "nothing": [1, 2, { "of": "it" }] })).await?;
            }
            Flood::Slow => self.slowly().await?,
        }
        Ok(())
    }

    /// A request whose body comes byte by byte, until the daemon has enough of it, or for ten of them.
    async fn slowly(&self) -> Result<()> {
        let mut stream = TcpStream::connect(self.addr).await?;
        let Self { addr, token, .. } = self;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await?;
        for _ in 0..BYTES {
            tokio::time::sleep(SLOWLY).await;
            stream.write_all(b" ").await?;
        }
        Ok(())
    }
}

fn session(place: usize) -> String {
    format!("bench-flood-{}", place % SESSIONS)
}

impl Flood {
    /// Puts the files that these floods download. Uploads of the flood itself may take longer than it lasts.
    pub(crate) async fn prepare(client: &mut Client, floods: &[(Self, usize)]) -> Result<()> {
        let downloads = floods.iter().filter(|(flood, _)| *flood == Self::Downloads);
        for place in downloads.flat_map(|(_, connections)| 0..SESSIONS.min(*connections)) {
            client.put(&session(place), Some(TO_GET), Bytes::from(vec![b'd'; LARGE])).await?;
        }
        Ok(())
    }

    /// Closes the sessions that a flood comes back to, with their files and commands.
    pub(crate) async fn clear_up(client: &mut Client) {
        for place in 0..SESSIONS {
            let arguments = json!({ "session_id": session(place), "delete_files": true });
            // Not every flood came to each of them.
            let _ = client.call("close_session", arguments).await;
        }
    }
}
