//! The way out on hosts that have less: no user notification (as in gVisor), no Landlock, neither.
//!
//! The engine is private to the test, and its runtimes leave out one protection of every container
//! (`doctor/wrapper.py`). The far side counts every packet that reaches it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::doctor::wrapped::runtimes;
use crate::egress_hostile::{NOBODY, TRIED as TRIED_WAYS, TRIES};
use crate::far::program::{Beside, allowed, constants, entry, python};
use crate::far::{FAR, Far};
use crate::support::{Daemon, PrivateEngine, within};

const IMAGE: &str = "paddock-runner-python";

/// Far longer than the copy of the image takes.
const LONG: Duration = Duration::from_secs(300);

const TRIED: &str = "
import os, requests, socket
def tried(what, host, port):
    try:
        with socket.create_connection((host, port), 20) as s:
            s.sendall(b'hello'); print(what, s.recv(5))
    except OSError as e: print(what, type(e).__name__)
";

/// A daemon whose containers have this runtime, on whose names programs reach the ports 7 and 80.
async fn daemon(far: &Far, engine: &PrivateEngine, runtime: &str) -> Daemon {
    let ports = vec![toml::Value::from(7), toml::Value::from(80)];
    let setup = far.daemon().env("DOCKER_HOST", &engine.host()).set("engine.runtime", runtime);
    setup.set("egress.listen_ports", ports).start().await
}

#[tokio::test]
async fn programs_have_a_network_where_the_kernel_offers_less() {
    let (_scripts, flags) = runtimes(["notification", "landlock", "neither"]);
    let engine = PrivateEngine::with_flags(&flags, &[]).await;
    let loading = async {
        engine.load(IMAGE);
        Far::start(&[]).await
    };
    let far = within(LONG, "the image and the far side", loading).await;
    for (runtime, listens) in [("notification", true), ("neither", true), ("landlock", false)] {
        let d = daemon(&far, &engine, runtime).await;
        hostile(&far, &d).await;
        blocked(&far, &d, listens).await;
        reached(&far, &d, listens).await;
        match runtime {
            "notification" => side_by_side(&far, &d).await,
            _ => one_after_the_other(&d).await,
        }
        d.stop().await;
    }
}

/// No other way leads out, with a network or without.
async fn hostile(far: &Far, d: &Daemon) {
    let before = far.packets();
    let code = format!("{}{TRIES}", constants(far));
    let bare = format!("import os\nos.environ['http_proxy'] = 'http://run:x@127.0.0.1:9'\n{code}");
    let s = d.session("s");
    for ran in [s.python(&code).with("network", allowed(&[NOBODY])).await, s.python(&bare).await] {
        let ran = ran.expect_success();
        assert!(!ran.stdout().contains("went through"), "{}", ran.stdout());
        assert_eq!(ran.stdout().lines().count(), TRIED_WAYS + 1, "{}", ran.stdout());
        assert_eq!(far.packets(), before, "{}", ran.stdout());
    }
}

/// What a run may not reach, it does not reach, and it is told at once.
async fn blocked(far: &Far, d: &Daemon, listens: bool) {
    let before = far.packets();
    let s = d.session("s");
    let code = format!(
        "{}{TRIED}
tried('name', 'blocked.example', 7)
tried('port', 'far.example', 80)
tried('address', ADDRESS, 7)
tried('other port', 'far.example', 8003)
print('proxy', requests.get('http://far.example/hello').status_code)",
        constants(far)
    );
    let ran = s.python(&code).with("network", allowed(&["far.example:7"])).await.expect_success();
    let expected = match listens {
        true => ["ConnectionResetError", "OSError", "ConnectionRefusedError"],
        false => ["PermissionError", "PermissionError", "PermissionError"],
    };
    let [port, address, other] = expected;
    assert_eq!(
        ran.stdout(),
        format!("name gaierror\nport {port}\naddress {address}\nother port {other}\nproxy 403\n")
    );
    let all = ran.document["network"].as_array().expect("`network`");
    let told = |host: &str, port: u16| all.iter().find(|one| one["host"] == host && one["port"] == port);
    let port = told(FAR, 80).expect("the blocked port");
    assert_eq!((&port["allowed"], &port["reason"]), (&json!(false), &json!("not in allowed_domains")));
    // With listeners, the daemon hears of no `connect` to a port on which PID 1 does not listen.
    assert_eq!(told(FAR, 8003).is_some(), !listens, "{all:?}");

    let bare =
        format!("{}{TRIED}\ntried('name', 'far.example', 7)\ntried('it', '127.64.0.1', 7)", constants(far));
    let ran = s.python(&bare).await.expect_success();
    assert_eq!(ran.stdout(), "name gaierror\nit ConnectionRefusedError\n");
    assert!(ran.document.get("network").is_none(), "{}", ran.document);
    assert_eq!(far.packets(), before, "something left");
}

