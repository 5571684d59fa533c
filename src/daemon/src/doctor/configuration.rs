//! The configuration as the daemon would use it: who may call, and whether the address is to be had.
//!
//! It must never listen: a daemon that starts in that moment would find its address taken.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpSocket;

use super::check::{Check, Checks, Group};
use crate::config::Loaded;
use crate::holder::{self, Held, Holder};

/// For whoever has the address to say what it is.
const ANSWER: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The file that it is from.
    pub(super) file: Option<String>,
    pub(super) warnings: Vec<String>,
    /// Tokens that let in.
    pub(super) tokens: usize,
    pub(super) addr: SocketAddr,
    pub(super) place: Place,
    /// The listener of the metrics, where there is one of its own.
    pub(super) metrics: Option<(SocketAddr, Place)>,
    pub(super) public_url: Option<String>,
    /// Whether that is this machine by its very name.
    pub(super) public_is_here: bool,
}

/// Whether the address can be listened at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// By the daemon that has the store.
    Ours(Holder),
    /// By a daemon that is well, and has another store.
    Neighbour(Option<Holder>),
    /// By somebody, while the daemon that has the store serves elsewhere.
    Beside(Holder),
    Taken(Option<Holder>),
    /// It is no address of this machine.
    Elsewhere,
    /// Not for this user.
    Denied,
    Unusable(String),
}

pub(super) fn look(file: Option<&Path>, loaded: &Loaded) -> Facts {
    let http = &loaded.config.http;
    Facts {
        file: file.map(|path| path.display().to_string()),
        warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
        tokens: loaded.config.auth.tokens.len(),
        addr: http.addr,
        place: place(http.addr, &loaded.config.store.root.join("lock")),
        metrics: loaded.config.metrics.addr.map(|addr| {
            let lock = loaded.config.store.root.join("lock");
            let same = addr.port() != 0
                && addr.port() == http.addr.port()
                && (addr.ip() == http.addr.ip()
                    || addr.ip().is_unspecified()
                    || http.addr.ip().is_unspecified());
            let place =
                if same { Place::Unusable("http.addr is there".to_owned()) } else { place(addr, &lock) };
            (addr, place)
        }),
        public_url: http.public_url.as_ref().map(|url| url.as_str().to_owned()),
        public_is_here: http.public_url.as_ref().is_some_and(|url| url.is_loopback()),
    }
}

fn place(addr: SocketAddr, lock: &Path) -> Place {
    let bound = bind(addr);
    let Err(error) = bound else { return Place::Free };
    let kind = error.kind();
    if kind == ErrorKind::AddrInUse {
        let listener = holder::of_address(addr);
        match (listener, holder::of_lock(lock)) {
            (Some(listener), Held::By(daemon)) if listener.pid == daemon.pid => Place::Ours(daemon),
            (_, Held::By(daemon)) => Place::Beside(daemon),
            (listener, _) if is_healthy(addr) => Place::Neighbour(listener),
            (listener, _) => Place::Taken(listener),
        }
    } else if kind == ErrorKind::AddrNotAvailable {
        Place::Elsewhere
    } else if kind == ErrorKind::PermissionDenied {
        Place::Denied
    } else {
        Place::Unusable(error.to_string())
    }
}

/// Whether a paddock answers there that is well. Anybody could say so: it is worth a word, and no trust.
fn is_healthy(addr: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&reached(addr), ANSWER)?;
        socket.set_read_timeout(Some(ANSWER))?;
        socket.set_write_timeout(Some(ANSWER))?;
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut said = Vec::new();
        socket.take(4096).read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    ask().is_ok_and(|said| said.starts_with("HTTP/1.1 200") && said.contains(r#"{"status":"healthy""#))
}

/// How a listener is reached from here.
fn reached(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// As the daemon binds, and no further: what is bound so, and does not listen, is in nobody's way.
fn bind(addr: SocketAddr) -> std::io::Result<()> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)
}

pub(super) fn judge(facts: &Facts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Configuration);
    let addr = facts.addr;
    match &facts.file {
        Some(file) => checks.ok("loads", format!("{file} is understood")),
        None => checks.ok("loads", "no file, only defaults, environment and flags; they are understood"),
    }
    for warning in &facts.warnings {
        let (found, advice) = warning.split_once(": ").unwrap_or((warning, "see config.example.toml"));
        if found == "there is no token" {
            let advice = "set auth.token (MCP_API_TOKEN=$(openssl rand -hex 32)), or auth.tokens, unless that is meant";
            checks.warn("tokens", warning, advice);
        } else if found.starts_with("http.public_url is not set") {
            let advice = "set http.public_url (PUBLIC_BASE_URL) to what clients reach this daemon by";
            checks.warn("public_url", warning, advice);
        } else {
            checks.warn("warning", warning, advice);
        }
    }
    if facts.tokens > 0 {
        let s = if facts.tokens == 1 { "" } else { "s" };
        checks.ok("tokens", format!("{} token{s} for whoever reaches {addr}", facts.tokens));
    }
    const OTHER: &str = "choose another by http.addr (MCP_HTTP_ADDR, --addr), such as 127.0.0.1:8081";
    place_of("address", addr, &facts.place, OTHER, &mut checks);
    if let Some((addr, place)) = &facts.metrics {
        const OTHER: &str = "choose another by metrics.addr, or none: metrics are at http.addr too";
        place_of("metrics address", *addr, place, OTHER, &mut checks);
    }
    match &facts.public_url {
        // The configuration warns of it.
        None if addr.ip().is_unspecified() => {}
        None => checks.ok("public_url", format!("links to files begin with http://{addr}")),
        Some(url) if url.starts_with("http://") && !facts.public_is_here => checks.warn(
            "public_url",
            format!("{url} is without TLS"),
            "tokens and files can be read on the way: put a reverse proxy with TLS in front, and set \
             http.public_url (PUBLIC_BASE_URL) to its https URL",
        ),
        Some(url) => checks.ok("public_url", format!("links to files begin with {url}")),
    }
    checks.done()
}

