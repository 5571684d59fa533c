//! The configuration as the daemon would use it: the tokens, and whether the address is free.
//!
//! It must never listen: a daemon that starts at that moment would find its address in use.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpSocket;

use super::check::{Check, Checks, Group};
use crate::api::{NEEDS_TLS, check_files};
use crate::audit;
use crate::config::{Loaded, reachable};
use crate::holder::{self, HoldingProcess, LockState};
use crate::tenants::tokens_in;

/// Time for a listener to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The configuration, and the state of its addresses.
#[derive(Debug, Clone)]
pub(super) struct ConfigurationFacts {
    /// The configuration file.
    pub(super) file: Option<String>,
    pub(super) warnings: Vec<String>,
    /// Tokens that give access.
    pub(super) tokens: usize,
    pub(super) addr: SocketAddr,
    pub(super) place: AddressState,
    /// The listener of the metrics, if they have one of their own.
    pub(super) metrics: Option<(SocketAddr, AddressState)>,
    /// What is wrong with the files of TLS, if they are set.
    pub(super) tls: Option<Result<(), String>>,
    /// The audit log, if there is one: what is wrong with its file.
    pub(super) audit: Option<(String, Option<String>)>,
    /// The collector of spans, if there is one, and why it cannot be reached.
    pub(super) collector: Option<(String, Option<String>)>,
    pub(super) public_url: Option<String>,
    /// Whether that URL names this machine itself.
    pub(super) public_is_here: bool,
}

/// Whether the daemon could listen at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AddressState {
    Free,
    /// In use by the daemon that has the store.
    Ours(HoldingProcess),
    /// In use by a healthy daemon that has another store.
    Neighbour(Option<HoldingProcess>),
    /// In use, while the daemon that has the store listens at another address.
    Beside(HoldingProcess),
    Taken(Option<HoldingProcess>),
    /// Not an address of this machine.
    Elsewhere,
    /// This user may not listen there.
    Denied,
    Unusable(String),
}

pub(super) fn look(file: Option<&Path>, loaded: &Loaded) -> ConfigurationFacts {
    let http = &loaded.config.http;
    let audit = loaded.config.audit.file.as_deref();
    let collector = loaded.config.telemetry.otlp_endpoint.as_deref();
    ConfigurationFacts {
        file: file.map(|path| path.display().to_string()),
        warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
        tokens: loaded.config.auth.tokens.len() + tokens_in(&loaded.config.auth.tokens_file.path),
        addr: http.addr,
        place: address_state(http.addr, &loaded.config.store.root.join("lock")),
        metrics: loaded.config.metrics.addr.map(|addr| {
            let lock = loaded.config.store.root.join("lock");
            let same = addr.port() != 0
                && addr.port() == http.addr.port()
                && (addr.ip() == http.addr.ip()
                    || addr.ip().is_unspecified()
                    || http.addr.ip().is_unspecified());
            let place = if same {
                AddressState::Unusable("http.addr is there".to_owned())
            } else {
                address_state(addr, &lock)
            };
            (addr, place)
        }),
        tls: http.tls.as_ref().map(|files| check_files(files).map_err(|error| error.to_string())),
        collector: collector.map(|url| (url.to_owned(), unreached(url))),
        audit: audit.map(|path| (path.display().to_string(), audit::unusable(path))),
        public_url: http.public_url.as_ref().map(|url| url.as_str().to_owned()),
        public_is_here: http.public_url.as_ref().is_some_and(|url| url.is_loopback()),
    }
}

/// Why no connection to this URL can be made; `None` if one can.
fn unreached(url: &str) -> Option<String> {
    let addresses = url::Url::parse(url)
        .and_then(|url| url.socket_addrs(|| None).map_err(|_| url::ParseError::EmptyHost));
    let Ok(addresses) = addresses else { return Some("its name cannot be resolved".to_owned()) };
    let mut why = "its name has no address".to_owned();
    for addr in addresses {
        match TcpStream::connect_timeout(&addr, ANSWER) {
            Ok(_) => return None,
            Err(error) => why = error.to_string(),
        }
    }
    Some(why)
}

