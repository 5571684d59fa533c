//! The far side: real servers in a network namespace of the test's own, at an address that counts as public.
//!
//! ```text
//!  container ══ daemon ══ this host 192.31.196.2n ── a pair of veth ── 192.31.196.2n+1  servers.py
//!                                                                     └ counts what arrives
//! ```
//!
//! The range is one of `AS112` (RFC 7535), which is globally reachable and which no test asks anything else
//! of. Every test takes a number, by a Unix socket with an abstract name, so that tests run in parallel, also
//! those of several processes. What a killed test left under its number is removed when the number is taken
//! again; its servers end by themselves. It needs root.

#[path = "far/program.rs"]
pub(crate) mod program;
#[path = "far/tools.rs"]
pub(crate) mod tools;

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Daemon, PATIENCE, Setup, within};

/// The name that calls allow, and one of the same address that they do not.
pub(crate) const FAR: &str = "far.example";
pub(crate) const BLOCKED: &str = "blocked.example";

/// The name of a private address, where nobody is.
pub(crate) const PRIVATE: &str = "private.example";

const SERVERS: &[(&str, &str)] =
    &[("servers.py", include_str!("far/servers.py")), ("web.py", include_str!("far/web.py"))];

/// Network namespaces at one time.
const NUMBERS: u8 = 128;

/// Servers, removed with their namespace when this is dropped.
pub(crate) struct Far {
    name: String,
    pub(crate) address: Ipv4Addr,
    /// This host's end of the pair.
    pub(crate) near: Ipv4Addr,
    servers: Child,
    folder: TempDir,
    /// Nobody else takes the number while this is open.
    _taken: UnixListener,
}

fn try_command(line: &str) -> Result<String, String> {
    let mut words = line.split(' ');
    let done = Command::new(words.next().expect("a program")).args(words).output();
    let done = done.map_err(|error| format!("{line}: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(format!("{line}: {}", String::from_utf8_lossy(&done.stderr)))
}

#[track_caller]
fn command(line: &str) -> String {
    try_command(line).unwrap_or_else(|error| panic!("these tests need root, iproute2 and iptables: {error}"))
}

/// Takes a number that no other test has.
fn take() -> (u8, UnixListener) {
    for number in 0..NUMBERS {
        let address = SocketAddr::from_abstract_name(format!("paddock-far-{number}")).expect("a name");
        if let Ok(taken) = UnixListener::bind_addr(&address) {
            return (number, taken);
        }
    }
    panic!("{NUMBERS} tests have a far side")
}

impl Far {
    /// Starts the web servers and these: `git`, `postgres`. Waits until all of them listen.
    pub(crate) async fn start(servers: &[&str]) -> Far {
        let (number, taken) = take();
        let name = format!("paddock-far-{number}");
        let near = Ipv4Addr::new(192, 31, 196, 2 * number);
        let address = Ipv4Addr::new(192, 31, 196, 2 * number + 1);
        let host = format!("pfar{number}");
        let _ = try_command(&format!("ip link del {host}"));
        let _ = try_command(&format!("ip netns del {name}"));
        command(&format!("ip netns add {name}"));
        for line in [
            format!("ip link add {host} type veth peer name far0 netns {name}"),
            format!("ip addr add {near}/31 dev {host}"),
            format!("ip link set {host} up"),
            format!("ip -n {name} addr add {address}/31 dev far0"),
            format!("ip -n {name} link set lo up"),
            format!("ip netns exec {name} iptables -w -t raw -A PREROUTING -i far0"),
            format!("ip netns exec {name} iptables -w -t raw -A PREROUTING -i far0 -p tcp --syn"),
            format!("ip -n {name} link set far0 up"),
        ] {
            command(&line);
        }
        let folder = TempDir::new().expect("a folder");
        // The user of PostgreSQL must find its own folder in it.
        let mode = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(folder.path(), mode).expect("a mode");
        for (file, content) in SERVERS {
            std::fs::write(folder.path().join(file), content).expect("a file");
        }
        let mut child = Command::new("ip")
            .args(["netns", "exec", &name, "python3", "-B"])
            .arg(folder.path().join("servers.py"))
            .arg(folder.path())
            .arg(address.to_string())
            .args(servers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip and python3");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        let far = Far { name, address, near, servers: child, folder, _taken: taken };
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            said.read_line(&mut line).map(|_| line)
        });
        let line = within(PATIENCE, "the servers of the far side", reading).await.expect("no panic");
        assert_eq!(line.expect("a line"), "ready\n", "the servers of the far side said why");
        far
    }

    /// A daemon that reaches it: mode `open`, and its names. Nothing private is allowed.
    pub(crate) fn daemon(&self) -> Setup {
        let address = self.address.to_string();
        let hosts = [(FAR, address.as_str()), (BLOCKED, &address), (PRIVATE, "10.1.2.3")];
        let hosts = hosts.map(|(name, address)| (name.to_owned(), address.into()));
        Daemon::with().set("egress.mode", "open").set("egress.hosts", toml::Table::from_iter(hosts))
    }

    /// Its files: `ca.pem`, and for git `key` and `known_hosts`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate of its authority.
    pub(crate) fn authority(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("ca.pem")).expect("a certificate")
    }

    /// Packets that have reached it, of any kind.
    pub(crate) fn packets(&self) -> u64 {
        self.count(0)
    }

    /// Connections that were begun to it.
    pub(crate) fn connections(&self) -> u64 {
        self.count(1)
    }

    fn count(&self, rule: usize) -> u64 {
        let listed = command(&format!("ip netns exec {} iptables -w -t raw -nvxL PREROUTING", self.name));
        let line = listed.lines().nth(2 + rule).expect("a rule");
        line.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a count")
    }

    /// Cuts it off, as if it had lost its power: nothing arrives, and nothing is answered.
    pub(crate) fn vanish(&self) {
        command(&format!("ip -n {} link set far0 down", self.name));
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.servers.stdin.take());
        let _ = self.servers.wait();
        for line in
            [format!("ip link del pfar{}", self.near.octets()[3] / 2), format!("ip netns del {}", self.name)]
        {
            let _ = try_command(&line);
        }
    }
}
