//! What policies say of paths, case by case.

use super::*;

fn rules(allow: Option<&[&str]>, deny_read: &[&str], deny_write: &[&str]) -> Rules {
    let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
    let policy =
        FilePolicy { allow_write: allow.map(list), deny_read: list(deny_read), deny_write: list(deny_write) };
    let real = |path: &str| path.replace("/data/link", "/data/target").into_bytes();
    Rules::new(&policy, "/workspace/project", "/data", &real).expect("good")
}

#[test]
fn the_example_of_the_coding_agents_holds() {
    let rules = rules(Some(&["/tmp", "."]), &["~/.ssh", "~/.aws"], &[".env", "*.key"]);
    for path in ["/tmp/x", "/data/project", "/workspace/project/a/b", "/mnt/data/project/.envrc", "/dev/null"]
    {
        assert!(rules.may_write(path.as_bytes()), "{path}");
    }
    for path in [
        "/data/project/.env",
        "/mnt/data/project/a/.env",
        "/workspace/project/a/b.key",
        "/data/project/x.key/inside",
        "/data/other",
        "/data",
        "/tmpx",
        "/etc/passwd",
        "/dev/nullx",
    ] {
        assert!(!rules.may_write(path.as_bytes()), "{path}");
    }
    assert!(rules.may_write(b"/tmp/.env"), "a name is looked for below the working directory");
    assert!(!rules.may_read(b"/workspace/.ssh/id_rsa") && !rules.may_read(b"/data/.aws"));
    assert!(rules.may_read(b"/data/project/.env") && rules.may_read(b"/data/.sshx"));
    assert!(rules.deny_reading() && rules.deny_anything());
}

#[test]
fn patterns_with_a_slash_are_matched_from_the_root_on() {
    for (pattern, yes, no) in [
        (
            "a/*.txt",
            &["/data/project/a/x.txt", "/data/project/a/x.txt/y"][..],
            &["/data/project/a/b/x.txt"][..],
        ),
        ("./x", &["/data/project/x"], &["/data/project/a/x"]),
        ("**/x", &["/data/project/x", "/data/project/a/b/x/y"], &["/data/x"]),
        ("a/**/z", &["/data/project/a/z", "/data/project/a/b/c/z"], &["/data/project/a/b"]),
        ("a/**", &["/data/project/a/b"], &["/data/project/a"]),
        ("../up/", &["/data/up", "/data/up/x"], &["/data/project/up"]),
        ("/", &["/", "/any"], &[]),
        ("/data/link/x", &["/data/link/x", "/data/target/x"], &["/data/target"]),
        ("~", &["/data/project", "/data"], &["/tmp"]),
        ("/mnt/**", &["/data/s", "/mnt/data/s/x"], &["/tmp/s"]),
        ("/work*/s", &["/data/s", "/workspace/s/x"], &["/data/t"]),
        ("/workspace/s", &["/data/s", "/mnt/data/s/x"], &["/workspaces"]),
    ] {
        let (write, read) = (rules(None, &[], &[pattern]), rules(None, &[pattern], &[]));
        for path in yes {
            assert!(!write.may_write(path.as_bytes()) && !read.may_read(path.as_bytes()), "{pattern} {path}");
            assert_eq!(write.denied(path.as_bytes()), (false, true));
        }
        for path in no {
            assert!(write.may_write(path.as_bytes()) && read.may_read(path.as_bytes()), "{pattern} {path}");
        }
        let allow = rules(Some(&[pattern]), &[], &[]);
        assert!(yes.iter().all(|path| allow.may_write(path.as_bytes())), "{pattern}");
    }
    let nothing = rules(Some(&[]), &[], &[]);
    assert!(nothing.may_write(b"/dev/shm/sem.x") && !nothing.may_write(b"/dev/shm/x"));
    assert!(!nothing.may_write(b"/dev/shm/sem.x/y") && !nothing.may_write(b"/dev/shm/sem."));
    assert!(!nothing.may_write_any(b"/dev/shm/sem.x"), "a directory, a link or a pipe is no semaphore");
    assert!(!rules(Some(&[]), &[], &["/dev/shm/sem.x"]).may_write(b"/dev/shm/sem.x"));
    assert!(!nothing.may_write(b"/tmp/x") && nothing.may_write(b"/dev/pts/0") && !nothing.deny_anything());
}

#[test]
fn a_directory_with_odd_characters_is_no_pattern() {
    let policy = FilePolicy { allow_write: Some(vec![".".to_owned()]), ..FilePolicy::default() };
    let rules = Rules::new(&policy, "/data/[x*", "/data", &|path| path.into()).expect("good");
    assert!(rules.may_write(b"/data/[x*/y") && !rules.may_write(b"/data/[xx/y"));
}