pub(super) fn address_state(addr: SocketAddr, lock: &Path) -> AddressState {
    let bound = bind(addr);
    let Err(error) = bound else { return AddressState::Free };
    let kind = error.kind();
    if kind == ErrorKind::AddrInUse {
        let listener = holder::of_address(addr);
        match (listener, holder::of_lock(lock)) {
            (Some(listener), LockState::HeldBy(daemon)) if listener.pid == daemon.pid => {
                AddressState::Ours(daemon)
            }
            (_, LockState::HeldBy(daemon)) => AddressState::Beside(daemon),
            (listener, _) if is_healthy(addr) => AddressState::Neighbour(listener),
            (listener, _) => AddressState::Taken(listener),
        }
    } else if kind == ErrorKind::AddrNotAvailable {
        AddressState::Elsewhere
    } else if kind == ErrorKind::PermissionDenied {
        AddressState::Denied
    } else {
        AddressState::Unusable(error.to_string())
    }
}

/// Whether a healthy paddock answers there. Any program could claim that, so this only changes a message.
fn is_healthy(addr: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut socket = TcpStream::connect_timeout(&reachable(addr), ANSWER)?;
        socket.set_read_timeout(Some(ANSWER))?;
        socket.set_write_timeout(Some(ANSWER))?;
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut said = Vec::new();
        socket.take(4096).read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    // One that speaks TLS says so without it.
    ask().is_ok_and(|said| {
        said.starts_with("HTTP/1.1 200") && said.contains(r#"{"status":"healthy""#)
            || said.starts_with("HTTP/1.1 400") && said.contains(NEEDS_TLS)
    })
}

/// Binds as the daemon does, but does not listen: such a socket is in nobody's way.
fn bind(addr: SocketAddr) -> std::io::Result<()> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)
}

pub(super) fn judge(facts: &ConfigurationFacts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Configuration);
    let addr = facts.addr;
    match &facts.file {
        Some(file) => checks.ok("loads", format!("{file} is valid")),
        None => checks.ok("loads", "no file, only defaults, environment and flags; they are valid"),
    }
    for warning in &facts.warnings {
        let (found, advice) = warning.split_once(": ").unwrap_or((warning, "see config.example.toml"));
        if found == "there is no token" {
            let advice = "set auth.token (MCP_API_TOKEN=$(openssl rand -hex 32)), or auth.tokens, unless \
                          that is intended";
            checks.warn("tokens", warning, advice);
        } else if found.starts_with("http.public_url is not set") {
            let advice =
                "set http.public_url (PUBLIC_BASE_URL) to the URL by which clients reach this daemon";
            checks.warn("public_url", warning, advice);
        } else {
            checks.warn("warning", warning, advice);
        }
    }
    if facts.tokens > 0 {
        let s = if facts.tokens == 1 { "" } else { "s" };
        checks.ok("tokens", format!("{} token{s} for callers of {addr}", facts.tokens));
    }
    const OTHER: &str = "choose another address by http.addr (MCP_HTTP_ADDR, --addr), such as 127.0.0.1:8081";
    judge_address("address", addr, &facts.place, OTHER, &mut checks);
    if let Some((addr, place)) = &facts.metrics {
        const OTHER: &str =
            "choose another address by metrics.addr, or none: http.addr serves the metrics too";
        judge_address("metrics address", *addr, place, OTHER, &mut checks);
    }
    match &facts.tls {
        None => {}
        Some(Ok(())) => checks.ok("tls", "the certificate and the key can be used"),
        Some(Err(why)) => checks.fail(
            "tls",
            why.clone(),
            "http.tls_certificate takes the certificate and those that lead to its authority, http.tls_key \
             its key, both in PEM and readable by the daemon's user; without both the daemon speaks HTTP",
        ),
    }
    match &facts.collector {
        None => {}
        Some((url, None)) => checks.ok("collector", format!("{url} accepts connections; spans go there")),
        Some((url, Some(why))) => checks.warn(
            "collector",
            format!("the collector of spans {url} cannot be reached: {why}"),
            "start it, or correct telemetry.otlp_endpoint (OTEL_EXPORTER_OTLP_ENDPOINT); until then spans \
             are lost, and nothing else",
        ),
    }
    match &facts.audit {
        None => {}
        Some((path, None)) => checks.ok("audit log", format!("{path} can be written")),
        Some((_, Some(why))) => checks.fail(
            "audit log",
            why.clone(),
            "audit.file takes a file that only the daemon's user can read and write, in a folder where that \
             user may make and rename files",
        ),
    }
    let scheme = if facts.tls.is_some() { "https" } else { "http" };
    match &facts.public_url {
        // The configuration warns about that.
        None if addr.ip().is_unspecified() => {}
        None => checks.ok("public_url", format!("links to files begin with {scheme}://{addr}")),
        Some(url) if url.starts_with("http://") && !facts.public_is_here => checks.warn(
            "public_url",
            format!("{url} has no TLS"),
            "tokens and files can be read on the network: set http.tls_certificate and http.tls_key, or put \
             a reverse proxy with TLS in front, and make http.public_url (PUBLIC_BASE_URL) the https URL",
        ),
        Some(url) => checks.ok("public_url", format!("links to files begin with {url}")),
    }
    checks.done()
}