/// What a run may reach, it reaches: by a plain socket, and by a library, with a proxy and without.
async fn reached(far: &Far, d: &Daemon, listens: bool) {
    let code = format!(
        "{}{TRIED}
tried('socket', 'far.example', 7)
print(requests.get('http://far.example/hello').text.strip())
with requests.Session() as direct:
    direct.trust_env = False
    print(direct.get('http://far.example/redirect').text.strip())
with socket.create_server(('127.0.0.1', 80)) as own:
    tried('beside a server', 'far.example', 7)",
        constants(far)
    );
    let ran = d.session("s").python(&code).with("network", allowed(&[FAR])).await;
    let ran =
        ran.expect_stdout("socket b'hello'\nhello from far\nhello from far\nbeside a server b'hello'\n");
    let told = entry(&ran, FAR);
    assert_eq!((&told["allowed"], &told["reason"]), (&json!(true), &Value::Null), "{listens}: {told}");
    assert!(told["bytes_in"].as_u64() > Some(0) && told["bytes_out"].as_u64() > Some(0), "{told}");
}

/// What a program wrote, of its events: on a busy machine one line comes in several of them.
fn written(events: &Value) -> String {
    events.as_array().into_iter().flatten().filter_map(|event| event["data"].as_str()).collect()
}

/// Two runs with different networks, beside each other: neither has that of the other.
async fn side_by_side(far: &Far, d: &Daemon) {
    let until = "def until(path):
    while not os.path.exists(path): time.sleep(0.02)
";
    let first = format!(
        "{TRIED}{until}
import time
tried('alone', 'far.example', 7)
print('begun')
until('/data/beside')
tried('beside', 'far.example', 7)
print('proxy', requests.get('http://far.example/hello').status_code)
open('/data/tried', 'w').close()
until('/data/over'); time.sleep(0.5)
tried('again', 'far.example', 7)"
    );
    let second = format!(
        "{TRIED}{until}
import time
tried('name', 'far.example', 7)
tried('its address', '127.64.0.1', 7)
print('proxy', requests.get('http://far.example/hello').status_code)
open('/data/beside', 'w').close()
until('/data/tried')"
    );
    let one = Beside::start(d, &python(&first), allowed(&[FAR]), "begun").await;
    let before = far.connections();
    let two = Beside::start(d, &python(&second), allowed(&["blocked.example"]), "proxy").await;
    let two = two.end(d).await;
    let said = written(&two.document["output"]);
    for line in ["name gaierror", "its address ConnectionResetError", "proxy 403"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(far.connections(), before + 1, "the first run's proxy, and nothing else");
    let over = Beside::start(d, "touch /data/over; echo over", json!({}), "over").await;
    over.end(d).await;
    let said = written(&one.end(d).await.document["output"]);
    for line in ["alone b'hello'", "beside gaierror", "proxy 200", "again b'hello'"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// A run with a network is alone; runs without one are beside each other as ever.
async fn one_after_the_other(d: &Daemon) {
    let slow = |name: &str| {
        let code = "tried('slow', 'far.example', 7)\nprint('begun'); time.sleep(1)";
        python(&format!("{TRIED}import time\n{code}\nopen('/data/{name}', 'w').close()"))
    };
    let look = |name: &str| format!("test -e /data/{name} && echo after || echo before");
    let first = Beside::start(d, &slow("a"), allowed(&[FAR]), "begun").await;
    Beside::start(d, &look("a"), json!({}), "after").await.end(d).await;
    assert!(first.end(d).await.document["output"].to_string().contains("slow b'hello'"));
    let second = Beside::start(d, &slow("b"), allowed(&[FAR]), "begun").await;
    let also = Beside::start(d, &look("b"), allowed(&["blocked.example"]), "after").await;
    also.end(d).await;
    second.end(d).await;
    let waits = "echo begun; until test -e /data/c; do sleep 0.05; done; echo seen";
    let waits = Beside::start(d, waits, json!({}), "begun").await;
    Beside::start(d, "touch /data/c; echo done", json!({}), "done").await.end(d).await;
    assert!(waits.end(d).await.document["output"].to_string().contains("seen"));
}
