//! Folders of the host that are refused: mounts and drop folders, with the reason in each error.

use super::{config, error};

#[test]
fn a_folder_that_no_program_may_see_is_refused_with_its_reason() {
    let mount = |name: &str, path: &str, more: &str| {
        error(&format!("[[mounts]]\nname = \"{name}\"\npath = \"{path}\"\n{more}"), &[])
    };
    let of_path = "mounts[0].path (/etc/paddock.toml): is ";
    for path in ["docs", "./docs", "", "/srv/../etc", "/srv/./docs", "/srv/docs/", "//srv/docs", "/srv//docs"]
    {
        let takes =
            format!("{of_path}{path:?}, takes an absolute path without `.`, `..` and a slash at the end");
        assert_eq!(mount("docs", path, ""), takes);
    }
    assert!(mount("docs", "/srv/a\\nb", "").contains("must have no control characters"));
    for path in [
        "/proc",
        "/proc/1/root",
        "/sys",
        "/dev",
        "/dev/shm/x",
        "/run",
        "/var/run/docker.sock",
        "/var/lib/docker/volumes",
        "/var/lib/containerd",
        "/home/ann/.local/state/paddock",
        "/home/ann/.local/state/paddock/sessions",
    ] {
        let said = mount("docs", path, "");
        assert!(
            said.starts_with(of_path) && said.contains("which holds") | said.contains("it holds"),
            "{said}"
        );
    }
    for path in ["/", "/var", "/var/lib", "/home", "/home/ann"] {
        let said = mount("docs", path, "");
        assert!(said.contains("is in it, which holds what programs must not reach"), "{said}");
    }
    let said =
        error("engine.host = \"unix:///srv/engine/e.sock\"\n[[mounts]]\nname = \"a\"\npath = \"/srv\"", &[]);
    assert!(said.contains("/srv/engine/e.sock is in it"), "{said}");

    for name in ["", "A", "a/b", "..", "-a", "_a", "a b", &"a".repeat(33)] {
        assert!(mount(name, "/srv/docs", "").contains("takes up to 32 of a-z, 0-9, _ and -"), "{name}");
    }
    assert!(mount("data", "/srv/docs", "").contains("/mnt/data is the session's own folder"));
    let second = "[[mounts]]\nname = \"docs\"\npath = \"/srv/other\"\n";
    assert_eq!(
        mount("docs", "/srv/docs", second),
        "mounts[1].name (/etc/paddock.toml): is \"docs\", which another mount has too"
    );
    assert!(mount("docs", "/srv/docs", "about = \"a\\u001bb\"").contains("takes one line of at most 200"));
    assert!(
        mount("docs", "/srv/docs", "runners = [\"A\"]").contains("has \"A\"; a runner's name takes up to")
    );
    assert!(mount("docs", "/srv/docs", "writable = true").contains("writable"));
    let many: String =
        (0..17).map(|n| format!("[[mounts]]\nname = \"m{n}\"\npath = \"/srv/{n}\"\n")).collect();
    assert_eq!(error(&many, &[]), "mounts (/etc/paddock.toml): has 17 entries, must have at most 16");
}

#[test]
fn what_the_daemon_reads_and_writes_is_shown_to_no_program() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("it exists");
    let at = |name: &str| root.join(name).display().to_string();
    for name in ["store2", "sockets2", "keys", "tls", "logs", "ca", "runtime", "docs"] {
        std::fs::create_dir(root.join(name)).expect("a folder");
    }
    for (link, target) in [("store", "store2"), ("sockets", "sockets2"), ("keys-link", "keys")] {
        std::os::unix::fs::symlink(at(target), root.join(link)).expect("a link");
    }
    std::fs::write(root.join("keys/proxy"), "http://proxy.lan:3128").expect("a file");
    std::fs::write(root.join("keys/service"), "a-secret-of-a-service").expect("a file");
    let settings = |table: &str, path: &str| {
        format!(
            "store.root = \"{}\"\nengine.host = \"unix://{}\"\nlog.file = \"{}\"\n\
             egress.upstream_proxy = \"file:{}\"\n\
             [[egress.services]]\nname = \"a\"\nurl = \"https://a.lan\"\n\
             headers.authorization = \"Bearer file:{}\"\n\
             [[{table}]]\n{}path = \"{path}\"\n",
            at("store/new"),
            at("sockets/e.sock"),
            at("logs/paddock.log"),
            at("keys-link/proxy"),
            at("keys/service"),
            if table == "mounts" { "name = \"docs\"\n" } else { "" },
        )
    };
    let runtime = at("runtime");
    let env = [("XDG_RUNTIME_DIR", runtime.as_str())];
    for table in ["mounts", "drops"] {
        for closed in
            ["store2", "store2/new", "store/new/x", "sockets2", "logs", "keys", "keys-link", "runtime"]
        {
            let said = error(&settings(table, &at(closed)), &env);
            assert!(
                said.starts_with(&format!("{table}[0].path")) && said.contains("must not reach"),
                "{said}"
            );
        }
        let said = error(&settings(table, "/etc"), &env);
        assert!(said.contains("must not reach"), "it has the configuration in it: {said}");
        for open in ["docs", "store2/other", "keys/docs"] {
            super::load(&settings(table, &at(open)), &env).expect("it holds nothing of the daemon's");
        }
    }
    let tls = format!(
        "engine.host = \"tcp://10.0.0.1:2376\"\nengine.certificates = \"{}\"\n[[drops]]\npath = \"{0}\"",
        at("tls")
    );
    assert!(error(&tls, &[]).contains("must not reach"));
}

#[test]
fn a_drop_folder_is_of_one_known_tenant_and_in_no_other_s() {
    let drops = |text: &str| error(text, &[]);
    let one = "[[drops]]\npath = \"/srv/drops\"\n";
    assert_eq!(config(one, &[]).drops[0].tenant, "default");
    assert!(
        drops("[[drops]]\npath = \"drops\"")
            .contains("drops[0].path (/etc/paddock.toml): is \"drops\", takes")
    );
    assert!(drops("[[drops]]\npath = \"/home/ann\"").contains("holds what programs must not reach"));
    assert_eq!(
        drops("[[drops]]\ntenant = \"ann\"\npath = \"/srv/drops\""),
        "drops[0].tenant (/etc/paddock.toml): is \"ann\", which is the name of no token of auth.tokens"
    );
    let twice = format!("{one}[[drops]]\npath = \"/srv/others\"");
    assert!(
        drops(&twice)
            .contains("drops[1].tenant (/etc/paddock.toml): is \"default\", which has a folder already")
    );
    let sha256 = "0".repeat(64);
    let token = format!("[[auth.tokens]]\nname = \"ann\"\nsha256 = \"{sha256}\"\n");
    for path in ["/srv/drops", "/srv/drops/ann", "/srv"] {
        let inside = format!("{token}{one}[[drops]]\ntenant = \"ann\"\npath = \"{path}\"");
        assert!(drops(&inside).contains("which tenant \"default\" has, or has a part of"), "{path}");
    }
}
