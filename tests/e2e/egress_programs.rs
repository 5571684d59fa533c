//! Real programs against real servers: each reaches the far side where its call allows that, and is told
//! where it does not.
//!
//! The servers are in a network namespace of the test ([`crate::far`]), at an address that counts as public.
//! Every program runs twice: with a name that its call allows, and with another name of the same address.
//! What a program says of its own errors is its own matter; that it fails, what the caller is told, and that
//! nothing has reached the far side, is ours.

use serde_json::{Value, json};

use crate::answers::Client;
use crate::far::program::{allowed, entry};
use crate::far::{BLOCKED, FAR, Far, tools};
use crate::support::{Daemon, Ran};

/// A program, which reads the name of the server where `HOST` stands.
struct Program {
    name: &'static str,
    port: u16,
    code: &'static str,
    /// The end of its output where the name is allowed.
    works: &'static str,
    /// What is in its output where the name is blocked.
    blocked: &'static str,
}

/// A model's runs of one language, in one session whose files have the far side's authority.
struct Runs<'d> {
    client: Client<'d>,
    language: &'static str,
}

impl<'d> Runs<'d> {
    async fn of(d: &'d Daemon, far: &Far, language: &'static str) -> Runs<'d> {
        d.session("s").upload("ca.pem", far.authority().as_bytes()).await.expect_success();
        Runs { client: Client::of_a_model(d).await, language }
    }

    async fn run(&self, code: &str, network: Value) -> Ran {
        let (session, language) = ("s", self.language);
        let run =
            json!({ "language": language, "code": code, "conversationId": session, "network": network });
        self.client.call("run_code", run).await
    }
}

/// Runs each program allowed and blocked.
async fn shown(far: &Far, programs: &[Program], runs: &Runs<'_>, code_of: impl Fn(&str) -> String) {
    for Program { name, port, code, works, blocked } in programs {
        let network = || allowed(&[FAR]);
        let ran = runs.run(&code_of(code).replace("HOST", FAR), network()).await;
        let output = ran.text("output");
        assert!(output.trim_end().ends_with(works), "{name}: {}", ran.document);
        let reached = entry(&ran, FAR);
        assert_eq!(
            (&reached["port"], &reached["allowed"]),
            (&json!(port), &json!(true)),
            "{name}: {reached}"
        );
        assert!(reached["bytes_in"].as_u64() > Some(0), "{name}: {reached}");
        assert!(reached["bytes_out"].as_u64() > Some(0), "{name}: {reached}");
        assert!(!ran.said.contains("was blocked"), "{name}: {}", ran.said);

        let before = far.connections();
        let ran = runs.run(&code_of(code).replace("HOST", BLOCKED), network()).await;
        assert!(ran.text("output").contains(blocked), "{name}: {}", ran.document);
        let refused = entry(&ran, BLOCKED);
        assert_eq!(refused["allowed"], false, "{name}: {refused}");
        assert_eq!(refused["reason"], "not in allowed_domains", "{name}: {refused}");
        // A program that looks the name up first has named no port yet.
        let place = match refused["port"].as_u64() {
            Some(0) => BLOCKED.to_owned(),
            seen => {
                assert_eq!(seen, Some(u64::from(*port)), "{name}: {refused}");
                format!("{BLOCKED}:{port}")
            }
        };
        let sentence = format!("{place} was blocked: not in allowed_domains");
        assert!(ran.said.contains(&sentence), "{name}: {}", ran.said);
        assert_eq!(far.connections(), before, "{name}: it reached the far side");
    }
}

