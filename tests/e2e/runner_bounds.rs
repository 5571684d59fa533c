//! Runners with bounds and idle containers of their own, and images of coding agents, which run no language.

use serde_json::{Value, json};

use crate::support::{Daemon, Image};

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn a_runner_with_a_table_has_the_bounds_and_the_idle_containers_that_it_says() {
    let d = Daemon::with()
        .set("runners.sh.image", "paddock-example-sh")
        .set("runners.sh.idle", 2)
        .set("runners.sh.memory", "64MiB")
        .set("runners.sh.pids", 33)
        .set("runners.sh.tmp", "65MiB")
        .start()
        .await;
    let view = d.view().await;
    d.log.line("armed language=sh ").await;
    let ran = d.run("sh", "df -k /tmp | tail -n 1 | awk '{ print $2 }'").await.expect_success();
    assert_eq!(ran.stdout().lines().last(), Some("66560"), "KiB of /tmp");

    let usual = d.run("python", "print('usual')").await;
    usual.expect_stdout("usual\n");
    let inspected = async |language: &str| -> (u64, u64) {
        let id = view.containers_for(language).await.into_iter().next().expect("a container").id;
        let answer = view.inspect(&id).await;
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let host = serde_json::from_str::<Value>(body).expect("JSON")["HostConfig"].clone();
        (host["Memory"].as_u64().expect("a limit"), host["PidsLimit"].as_u64().expect("a limit"))
    };
    assert_eq!(inspected("sh").await, ((64 + 256 + 65 + 16) * MIB, 33));
    let (memory, pids) = inspected("python").await;
    assert!(memory >= (512 + 256 + 64 + 16) * MIB && pids >= 128, "{memory} {pids}: as [limits] say");

    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    for line in
        [r#"paddock_pool_idle_target{language="sh"} 2"#, r#"paddock_pool_idle_target{language="python"} 0"#]
    {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
    d.stop().await;
}

#[tokio::test]
async fn an_image_of_a_coding_agent_is_no_language() {
    // Labelled so that no other daemon uses it as a runner. It says that it runs a language too.
    let labels = "sandbox.runner=no sandbox.language=sh sandbox.agent=tester";
    let image = Image::build(&format!("FROM paddock-example-sh\nLABEL {labels}\n"), &[]);
    let d = Daemon::with().set("runners.tester", image.name()).set("pool.idle", 1).start().await;
    d.log.line("runner found language=tester").await;
    d.log.line("armed language=sh ").await;
    let listed = d.tool("list_runners", json!({})).await.document.to_string();
    assert!(listed.contains("\"sh\"") && !listed.contains("tester"), "{listed}");
    d.run("tester", "echo refused").await.expect_error("unknown_language");
    let status = d.request("GET", "/status").send().await.expect(200).text();
    assert!(status.contains("\"sh\"") && !status.contains("tester"), "{status}");
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    let line = r#"paddock_pool_idle_target{language="tester"} 0"#;
    assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    assert!(d.view().await.containers_for("tester").await.is_empty(), "none stands idle");
    d.stop().await;
}