/// Whether the daemon could listen at one address; `other` says how to choose another.
pub(super) fn judge_address(
    name: &'static str,
    addr: SocketAddr,
    place: &AddressState,
    other: &str,
    checks: &mut Checks,
) {
    match place {
        AddressState::Free if addr.port() == 0 => {
            checks.ok(name, format!("{addr}: a free port at each start"))
        }
        AddressState::Free => checks.ok(name, format!("{addr} is free")),
        AddressState::Ours(daemon) => {
            checks.ok(name, format!("{addr} is served by the daemon of this store, {daemon}"));
        }
        AddressState::Neighbour(by) => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(", {by}"));
            checks.warn(
                name,
                format!("{addr} is served by another paddock, which has another store{by}"),
                format!(
                    "to use that one, name its store (store.root, SANDBOX_ROOT, --store); `paddock run` and \
                     `paddock stdio` serve this store at another port by themselves; for `paddock serve`, \
                     {other}"
                ),
            );
        }
        AddressState::Beside(daemon) => checks.warn(
            name,
            format!("{addr} is in use, and the daemon of this store, {daemon}, serves at another address"),
            format!(
                "that daemon was started with another address; to check this configuration for it, {other}"
            ),
        ),
        AddressState::Taken(by) => {
            let by = by
                .as_ref()
                .map_or_else(|| "a program that this user may not inspect".to_owned(), ToString::to_string);
            checks.fail(name, format!("{addr} is in use by {by}"), format!("stop that program, or {other}"));
        }
        AddressState::Elsewhere => {
            let found = format!("{addr} is not an address of this machine");
            checks.fail(name, found, format!("`ip addr` shows its addresses; {other}"));
        }
        AddressState::Denied => {
            let found = format!("this user may not listen at {addr}");
            checks.fail(name, found, format!("ports below 1024 need CAP_NET_BIND_SERVICE; {other}"));
        }
        AddressState::Unusable(why) => {
            checks.fail(name, format!("the daemon cannot listen at {addr}: {why}"), other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Fail, Warn};
    use super::super::check::tests::lacks;
    use super::*;

    fn good() -> ConfigurationFacts {
        ConfigurationFacts {
            file: Some("paddock.toml".into()),
            warnings: vec![],
            tokens: 1,
            addr: "127.0.0.1:8080".parse().expect("an address"),
            place: AddressState::Free,
            metrics: Some(("127.0.0.1:9464".parse().expect("an address"), AddressState::Free)),
            tls: None,
            collector: Some(("http://127.0.0.1:4318/".into(), None)),
            audit: Some(("/var/log/audit.log".into(), None)),
            public_url: None,
            public_is_here: false,
        }
    }

    #[test]
    fn each_defect_gives_its_check_and_no_other() {
        assert_eq!(lacks(&judge(&good())), []);
        let holder = || HoldingProcess { pid: 7, name: "nginx".into() };
        let ours = ConfigurationFacts { place: AddressState::Ours(holder()), ..good() };
        assert_eq!(lacks(&judge(&ours)), []);
        let proxied = ConfigurationFacts { public_url: Some("https://a.example".into()), ..good() };
        assert_eq!(lacks(&judge(&proxied)), []);
        let secured = ConfigurationFacts { tls: Some(Ok(())), ..good() };
        assert_eq!(lacks(&judge(&secured)), []);
        let here = ConfigurationFacts {
            public_url: Some("http://localhost".into()),
            public_is_here: true,
            ..good()
        };
        assert_eq!(lacks(&judge(&here)), []);
        for (facts, name, status, word) in [
            (
                ConfigurationFacts { collector: Some(("c".into(), Some("no".into()))), ..good() },
                "collector",
                Warn,
                "cannot be reached: no",
            ),
            (
                ConfigurationFacts { audit: Some(("a".into(), Some("a: no way".into()))), ..good() },
                "audit log",
                Fail,
                "no way",
            ),
            (ConfigurationFacts { warnings: vec!["a: b".into()], ..good() }, "warning", Warn, "a: b"),
            (
                ConfigurationFacts { tokens: 0, warnings: vec!["there is no token: x".into()], ..good() },
                "tokens",
                Warn,
                "no token",
            ),
            (
                ConfigurationFacts { place: AddressState::Taken(Some(holder())), ..good() },
                "address",
                Fail,
                "nginx (pid 7)",
            ),
            (
                ConfigurationFacts { place: AddressState::Taken(None), ..good() },
                "address",
                Fail,
                "may not inspect",
            ),
            (
                ConfigurationFacts { place: AddressState::Neighbour(None), ..good() },
                "address",
                Warn,
                "another paddock",
            ),
            (
                ConfigurationFacts { place: AddressState::Beside(holder()), ..good() },
                "address",
                Warn,
                "at another address",
            ),
            (
                ConfigurationFacts {
                    metrics: Some(("127.0.0.1:9464".parse().expect("an address"), AddressState::Taken(None))),
                    ..good()
                },
                "metrics address",
                Fail,
                "9464 is in use",
            ),
            (
                ConfigurationFacts { place: AddressState::Elsewhere, ..good() },
                "address",
                Fail,
                "not an address of",
            ),
            (ConfigurationFacts { place: AddressState::Denied, ..good() }, "address", Fail, "may not listen"),
            (
                ConfigurationFacts { place: AddressState::Unusable("odd".into()), ..good() },
                "address",
                Fail,
                "odd",
            ),
            (
                ConfigurationFacts {
                    addr: "0.0.0.0:80".parse().expect("an address"),
                    warnings: vec!["http.public_url is not set: links".into()],
                    ..good()
                },
                "public_url",
                Warn,
                "links",
            ),
            (ConfigurationFacts { tls: Some(Err("no key".into())), ..good() }, "tls", Fail, "no key"),
            (
                ConfigurationFacts { public_url: Some("http://a.example".into()), ..good() },
                "public_url",
                Warn,
                "TLS",
            ),
        ] {
            let checks = judge(&facts);
            assert_eq!(lacks(&checks), [(name, status)], "{facts:?}");
            assert!(checks.iter().any(|check| check.found.contains(word)), "{word}: {checks:?}");
        }
    }

    #[tokio::test]
    async fn an_address_is_examined_but_not_occupied() {
        let nowhere = Path::new("/nowhere/lock");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = taken.local_addr().expect("an address");
        let AddressState::Taken(Some(by)) = address_state(addr, nowhere) else {
            panic!("{:?}", address_state(addr, nowhere))
        };
        assert_eq!(by.pid, std::process::id());
        drop(taken);
        assert_eq!(address_state(addr, nowhere), AddressState::Free);
        bind(addr).expect("it is still free");
        assert_eq!(
            address_state("192.0.2.1:80".parse().expect("an address"), nowhere),
            AddressState::Elsewhere
        );
    }
}