#[test]
fn sockets_may_be_made_where_nothing_is_denied() {
    let dirs =
        |rules: Rules| rules.free_dirs().into_iter().map(|d| d.display().to_string()).collect::<Vec<_>>();
    assert_eq!(dirs(rules(Some(&["/tmp", "."]), &["~/.ssh"], &[".env"])), ["/tmp/"]);
    assert_eq!(dirs(rules(Some(&["/tmp", ".", "*.x"]), &[], &[])), ["/tmp/", "/data/project/"]);
    assert_eq!(dirs(rules(Some(&["/tmp", "/data/a"]), &[], &["/tmp/*/x"])), ["/data/a/"]);
    assert_eq!(dirs(rules(None, &[], &["/data/a"])), ["/home/agent/", "/tmp/", "/dev/shm/"]);
    assert!(dirs(rules(None, &[], &["/**/x"])).is_empty());
    // Whatever name of the volume a path has.
    let hidden = rules(None, &["/workspace/**/.opencode"], &[]);
    for path in ["/data/.opencode/a", "/home/workspace/.opencode/a", "/mnt/data/x/.opencode"] {
        assert!(!hidden.may_read(path.as_bytes()), "{path}");
    }
    assert!(hidden.may_read(b"/home/agent/.opencode"));
}

#[test]
fn a_directory_above_a_denied_place_is_known() {
    let rules = rules(None, &["~/a/b/c"], &["/tmp/*/x"]);
    for (path, above) in [
        ("/data", true),
        ("/mnt/data/a/b", true),
        ("/data/a/b/c", false),
        ("/tmp/q", true),
        ("/data/b", false),
    ] {
        assert_eq!(rules.would_bypass(path.as_bytes(), None), above, "{path}");
        assert_eq!(rules.would_bypass(path.as_bytes(), Some(b"/data/other")), above, "{path}");
    }
}

#[test]
fn a_link_bypasses_a_rule_unless_the_same_is_denied_where_it_leads() {
    for (deny, path, target, round) in [
        // What the pattern names behind its `**`, wherever that is.
        ("**/.git/hooks", "/data/project/.git", "/data/project/real", true),
        ("**/.git/hooks", "/data/project/a/.git", "/data/project/a/b", true),
        ("**/.git/hooks", "/data/project/.git", "/data/project/sub/.git", false),
        ("**/.git/hooks", "/data/project/.git", "/data/project/.git/hooks/x", false),
        ("**/.git/hooks", "/data/project/.gitx", "/data/project/real", false),
        // A directory on the way there: below another of the same tree the same is denied, elsewhere it is
        // not.
        ("**/.git/hooks", "/data/project/sub", "/workspace/project/real", false),
        ("**/.git/hooks", "/data/project/sub", "/data/project", false),
        ("**/.git/hooks", "/data/project/sub", "/data/elsewhere", true),
        ("**/.git/hooks", "/data/project/sub", "/tmp", true),
        ("**/.git/hooks", "/tmp/sub", "/tmp/real", false),
        ("a/**/x", "/data/project/a", "/data/project/b", true),
        ("a/**/x", "/data/project/a/b", "/data/project/a/c", false),
        ("a/**/b/*/x", "/data/project/a/b", "/data/project/a/c", true),
        ("a/**/b/*/x", "/data/project/a/c", "/data/project/a/b", false),
        ("/tmp/*/x", "/tmp/q", "/tmp/r", false),
        ("/tmp/*/x", "/tmp/q", "/tmp", true),
        ("/mnt/**/x", "/data/q", "/data/r", false),
        ("/mnt/**/x", "/data/q", "/tmp", true),
        // A name is denied at any depth below the working directory.
        (".env", "/data/project/sub", "/data/project/a/b", false),
        (".env", "/data/project/sub", "/workspace/project", false),
        (".env", "/data/project/sub", "/data", true),
        (".env", "/data/project/sub", "/tmp", true),
        (".env", "/data/other", "/tmp", false),
        (".env", "/tmp/sub", "/tmp/x", false),
    ] {
        for rules in [rules(None, &[], &[deny]), rules(None, &[deny], &[])] {
            let leads = rules.would_bypass(path.as_bytes(), Some(target.as_bytes()));
            assert_eq!(leads, round, "{deny}: {path} -> {target}");
        }
    }
    let rules = rules(None, &[], &["**/.git/hooks"]);
    assert!(rules.would_bypass(b"/data/project/sub", None) && !rules.would_bypass(b"/tmp/sub", None));
    assert!(!rules.would_bypass(b"/data/project/.git/hooks/x", None), "it may not be made at all");
}