/// Whether one address is to be had; `other` says how to choose another.
fn place_of(name: &'static str, addr: SocketAddr, place: &Place, other: &str, checks: &mut Checks) {
    match place {
        Place::Free if addr.port() == 0 => checks.ok(name, format!("{addr}: a free port at each start")),
        Place::Free => checks.ok(name, format!("{addr} is free")),
        Place::Ours(daemon) => {
            checks.ok(name, format!("{addr} is served by the daemon of this store, {daemon}"));
        }
        Place::Neighbour(by) => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(", {by}"));
            checks.warn(
                name,
                format!("{addr} is served by another paddock, which has another store{by}"),
                format!(
                    "to use that one, name its store (store.root, SANDBOX_ROOT, --store); `paddock run` and `paddock stdio` \
                     serve this store at another port by themselves; for `paddock serve` {other}"
                ),
            );
        }
        Place::Beside(daemon) => checks.warn(
            name,
            format!("{addr} is taken, and the daemon of this store, {daemon}, serves at another address"),
            format!("it was started with another address than this; to look at it with that, {other}"),
        ),
        Place::Taken(by) => {
            let by = by
                .as_ref()
                .map_or_else(|| "a program that this user may not look at".to_owned(), ToString::to_string);
            checks.fail(name, format!("{addr} is taken by {by}"), format!("end that, or {other}"));
        }
        Place::Elsewhere => {
            let found = format!("{addr} is no address of this machine");
            checks.fail(name, found, format!("`ip addr` shows those that are; {other}"));
        }
        Place::Denied => {
            let found = format!("this user may not listen at {addr}");
            checks.fail(name, found, format!("ports below 1024 take CAP_NET_BIND_SERVICE; {other}"));
        }
        Place::Unusable(why) => {
            checks.fail(name, format!("{addr} cannot be listened at: {why}"), other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Fail, Warn};
    use super::super::check::tests::lacks;
    use super::*;

    fn good() -> Facts {
        Facts {
            file: Some("paddock.toml".into()),
            warnings: vec![],
            tokens: 1,
            addr: "127.0.0.1:8080".parse().expect("an address"),
            place: Place::Free,
            metrics: Some(("127.0.0.1:9464".parse().expect("an address"), Place::Free)),
            public_url: None,
            public_is_here: false,
        }
    }

    #[test]
    fn each_lack_gives_its_line_and_no_other() {
        assert_eq!(lacks(&judge(&good())), []);
        let holder = || Holder { pid: 7, name: "nginx".into() };
        let ours = Facts { place: Place::Ours(holder()), ..good() };
        assert_eq!(lacks(&judge(&ours)), []);
        let proxied = Facts { public_url: Some("https://a.example".into()), ..good() };
        assert_eq!(lacks(&judge(&proxied)), []);
        let here = Facts { public_url: Some("http://localhost".into()), public_is_here: true, ..good() };
        assert_eq!(lacks(&judge(&here)), []);
        for (facts, name, status, word) in [
            (Facts { warnings: vec!["a: b".into()], ..good() }, "warning", Warn, "a: b"),
            (
                Facts { tokens: 0, warnings: vec!["there is no token: x".into()], ..good() },
                "tokens",
                Warn,
                "no token",
            ),
            (Facts { place: Place::Taken(Some(holder())), ..good() }, "address", Fail, "nginx (pid 7)"),
            (Facts { place: Place::Taken(None), ..good() }, "address", Fail, "may not look at"),
            (Facts { place: Place::Neighbour(None), ..good() }, "address", Warn, "another paddock"),
            (Facts { place: Place::Beside(holder()), ..good() }, "address", Warn, "at another address"),
            (
                Facts {
                    metrics: Some(("127.0.0.1:9464".parse().expect("an address"), Place::Taken(None))),
                    ..good()
                },
                "metrics address",
                Fail,
                "9464 is taken",
            ),
            (Facts { place: Place::Elsewhere, ..good() }, "address", Fail, "no address of"),
            (Facts { place: Place::Denied, ..good() }, "address", Fail, "may not listen"),
            (Facts { place: Place::Unusable("odd".into()), ..good() }, "address", Fail, "odd"),
            (
                Facts {
                    addr: "0.0.0.0:80".parse().expect("an address"),
                    warnings: vec!["http.public_url is not set: links".into()],
                    ..good()
                },
                "public_url",
                Warn,
                "links",
            ),
            (Facts { public_url: Some("http://a.example".into()), ..good() }, "public_url", Warn, "TLS"),
        ] {
            let checks = judge(&facts);
            assert_eq!(lacks(&checks), [(name, status)], "{facts:?}");
            assert!(checks.iter().any(|check| check.found.contains(word)), "{word}: {checks:?}");
        }
    }

    #[tokio::test]
    async fn an_address_is_looked_at_and_not_taken() {
        let nowhere = Path::new("/nowhere/lock");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = taken.local_addr().expect("an address");
        let Place::Taken(Some(by)) = place(addr, nowhere) else { panic!("{:?}", place(addr, nowhere)) };
        assert_eq!(by.pid, std::process::id());
        drop(taken);
        assert_eq!(place(addr, nowhere), Place::Free);
        bind(addr).expect("a look leaves it free");
        assert_eq!(place("192.0.2.1:80".parse().expect("an address"), nowhere), Place::Elsewhere);
    }
}
