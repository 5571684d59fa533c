//! Machines of a test's own, and a cluster over them. Each is a network namespace with an engine, on one
//! switch with a real PostgreSQL and a real S3 server; a link of its own leads to the test, which no cut
//! reaches.
//!
//! ```text
//!   the switch, a namespace too: PostgreSQL and S3 at 10.214.n.254
//!       │                    │                    │
//!   10.214.n.1           10.214.n.2           10.214.n.3      what they say to each other and to the servers
//!   engine, node         engine, node         engine, node
//!   10.215.n.3           10.215.n.5           10.215.n.7      where the test asks
//! ```
//!
//! They share the processors and the kernel, so that nothing here shows what two machines can do that one
//! cannot.
//! It needs root.

#[path = "machines/cut_off.rs"]
mod cut_off;
#[path = "machines/load.rs"]
mod load;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::process::Command;
use std::time::Duration;

use crate::support::{Daemon, PATIENCE, PrivateEngine, Request, Setup, SharedServers, View, within};

/// The image that the engines have: the smallest.
const IMAGE: &str = "paddock-example-sh";
/// Sets of machines at one time.
const NUMBERS: u8 = 32;
/// Time between two looks at what sends no notifications.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Machine {
    namespace: String,
    pub(crate) name: String,
    pub(crate) engine: PrivateEngine,
    /// Its address on the switch.
    pub(crate) inner: Ipv4Addr,
    /// Where the test reaches its node.
    pub(crate) addr: SocketAddr,
}

/// Everything, removed when this is dropped.
pub(crate) struct Machines {
    number: u8,
    servers: Option<SharedServers>,
    pub(crate) all: Vec<Machine>,
    /// Nobody else takes the number while this is open.
    _taken: UnixListener,
}

/// Runs these words, which must succeed.
#[track_caller]
pub(crate) fn command(line: &str) -> String {
    let mut words = line.split(' ');
    let done = Command::new(words.next().expect("a program")).args(words).output();
    let done = done.unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(
        done.status.success(),
        "these tests need root and iproute2: {line}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A number that no other test has.
fn take() -> (u8, UnixListener) {
    for number in 0..NUMBERS {
        let address = UnixAddr::from_abstract_name(format!("paddock-machines-{number}")).expect("a name");
        if let Ok(taken) = UnixListener::bind_addr(&address) {
            return (number, taken);
        }
    }
    panic!("{NUMBERS} tests have machines")
}

fn switch(number: u8) -> String {
    format!("pd-switch-{number}")
}

fn namespace(number: u8, machine: u8) -> String {
    format!("pd-machine-{number}-{machine}")
}

/// Removes the namespaces of a number, and with them every link.
fn remove(number: u8) {
    for name in (1..=8).map(|machine| namespace(number, machine)).chain([switch(number)]) {
        let _ = Command::new("ip").args(["netns", "del", &name]).output();
    }
}

impl Machines {
    /// This many machines, at most eight; no node runs on them yet.
    pub(crate) async fn start(count: u8) -> Machines {
        let (number, taken) = take();
        remove(number); // of a test that was killed
        let switch = switch(number);
        command(&format!("ip netns add {switch}"));
        let center = Ipv4Addr::new(10, 214, number, 254);
        for line in [
            format!("ip -n {switch} link set lo up"),
            format!("ip -n {switch} link add middle type bridge"),
            format!("ip -n {switch} addr add {center}/24 dev middle"),
            format!("ip -n {switch} link set middle up"),
        ] {
            command(&line);
        }
        let mut machines = Machines { number, servers: None, all: Vec::new(), _taken: taken };
        for at in 1..=count {
            let namespace = namespace(number, at);
            let inner = Ipv4Addr::new(10, 214, number, at);
            let (here, there) =
                (Ipv4Addr::new(10, 215, number, 2 * at), Ipv4Addr::new(10, 215, number, 2 * at + 1));
            let outer = format!("pdm{number}-{at}");
            command(&format!("ip netns add {namespace}"));
            for line in [
                format!("ip -n {namespace} link set lo up"),
                format!("ip -n {switch} link add port{at} type veth peer name near netns {namespace}"),
                format!("ip -n {switch} link set port{at} master middle up"),
                format!("ip -n {namespace} addr add {inner}/24 dev near"),
                format!("ip -n {namespace} link set near up"),
                format!("ip link add {outer} type veth peer name test netns {namespace}"),
                format!("ip addr add {here}/31 dev {outer}"),
                format!("ip link set {outer} up"),
                format!("ip -n {namespace} addr add {there}/31 dev test"),
                format!("ip -n {namespace} link set test up"),
            ] {
                command(&line);
            }
            let name = format!("m{at}");
            let engine = PrivateEngine::in_namespace(&namespace, &name).await;
            engine.load(IMAGE);
            let addr = SocketAddr::from((there, 8080));
            machines.all.push(Machine { namespace, name, engine, inner, addr });
        }
        let there = ["nsenter".to_owned(), format!("--net=/run/netns/{switch}")];
        machines.servers = Some(SharedServers::at(there.to_vec(), center.to_string()));
        machines
    }

    pub(crate) fn servers(&self) -> &SharedServers {
        self.servers.as_ref().expect("they were started")
    }

    /// The nodes of a new cluster over the first machines, once each knows all others.
    async fn cluster(&self, count: usize) -> Vec<Daemon> {
        let (url, objects) = self.servers().fresh();
        let machines = &self.all[..count];
        let peers: Vec<_> = machines.iter().map(|machine| format!("{}:7946", machine.inner)).collect();
        let start = |machine: &Machine| {
            let aws = self.servers().aws();
            let setup = machine.node(&url, &objects, &peers);
            aws.iter().fold(setup, |setup, (name, value)| setup.env(name, value)).start()
        };
        let nodes = futures_util::future::join_all(machines.iter().map(start)).await;
        for node in &nodes {
            within(PATIENCE, "each node to know all others", async {
                while up(node.addr).await != Some(count) {
                    tokio::time::sleep(LOOK).await;
                }
            })
            .await;
        }
        nodes
    }
}

/// How many nodes of the cluster are up, as this one sees it.
async fn up(addr: SocketAddr) -> Option<usize> {
    let text = Request::new(addr, "GET", "/metrics").bearer(crate::support::TOKEN).send().await.text();
    let line = text.lines().find_map(|line| line.strip_prefix("paddock_cluster_nodes{state=\"up\"} "))?;
    line.parse().ok()
}

impl Machine {
    fn node(&self, url: &str, objects: &str, peers: &[String]) -> Setup {
        Daemon::with()
            .under(&["nsenter", &format!("--net=/run/netns/{}", self.namespace)])
            .args(["--addr", &self.addr.to_string()])
            .env("DOCKER_HOST", &self.engine.host())
            .set("store.url", url)
            .set("store.objects", objects)
            .set("cluster.peers", peers.to_vec())
            .set("cluster.key", "0123456789abcdef0123456789abcdef")
            .set("cluster.name", self.name.as_str())
            .set("cluster.addr", format!("{}:7946", self.inner))
    }

    /// Its containers of this daemon.
    async fn view(&self, node: &Daemon) -> View {
        View::on(&self.engine.host().parse().expect("a host"), &node.store.owner()).await
    }

    /// Nothing goes to the switch any more, and nothing comes from it. Only the test still reaches the
    /// machine.
    pub(crate) fn cut(&self) {
        command(&format!("ip -n {} link set near down", self.namespace));
    }

    pub(crate) fn join(&self) {
        command(&format!("ip -n {} link set near up", self.namespace));
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.all.clear();
        self.servers = None;
        remove(self.number);
    }
}
