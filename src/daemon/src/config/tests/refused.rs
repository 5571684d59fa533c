//! The errors that stop the start, word for word: one line with the key, the origin of its value, and what it
//! takes.

use super::super::Overrides;
use super::error;

#[test]
fn a_bad_key_or_value_in_the_file_is_named_with_what_it_takes() {
    let cases = [
        (
            "pool.idel = 3",
            "pool.idel (/etc/paddock.toml): is unknown; known here: idle, idle_ttl, queue, wait, uids, \
             starting, max_containers",
        ),
        (
            "pol.idle = 3",
            "pol (/etc/paddock.toml): is unknown; known here: http, auth, audit, mcp, store, cluster, files, \
             engine, limits, timeouts, exec, sessions, pool, egress, models, packages, ports, tasks, \
             coding_agents, runners, mounts, drops, agent, metrics, log, telemetry, shutdown",
        ),
        (
            "[[auth.tokens]]\nname = \"a b\"\nsha256 = \"\"",
            "auth.tokens[0].name (/etc/paddock.toml): is \"a b\", takes up to 64 of A-Z, a-z, 0-9, _, - and \
             .",
        ),
        ("pool = 3", "pool (/etc/paddock.toml): invalid type: integer `3`, expected a table"),
        (
            "pool.idle = -1",
            "pool.idle (/etc/paddock.toml): invalid value: integer `-1`, expected a whole number from 0 to \
             4294967295",
        ),
        (
            "pool.idle = { a = 1 }",
            "pool.idle (/etc/paddock.toml): invalid type: map, expected a whole number from 0 to 4294967295",
        ),
        (
            "limits.memory = \"lots\"",
            "limits.memory (/etc/paddock.toml): is \"lots\", takes a size such as \"512MiB\" or \"100KB\", \
             or a number of bytes",
        ),
        (
            "limits.memory = -5",
            "limits.memory (/etc/paddock.toml): is -5, takes a size such as \"512MiB\" or \"100KB\", or a \
             number of bytes",
        ),
        ("limits.memory = 5", "limits.memory (/etc/paddock.toml): is 5 bytes, must be 16 MiB to 16 TiB"),
        (
            "limits.memory = \"99999999999999EiB\"",
            "limits.memory (/etc/paddock.toml): is 18446744073709551615 bytes, must be 16 MiB to 16 TiB",
        ),
        ("limits.cpus = 0", "limits.cpus (/etc/paddock.toml): is 0, must be 0.01 to 1024"),
        ("limits.cpus = nan", "limits.cpus (/etc/paddock.toml): is NaN, must be 0.01 to 1024"),
        (
            "limits.cpus = \"two\"",
            "limits.cpus (/etc/paddock.toml): invalid type: string \"two\", expected a number",
        ),
        (
            "limits.upload = \"80MB\"",
            "limits.upload (/etc/paddock.toml): is 80 MB, which needs a request of 106732204 bytes: \
             http.max_body is only 96 MiB",
        ),
        ("limits.data = \"40MiB\"", "limits.upload (default): is 50 MB, must be at most limits.data, 40 MiB"),
        (
            "limits.stdin = \"96MiB\"",
            "limits.stdin (/etc/paddock.toml): is 96 MiB, which needs a request of 98368 KiB: http.max_body \
             is only 96 MiB",
        ),
        (
            "files.max_log = \"2KiB\"",
            "files.max_log (/etc/paddock.toml): is 2 KiB, must be at least limits.output, 100 KB",
        ),
        (
            "http.header_timeout = 10",
            "http.header_timeout (/etc/paddock.toml): invalid type: integer `10`, expected a duration such \
             as \"30s\" or \"5m\"",
        ),
        (
            "http.header_timeout = \"10\"",
            "http.header_timeout (/etc/paddock.toml): is \"10\", takes a duration such as \"30s\" or \"5m\"",
        ),
        (
            "http.header_timeout = \"0s\"",
            "http.header_timeout (/etc/paddock.toml): is 0s, must be 100ms to 1h",
        ),
        (
            "timeouts.run_code = \"31m\"",
            "timeouts.run_code (/etc/paddock.toml): is 31m, must be at most timeouts.max, 30m",
        ),
        ("timeouts.max = \"40s\"", "timeouts.run_python (default): is 1m, must be at most timeouts.max, 40s"),
        (
            "sessions.retention = \"100ms\"",
            "sessions.retention (/etc/paddock.toml): is 100ms, must be 1s to 10years, or 0s",
        ),
        (
            "store.max_bytes = \"200MiB\"",
            "store.max_bytes (/etc/paddock.toml): is 200 MiB, must hold at least one session: limits.data is \
             256 MiB",
        ),
        (
            "store.max_files = 16383",
            "store.max_files (/etc/paddock.toml): is 16383, must hold at least one session: \
             limits.data_inodes is 16384",
        ),
        (
            "store.url = \"postgres://u:secret@h/d\"",
            "store.objects (default): is empty, while store.url is set: a store of many machines needs both",
        ),
        (
            "store.objects = \"s3://b\"",
            "store.url (default): is empty, while store.objects is set: a store of many machines needs both",
        ),
        (
            "store.credentials = \"/etc/aws\"",
            "store.credentials (/etc/paddock.toml): is set, and store.url is not: a store on disk has none",
        ),
        (
            "store.url = \"mysql://u:secret@h/d\"\nstore.objects = \"s3://b\"",
            "store.url (/etc/paddock.toml): is no address of a PostgreSQL database: \
             postgres://user:password@host:port/database",
        ),
        (
            "store.url = \"postgres://u:secret@h/d\"\nstore.objects = \"/b\"",
            "store.objects (/etc/paddock.toml): is \"/b\", must be s3://bucket/prefix",
        ),
        (
            "store.url = \"env:DATABASE\"\nstore.objects = \"s3://b\"",
            "store.url (/etc/paddock.toml): names \"DATABASE\", a variable that is not set",
        ),
        (
            "files.url_ttl = \"1h\"\nfiles.url_style = \"hashed\"",
            "files.url_ttl (/etc/paddock.toml): is set, but hashed links do not expire: it takes \
             files.url_style = \"signed\"",
        ),
        (
            "files.url_style = \"plain\"",
            "files.url_style (/etc/paddock.toml): unknown variant `plain`, expected `signed` or `hashed`",
        ),
        (
            "egress.listen_ports = [443, 0]",
            "egress.listen_ports (/etc/paddock.toml): has 0, takes ports from 1 to 65535",
        ),
        (
            "egress.listen_ports = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]",
            "egress.listen_ports (/etc/paddock.toml): has 17 ports, takes at most 16",
        ),
        (
            "files.previous_secrets = [\"a\", \"\"]",
            "files.previous_secrets[1] (/etc/paddock.toml): is empty, takes a previous value of files.secret",
        ),
        (
            "limits.artifact_read = \"65MiB\"",
            "limits.artifact_read (/etc/paddock.toml): is 65 MiB, must be 1 bytes to 64 MiB",
        ),
        (
            "sessions.when_full = \"wait\"",
            "sessions.when_full (/etc/paddock.toml): unknown variant `wait`, expected `evict` or `refuse`",
        ),
        (
            "pool.uids = \"20000\"",
            "pool.uids (/etc/paddock.toml): is \"20000\", takes a range such as \"20000-20999\"",
        ),
        (
            "pool.uids = \"0-999\"",
            "pool.uids (/etc/paddock.toml): is 0-999, must be a range within 1000-2147483647, lower end \
             first",
        ),
        (
            "pool.uids = \"20000-20078\"",
            "pool.uids (/etc/paddock.toml): has 79 ids for 64 containers (pool.max_containers) and 16 \
             workspaces (tasks.workspaces), must have one for each",
        ),
        (
            "pool.uids = \"20000-20009\"",
            "pool.uids (/etc/paddock.toml): has 10 ids for 64 containers, must have one for each",
        ),
        ("pool.starting = 0", "pool.starting (/etc/paddock.toml): is 0, must be at least 1"),
        ("pool.idle_ttl = \"0s\"", "pool.idle_ttl (/etc/paddock.toml): is 0s, must be 1s to 30days"),
        (
            "engine.host = \"http://x\"",
            "engine.host (/etc/paddock.toml): is \"http://x\", takes unix:///path, tcp://host:port \
             or ssh://user@host",
        ),
        (
            "runners.Python = \"x\"",
            "runners.Python (/etc/paddock.toml): is not the name of a runner: takes up to 32 of a-z, 0-9, _, \
             - and +",
        ),
        (
            "runners.python = \"--privileged\"",
            "runners.python.image (/etc/paddock.toml): is \"--privileged\", takes an image such as \
             \"python:3.13-slim\"",
        ),
        (
            "runners.python = 3",
            "runners.python (/etc/paddock.toml): invalid type: integer `3`, expected the name of an image or \
             a table",
        ),
        (
            "[runners.python]\nmemori = \"1GiB\"",
            "runners.python.memori (/etc/paddock.toml): is unknown; known here: image, idle, memory, cpus, \
             pids, data, data_inodes, stored, tmp, open_files, file_size, runtime",
        ),
        (
            "runners.python.memory = \"1MiB\"",
            "runners.python.memory (/etc/paddock.toml): is 1 MiB, must be 16 MiB to 16 TiB",
        ),
        ("runners.python.pids = 7", "runners.python.pids (/etc/paddock.toml): is 7, must be 8 to 4194304"),
        (
            "runners.python.data = \"255MiB\"",
            "runners.python.data (/etc/paddock.toml): is 255 MiB, must be at least limits.data, 256 MiB, \
             since the files of a session must fit into each of its containers",
        ),
        (
            "runners.python.data_inodes = 16383",
            "runners.python.data_inodes (/etc/paddock.toml): is 16383, must be at least limits.data_inodes, \
             16384, since the files of a session must fit into each of its containers",
        ),
        (
            "pool.queue = 0\nrunners.python.idle = 0",
            "runners.python.idle (/etc/paddock.toml): is 0 while pool.queue is 0, so nothing could ever run \
             in it; must be at least 1",
        ),
        (
            "coding_agents.stored = \"257MiB\"",
            "coding_agents.stored (/etc/paddock.toml): is 257 MiB, must be 1 MiB to 256 MiB",
        ),
        (
            "coding_agents.image = \"x\"",
            "coding_agents.image (/etc/paddock.toml): is not a key: each coding agent has an image of its \
             own, runners.NAME.image",
        ),
        (
            "runners.python.runtime = 'run sc'",
            "runners.python.runtime (/etc/paddock.toml): is \"run sc\", takes a runtime's name such as runsc",
        ),
        ("coding_agents.cpus = 0", "coding_agents.cpus (/etc/paddock.toml): is 0, must be 0.01 to 1024"),
        (
            "metrics.addr = \"9464\"",
            "metrics.addr (/etc/paddock.toml): is \"9464\", takes an IP address or localhost with a port, \
             such as 127.0.0.1:8080, or :8080 for every interface; empty for none",
        ),
        (
            "packages.python_index = \"https://me:secret@pypi.lan/\"",
            "packages.python_index (/etc/paddock.toml): takes an http or https URL without a user, a \
             query or a fragment, such as \"https://pypi.lan/simple/\"",
        ),
        (
            "packages.total_bytes = \"1MiB\"",
            "packages.total_bytes (/etc/paddock.toml): is less than packages.max_bytes: it must hold at \
             least one layer",
        ),
        (
            "packages.hosts = [\"a b\"]",
            "packages.hosts[0] (/etc/paddock.toml): is \"a b\": the pattern \"a b\" has a space",
        ),
        (
            "ports.addr = \"8081\"",
            "ports.addr (/etc/paddock.toml): is \"8081\", takes an IP address or localhost with a port, such \
             as 127.0.0.1:8080, or :8080 for every interface; empty for none",
        ),
        (
            "ports.public_url = \"example.org\"",
            "ports.public_url (/etc/paddock.toml): is \"example.org\", takes an http or https URL such as \
             \"https://sandbox.example.org\"",
        ),
        (
            "cluster.peers = [\"paddock\"]",
            "cluster.peers (/etc/paddock.toml): has \"paddock\", takes a DNS name or an address with the \
             port of cluster.addr, such as \"tasks.paddock:7946\" or \"10.0.0.2:7946\"",
        ),
        ("cluster.peers = [\"a:1\", \"a:1\"]", "cluster.peers (/etc/paddock.toml): names a peer twice"),
        (
            "cluster.peers = [\"a:1\"]",
            "cluster.addr (default): is empty, while cluster.peers names peers: name the address at \
             which they reach this node, such as \":7946\"",
        ),
        (
            "cluster.peers = [\"a:1\"]\ncluster.addr = \":1\"\ncluster.key = \"short\"",
            "cluster.key (/etc/paddock.toml): has 5 bytes, must have at least 16: whoever guesses it is a \
             node of the cluster; openssl rand -hex 32 makes one, the same for all nodes",
        ),
        (
            "auth.token = \"file:/nowhere/token\"",
            "auth.token (/etc/paddock.toml): names the file \"/nowhere/token\": entity not found",
        ),
        (
            "files.previous_secrets = [\"env:OLD\"]",
            "files.previous_secrets[0] (/etc/paddock.toml): names \"OLD\", a variable that is not set",
        ),
        (
            "metrics.token = \"file:/dev/null\"",
            "metrics.token (/etc/paddock.toml): names the file \"/dev/null\", which is empty",
        ),
        (
            "cluster.peers = [\"a:1\"]\ncluster.addr = \":1\"\ncluster.key = \"file:/nowhere/key\"",
            "cluster.key (/etc/paddock.toml): names the file \"/nowhere/key\": entity not found",
        ),
        (
            "cluster.peers = [\"a:1\"]\ncluster.addr = \":1\"\ncluster.key = \"0123456789abcdef\"\n\
             cluster.name = \"a b\"",
            "cluster.name (/etc/paddock.toml): is \"a b\", takes 1 to 64 letters, digits, full stops, \
             hyphens and underscores, different on each node",
        ),
        (
            "files.url_style = \"hashed\"\ncluster.peers = [\"a:1\"]\ncluster.addr = \":1\"",
            "files.url_style (/etc/paddock.toml): is \"hashed\", while cluster.peers names peers: only \
             signed links open at every node",
        ),
        ("ports.connections = 0", "ports.connections (/etc/paddock.toml): is 0, must be 1 to 100000"),
        (
            "metrics.token = \"a b\"",
            "metrics.token (/etc/paddock.toml): takes visible ASCII characters without spaces: a header \
             carries no others",
        ),
        (
            "auth.token = \"0123456789abcdef\"\nmetrics.token = \"0123456789abcdef\"",
            "metrics.token (/etc/paddock.toml): is a token that can run code as well; it takes one of its \
             own",
        ),
        (
            "log.level = \"loud\"",
            "log.level (/etc/paddock.toml): is \"loud\", takes error, warn, info, debug or trace",
        ),
        (
            "http.addr = \"example.org:80\"",
            "http.addr (/etc/paddock.toml): is \"example.org:80\", takes an IP address or localhost with a \
             port, such as 127.0.0.1:8080, or :8080 for every interface",
        ),
        (
            "http.public_url = \"example.org\"",
            "http.public_url (/etc/paddock.toml): is \"example.org\", takes an http or https URL such as \
             \"https://sandbox.example.org\"",
        ),
        (
            "http.allowed_hosts = [\"a\", \"*\"]",
            "http.allowed_hosts[1] (/etc/paddock.toml): is \"*\", takes a name such as \"paddock.lan\" or \
             \"paddock.lan:8080\"",
        ),
        (
            "http.allowed_origins = [\"null\"]",
            "http.allowed_origins[0] (/etc/paddock.toml): is \"null\", takes an origin such as \
             \"https://n8n.example.org\"",
        ),
        (
            "agent.orphan_after = \"1s\"",
            "agent.orphan_after (/etc/paddock.toml): is 1s, must be 30s to 30days",
        ),
        ("[http]\naddr = ", "/etc/paddock.toml:2:8: string values must be quoted, expected literal string"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text, &[]), expected, "{text}");
    }
}

