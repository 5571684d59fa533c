//! Names, as a name server of the test answers for them: several addresses, private ones among them, other
//! ones at the second question, none.
//!
//! The daemon finds the server in its `/etc/resolv.conf`, in a mount namespace of its own, so this host's
//! file stays as it is. It needs root.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{TcpListener, UdpSocket};

use crate::far::program::{allowed, entry};
use crate::far::{FAR, Far};
use crate::support::Setup;

/// A name server on an address of this host that no other test has.
struct NameServer {
    address: Ipv4Addr,
    /// Every name that it was asked for.
    asked: Arc<Mutex<Vec<String>>>,
    folder: TempDir,
}

/// The addresses of names: those of the first question, of the second, and of all that follow.
type Zone = HashMap<&'static str, Vec<Vec<IpAddr>>>;

impl NameServer {
    /// Starts one at this address. It knows these names and no others.
    async fn start(address: Ipv4Addr, zone: Zone) -> NameServer {
        let socket = UdpSocket::bind((address, 53)).await.expect("this test needs root");
        let folder = TempDir::new().expect("a folder");
        let config = format!("nameserver {address}\noptions timeout:1\n");
        std::fs::write(folder.path().join("resolv.conf"), config).expect("a file");
        let server = NameServer { address, asked: Arc::default(), folder };
        tokio::spawn(serve(socket, zone, server.asked.clone()));
        server
    }

    /// A daemon that asks this server and no other.
    fn daemon(&self, setup: Setup) -> Setup {
        let file = self.folder.path().join("resolv.conf");
        let script = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", file.display());
        setup.under(&["unshare", "-m", "sh", "-c", &script, "sh"])
    }

    fn asked_for(&self, name: &str) -> usize {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|one| one.contains(name)).count()
    }
}

async fn serve(socket: UdpSocket, zone: Zone, asked: Arc<Mutex<Vec<String>>>) {
    let mut questions: HashMap<String, usize> = HashMap::new();
    let mut datagram = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut datagram).await {
        let Ok(message) = Message::from_vec(&datagram[..length]) else { continue };
        let query = message.queries.first().expect("a question").clone();
        let name = query.name().to_ascii().trim_end_matches('.').to_owned();
        asked.lock().expect("no panic").push(name.clone());
        let mut reply = message.into_response();
        match zone.get(name.as_str()) {
            // Only IPv4: the question for the other family is not counted.
            Some(turns) if query.query_type() == RecordType::A => {
                let turn = questions.entry(name).or_default();
                for address in &turns[(*turn).min(turns.len() - 1)] {
                    let IpAddr::V4(address) = address else { panic!("{address}") };
                    let data = RData::A((*address).into());
                    // Nobody keeps the answer.
                    reply.add_answer(Record::from_rdata(query.name().clone(), 0, data));
                }
                *turn += 1;
            }
            Some(_) => {}
            None => reply.metadata.response_code = ResponseCode::NXDomain,
        }
        let _ = socket.send_to(&reply.to_vec().expect("an answer"), from).await;
    }
}

const CONNECT: &str = "
import socket, urllib.request as u
def connect(host):
    try:
        with socket.create_connection((host, 80), 20) as s:
            s.sendall(b'GET /hello HTTP/1.0\\r\\n\\r\\n')
            print(host, s.makefile().readline().split()[1])
    except OSError as e: print(host, e)
def lookup(host):
    try: print(host, len(socket.getaddrinfo(host, 80, proto=socket.IPPROTO_TCP)))
    except OSError as e: print(host, e)
";

#[tokio::test]
async fn each_address_of_a_name_is_judged_at_each_question() {
    let far = Far::start(&[]).await;
    let own = Ipv4Addr::new(127, 83, 7, far.address.octets()[3]);
    // Whoever dials a private address of a name is seen here.
    let private = TcpListener::bind((own, 80)).await.expect("this test needs root");
    let (public, refused) = (IpAddr::V4(far.address), IpAddr::V4(own));
    let zone = Zone::from([
        ("mixed.test", vec![vec![refused, public]]),
        ("private.test", vec![vec![refused, "10.1.2.3".parse().expect("an address")]]),
        // Rebinding: the policy has seen a public address, and the next connection would get a private one.
        ("turns.test", vec![vec![public], vec![refused]]),
        ("many.test", vec![vec![public; 20]]),
    ]);
    let names = NameServer::start(own, zone).await;
    let d = names.daemon(far.daemon()).start().await;
    let code = format!(
        "{CONNECT}
for host in ('mixed.test', 'private.test', 'turns.test', 'turns.test', 'many.test', 'none.test',
             'secret-4711.blocked.test'):
    connect(host)
lookup('secret-4712.blocked.test')
"
    );
    let hosts = ["mixed.test", "private.test", "turns.test", "many.test", "none.test"];
    let ran = d.session("s").python(&code).with("network", allowed(&hosts)).await.expect_success();
    let lines: Vec<&str> = ran.stdout().lines().collect();
    let [mixed, only_private, first, second, many, none, blocked, looked_up] = lines[..] else {
        panic!("{}", ran.stdout())
    };
    assert_eq!([mixed, first, many], ["mixed.test 200", "turns.test 200", "many.test 200"]);
    for (said, host) in [(only_private, "private.test"), (second, "turns.test")] {
        assert!(said.starts_with(host) && !said.ends_with("200"), "{said}");
    }
    assert!(none.starts_with("none.test") && blocked.starts_with("secret-4711"), "{none} {blocked}");
    // The address on the wire is the one that was judged, and the private one was never dialled.
    assert_eq!(entry(&ran, "mixed.test")["allowed"], json!(true), "{}", ran.document);
    for host in ["private.test", "turns.test"] {
        let reason = entry(&ran, host)["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("a loopback address"), "{host}: {}", ran.document);
    }
    assert_eq!(entry(&ran, "none.test")["reason"], "the name has no address", "{}", ran.document);
    let waiting = futures_util::FutureExt::now_or_never(private.accept());
    assert!(waiting.is_none(), "a private address was dialled");
    // A question can carry data: one for a name that is not allowed leaves the container but not this host.
    assert!(looked_up.starts_with("secret-4712"), "{looked_up}");
    assert_eq!(names.asked_for("secret"), 0);
    assert!(names.asked_for("turns.test") >= 2 && names.asked_for(FAR) == 0);
    assert_eq!(names.address, own);
    d.stop().await;
}
