//! Signed links that were changed, one a line: `tests/hostile/links.jsonl`; and every link that differs from
//! a good one by one bit.

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rows;
use super::watch::{SECRET, Watch, bytes, expect_none};
use crate::support::{Daemon, Setup};

const CONTENT: &str = "0123456789";
const OTHER: &str = "of another file";

/// A request, in which `<SIG>`, `<EXPIRES>` and `<OTHER>` (the signature of another file) are those of good
/// links.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    path: String,
    method: Option<String>,
    #[serde(default)]
    headers: Map<String, Value>,
    status: Vec<u16>,
    /// The body, where there is one.
    body: Option<String>,
    /// With links that expire.
    #[serde(default)]
    expiring: bool,
}

struct Good {
    sig: String,
    expires: String,
    other: String,
}

impl Good {
    /// Two files, and the parts of their links.
    async fn of(d: &Daemon) -> Good {
        let s = d.session("s");
        let link = async |name: &str, content: &str| {
            let made = s.upload(name, content.as_bytes()).await.expect_success();
            made.document["file"]["url"].as_str().expect("a link").to_owned()
        };
        let (good, other) = (link("dir/a.csv", CONTENT).await, link("dir/b.csv", OTHER).await);
        let part = |link: &str, name: &str| {
            let (_, query) = link.split_once('?').expect("a query");
            query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        Good { sig: part(&good, "sig="), expires: part(&good, "expires="), other: part(&other, "sig=") }
    }
}

/// The status and the body of the answer to exactly these bytes as a target.
async fn ask(d: &Daemon, method: &str, target: &[u8], headers: &Map<String, Value>) -> (u16, String) {
    let mut head = [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"].concat();
    head.extend(format!("host: {}\r\nconnection: close\r\n", d.addr).bytes());
    for (name, value) in headers {
        head.extend(format!("{name}: {}\r\n", value.as_str().expect("text")).bytes());
    }
    head.extend(b"\r\n");
    let mut stream = TcpStream::connect(d.addr).await.expect("a connection");
    stream.write_all(&head).await.expect("a head");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let names = ["set-cookie", "content-disposition"];
    let count = |name: &&str| head.to_ascii_lowercase().matches(&format!("\r\n{name}:")).count();
    assert!(names.iter().map(count).all(|count| count <= 1), "{head}");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), body.to_owned())
}

fn setup(expiring: bool) -> Setup {
    let setup = Daemon::with().env("FILE_SECRET", SECRET);
    if expiring { setup.set("files.url_ttl", "1h") } else { setup }
}

#[tokio::test]
async fn links_that_were_changed_open_nothing() {
    let rows: Vec<Row> = rows("links.jsonl");
    let mut faults = Vec::new();
    for expiring in [false, true] {
        let d = setup(expiring).start().await;
        let good = Good::of(&d).await;
        let watch = Watch::over(&d).await;
        for row in rows.iter().filter(|row| row.expiring == expiring) {
            let fill = |text: &str| {
                let text = text.replace("<SIG>", &good.sig).replace("<OTHER>", &good.other);
                text.replace("<EXPIRES>", &good.expires).replace("<UPPER>", &good.sig.to_uppercase())
            };
            let target = bytes(&fill(&row.path));
            let (status, body) = ask(&d, row.method.as_deref().unwrap_or("GET"), &target, &row.headers).await;
            let fine = row.status.contains(&status) && row.body.as_ref().is_none_or(|text| *text == body);
            let attacked = if fine { Ok(()) } else { Err(format!("{status}: {body}")) };
            faults.extend(watch.judge((&row.id, &row.attempt), attacked).await);
        }
        watch.end().await;
        d.stop().await;
    }
    expect_none(&faults, rows.len());
}

/// Neither the path nor the conversation, the time or the signature can be changed by a bit.
#[tokio::test]
async fn a_link_with_one_bit_flipped_opens_nothing() {
    let d = setup(true).start().await;
    let good = Good::of(&d).await;
    let target = format!("/files/s/dir/a.csv?expires={}&sig={}", good.expires, good.sig);
    let (status, body) = ask(&d, "GET", target.as_bytes(), &Map::new()).await;
    assert_eq!((status, body.as_str()), (200, CONTENT), "the link itself is good: {target}");
    let flips = (0..target.len()).flat_map(|at| (0..8).map(move |bit| (at, bit)));
    for (at, bit) in flips {
        let mut flipped = target.clone().into_bytes();
        flipped[at] ^= 1 << bit;
        let (status, body) = ask(&d, "GET", &flipped, &Map::new()).await;
        let text = String::from_utf8_lossy(&flipped).into_owned();
        // Most are 403 until the peer is told to wait; some are no requests at all, or lead elsewhere.
        assert!(matches!(status, 400 | 401 | 403 | 404 | 405 | 429), "{status} for {text}");
        assert!(!body.contains(CONTENT) && !body.contains(OTHER), "{text}: {body}");
    }
    let (status, body) = ask(&d, "GET", target.as_bytes(), &Map::new()).await;
    assert_eq!((status, body.as_str()), (200, CONTENT), "the good link stays good");
    d.stop().await;
}