#[test]
fn an_unreadable_file_is_an_error() {
    let nowhere = std::path::Path::new("/nonexistent/paddock.toml");
    let problem =
        super::Config::load(Some(nowhere), &std::collections::BTreeMap::new(), &Overrides::default());
    assert_eq!(
        problem.expect_err("no file").to_string(),
        "/nonexistent/paddock.toml: cannot be read: entity not found"
    );
}

#[test]
fn without_a_token_only_this_machine_may_reach_it() {
    let end = "which others can reach, and there is no token: set auth.token (MCP_API_TOKEN), \
               make one with `paddock token add NAME`, or set http.allow_open (--allow-open) to let \
               everyone run code here";
    assert_eq!(
        error("", &[("MCP_HTTP_ADDR", ":8080")]),
        format!("http.addr (environment MCP_HTTP_ADDR): is 0.0.0.0:8080, {end}")
    );
    assert_eq!(
        error("http.public_url = \"https://sandbox.example.org\"", &[]),
        format!("http.public_url (/etc/paddock.toml): is https://sandbox.example.org, {end}")
    );
}

#[test]
fn no_error_and_no_debug_shows_a_secret() {
    let secret = "hunter2hunter2 hunter2";
    let cases: &[(&str, &[(&str, &str)])] = &[
        (r#"auth.token = "hunter2hunter2 hunter2""#, &[]),
        (r#"auth.token = ["hunter2hunter2 hunter2"]"#, &[]),
        (r#"auth = "hunter2hunter2 hunter2""#, &[]),
        (r#"auth.tokens = "hunter2hunter2 hunter2""#, &[]),
        (r#"auth.tokens = ["hunter2hunter2 hunter2"]"#, &[]),
        ("[[auth.tokens]]\nname = \"a\"\nsha256 = \"hunter2hunter2 hunter2\"", &[]),
        (r#"files = "hunter2hunter2 hunter2""#, &[]),
        (r#"files.secret = ["hunter2hunter2 hunter2"]"#, &[]),
        (r#"files.previous_secrets = "hunter2hunter2 hunter2""#, &[]),
        (r#"files.previous_secrets = [["hunter2hunter2 hunter2"]]"#, &[]),
        ("", &[("MCP_API_TOKEN", secret)]),
        ("auth.token = \"hunter2hunter2", &[]),
    ];
    for (text, env) in cases {
        let problem = super::load(text, env).expect_err(text);
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
        assert!(!format!("{problem:?}").contains("hunter2"), "{problem:?}");
        assert!(!problem.to_string().contains('\n'), "{problem}");
    }
    let file = r#"files.previous_secrets = ["hunter2hunter2"]"#;
    let loaded =
        super::load(file, &[("FILE_SECRET", secret), ("MCP_API_TOKEN", "hunter2")]).expect("it loads");
    assert!(!format!("{loaded:?}").contains("hunter2"), "{loaded:?}");
}
