//! A load with something of everything that callers do, so that each family has something to count.

use serde_json::json;
use tokio::join;

use crate::support::Daemon;

/// Calls that succeed, fail, are refused, or are nonsense.
pub(super) async fn load(d: &Daemon) {
    let (s, t) = (d.session("s"), d.session("t"));
    s.sh("echo out; echo err >&2; head -c 1000 /dev/zero > /data/f").await.expect_success();
    join!(
        async { s.sh("exit 3").await.expect_exit(3) },
        async { s.sh("sleep 60").timeout(0.3).await.expect_limit(Some("wall_time")) },
        async { t.python("print(1)").await.expect_success() },
    );
    t.upload("g", &[b'x'; 500]).with("overwrite", true).await.expect_success();
    t.python("print(open('g').read())").await.expect_success();
    // Only one command may run at a time, so the second is refused after waiting.
    let first = s.tool("execute_code_async").with("command", "sleep 60").await;
    s.tool("execute_code").with("command", "true").await.expect_error("queue_full");
    let id = first.document["execution_id"].clone();
    d.tool("cancel_execution", json!({ "execution_id": id })).await.expect_success();
    d.tool("run_code", json!({ "language": "cobol", "code": "x" })).await.expect_error("unknown_language");
    d.rpc("tools/call", json!({ "name": "rm_rf" })).await;
    d.tool("list_runners", json!({})).await;
    d.request("GET", "/nothing").send().await.expect(404);
    d.request("GET", "/status").bearer("wrong").send().await.expect(401);
    d.request("GET", "/status").send().await.expect(200);
    let put = d.request("PUT", "/sessions/u/files/f").body("x").send().await;
    assert!([200, 201].contains(&put.status), "{}", put.status); // the second time it exists
    d.session("u").sh("cat f").await.expect_success();
    d.session("u").tool("close_session").await.expect_success();
}