const PYTHON: &[Program] = &[
    Program {
        name: "requests, redirected",
        port: 80,
        code: "import requests
r = requests.get('http://HOST/redirect'); print(r.status_code, r.text)",
        works: "200 hello from far",
        blocked: "403 blocked.example:80 is blocked",
    },
    Program {
        name: "requests, https",
        port: 443,
        code: "import requests
with requests.Session() as s:
    s.verify = '/data/ca.pem'
    for _ in range(2): print(s.post('https://HOST/', data=b'x' * 100000).text == 'x' * 100000)",
        works: "True\nTrue",
        blocked: "403 Forbidden",
    },
    Program {
        name: "urllib",
        port: 443,
        code: "import ssl, urllib.request as u
context = ssl.create_default_context(cafile='/data/ca.pem')
print(u.urlopen('https://HOST/hello', context=context).read().decode())",
        works: "hello from far",
        blocked: "403 Forbidden",
    },
    Program {
        name: "asyncio",
        port: 443,
        code: "import asyncio, ssl
async def main():
    context = ssl.create_default_context(cafile='/data/ca.pem')
    r, w = await asyncio.open_connection('HOST', 443, ssl=context)
    w.write(b'GET /hello HTTP/1.1\\r\\nHost: HOST\\r\\nConnection: close\\r\\n\\r\\n')
    print((await r.read()).decode())
asyncio.run(main())",
        works: "hello from far",
        blocked: "socket.gaierror",
    },
    Program {
        name: "a slow answer",
        port: 80,
        code: "import socket, urllib.request as u
s = socket.create_connection(('HOST', 80))
s.sendall(b'GET /slow HTTP/1.1\\r\\nHost: HOST\\r\\nConnection: close\\r\\n\\r\\n')
got = b''
while not got.endswith(b'first'): got += s.recv(1000)
print(u.urlopen('http://HOST/go').read())
print(b''.join(iter(lambda: s.recv(1000), b'')).decode())",
        works: "later",
        blocked: "socket.gaierror",
    },
    Program {
        name: "psycopg2",
        port: 5432,
        code: "import psycopg2
c = psycopg2.connect(host='HOST', user='postgres', dbname='postgres')
q = c.cursor(); q.execute('select 6 * 7, repeat(%s, 100000)', ('x',))
n, text = q.fetchone(); print(n, len(text))",
        works: "42 100000",
        blocked: "could not translate host name",
    },
];

const NODE: &[Program] = &[
    Program {
        name: "fetch",
        port: 443,
        code: "import fs from 'node:fs'; import tls from 'node:tls';
tls.setDefaultCACertificates([fs.readFileSync('/data/ca.pem', 'utf8')]);
const body = 'x'.repeat(100000);
const r = await fetch('https://HOST/', { method: 'POST', body });
console.log(r.status, (await r.text()) === body);",
        works: "200 true",
        blocked: "fetch failed",
    },
    Program {
        name: "net",
        port: 7,
        code: "import net from 'node:net';
const socket = net.connect(7, 'HOST', () => socket.end('hello'));
socket.on('data', (bytes) => console.log(bytes.toString()));",
        works: "hello",
        blocked: "ENOTFOUND",
    },
    Program {
        name: "WebSocket",
        port: 80,
        code: "const socket = new WebSocket('ws://HOST/ws');
socket.onopen = () => socket.send('hello');
socket.onmessage = ({ data }) => { console.log(data); socket.close(); };
socket.onerror = ({ error }) => console.log('no:', error?.cause?.code ?? error?.message ?? 'failed');",
        works: "hello",
        blocked: "no:",
    },
    Program {
        name: "pg",
        port: 5432,
        code: "import pg from 'pg';
const client = new pg.Client({ host: 'HOST', user: 'postgres', database: 'postgres' });
await client.connect();
console.log((await client.query('select $1::int * 7 as n', [6])).rows[0].n);
await client.end();",
        works: "42",
        blocked: "ENOTFOUND",
    },
    Program {
        name: "postgres",
        port: 5432,
        code: "import postgres from 'postgres';
const sql = postgres({ host: 'HOST', user: 'postgres', database: 'postgres' });
console.log((await sql`select 6 * 7 as n`)[0].n);
await sql.end();",
        works: "42",
        blocked: "ENOTFOUND",
    },
];

