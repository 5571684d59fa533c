//! `sandbox_config.filesystem` as callers write it; module `policy` tests its enforcement.

use serde_json::{Value, json};

use super::{bytes_of, daemon};

#[tokio::test]
async fn a_policy_applies_to_its_command_and_to_no_other() {
    let d = daemon().start().await;
    let s = d.session("s");
    let run = |command: &str, filesystem: Value| {
        s.tool("execute_code")
            .with("command", command)
            .with("sandbox_config", json!({ "filesystem": filesystem }))
    };
    let example =
        || json!({ "deny_read": ["~/.ssh"], "allow_write": ["/tmp", "."], "deny_write": [".env", "*.key"] });
    s.tool("execute_code")
        .with("command", "mkdir -p sub ~/.ssh; echo old | tee .env sub/a.key ~/.ssh/id")
        .await;
    let tries = "try() { sh -c \"$1\" 2>/dev/null && echo \"did: $1\"; }; try 'echo new > .env'; try 'echo \
                 new > sub/a.key'; try 'echo new > later.key'; try 'mv sub gone'; try 'cp sub/a.key copy && \
                 mv copy b.key'; try 'ln -s .env link && echo new > link'; try 'rm -f .env'; try 'cat \
                 ~/.ssh/id'; try 'echo new > /workspace/.env'; try 'echo fine > fine'; try 'echo fine > \
                 /tmp/fine'; try 'cat .env'; try 'true > /dev/null'";
    let ran = run(tries, example()).await;
    let did = String::from_utf8(bytes_of(ran.document["output"].as_array().expect("events"), "stdout"))
        .expect("text");
    assert_eq!(
        did.lines().filter(|line| line.starts_with("did: ")).collect::<Vec<_>>(),
        ["did: echo fine > fine", "did: echo fine > /tmp/fine", "did: cat .env", "did: true > /dev/null"],
        "{}",
        ran.document
    );
    s.sh("cat .env sub/a.key").await.expect_stdout("old\nold\n");
    // In camelCase, and nothing may be written at all.
    let ran =
        run("echo x > f || echo no; echo y > /dev/null && echo still", json!({ "allowWrite": [] })).await;
    assert_eq!(bytes_of(ran.document["output"].as_array().expect("events"), "stdout"), b"no\nstill\n");
    // The files of a command without a policy are not protected from that command.
    s.tool("execute_code").with("command", "echo new > .env").await;
    s.sh("cat .env").await.expect_stdout("new\n");
    run("true", json!({ "deny_write": ["[a"] })).await.expect_error("invalid_argument");
    d.stop().await;
}