/// These run in an image with the tools; commands of a shell.
const TOOLS: &[Program] = &[
    Program {
        name: "curl",
        port: 80,
        code: "curl -sSL http://HOST/redirect",
        works: "hello from far",
        blocked: "blocked.example:80 is blocked",
    },
    Program {
        name: "curl, https",
        port: 443,
        code: "curl -sS --cacert /opt/tools/far/ca.pem https://HOST/hello 2>&1",
        works: "hello from far",
        blocked: "403",
    },
    Program {
        name: "curl, without the proxy",
        port: 443,
        code: "curl -sS --noproxy '*' --cacert /opt/tools/far/ca.pem https://HOST/hello 2>&1",
        works: "hello from far",
        blocked: "Could not resolve host",
    },
    Program {
        name: "git over https",
        port: 443,
        code: "cd /tmp && export HOME=/tmp GIT_SSL_CAINFO=/opt/tools/far/ca.pem
rm -rf by-https; git clone -q https://HOST/git/repo.git by-https 2>&1 && cd by-https && cat README &&
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m second &&
git push -q origin HEAD:second 2>&1 &&
git ls-remote --heads origin second | cut -f 2",
        works: "hello from git\nrefs/heads/second",
        blocked: "403",
    },
    Program {
        name: "git over ssh",
        port: 22,
        code: "cd /tmp && export HOME=/tmp
export GIT_SSH_COMMAND='ssh -F none -i /opt/tools/far/key -o UserKnownHostsFile=/opt/tools/far/known_hosts'
rm -rf by-ssh; git clone -q root@HOST:repo.git by-ssh 2>&1 && cat by-ssh/README",
        works: "hello from git",
        blocked: "Could not resolve hostname",
    },
];

#[tokio::test]
async fn python_libraries_reach_what_is_allowed_and_are_told_what_is_blocked() {
    let far = Far::start(&["postgres"]).await;
    let d = far.daemon().start().await;
    let runs = Runs::of(&d, &far, "python").await;
    shown(&far, PYTHON, &runs, str::to_owned).await;
    d.stop().await;
}

#[tokio::test]
async fn node_and_its_libraries_reach_what_is_allowed_and_are_told_what_is_blocked() {
    let far = Far::start(&["postgres"]).await;
    let d = far.daemon().start().await;
    let runs = Runs::of(&d, &far, "typescript").await;
    shown(&far, NODE, &runs, str::to_owned).await;
    d.stop().await;
}

#[tokio::test]
async fn curl_git_and_a_static_program_reach_what_is_allowed_and_are_told_what_is_blocked() {
    let far = Far::start(&["git"]).await;
    let image = tools::image(&far);
    let d = far.daemon().set("runners.python", image.name()).start().await;
    let runs = Runs::of(&d, &far, "python").await;
    let shell = |script: &str| {
        format!("import subprocess, sys\nsys.exit(subprocess.run({script:?}, shell=True).returncode)")
    };
    shown(&far, TOOLS, &runs, shell).await;

    // An address that is written down, by a program that asks nobody for names.
    let address = far.address.to_string();
    let connect = shell(&format!("connect-static {address} 7"));
    let ran = runs.run(&connect, allowed(&[&format!("{address}:7")])).await.expect_stdout("answer: hello\n");
    assert_eq!(entry(&ran, &address)["bytes_in"], 5, "{}", ran.document);
    let before = far.connections();
    let ran = runs.run(&connect, allowed(&[FAR])).await;
    assert_eq!(ran.stdout(), "connect: Permission denied\n", "{}", ran.document);
    let sentence = format!("{address}:7 was blocked: not in allowed_domains");
    assert!(ran.said.contains(&sentence), "{}", ran.said);
    assert_eq!((&entry(&ran, &address)["allowed"], far.connections()), (&json!(false), before));
    d.stop().await;
}
