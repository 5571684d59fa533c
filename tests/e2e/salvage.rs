//! Files of a container whose agent cannot be reached.

use tokio::join;

use crate::support::{Daemon, PATIENCE};

#[tokio::test]
async fn files_of_a_paused_container_are_saved_before_its_removal() {
    let d = Daemon::start().await;
    let s = d.session("s");
    let before =
        "echo same > same; echo 12 > changed; echo old > gone; mkdir full; echo x > full/x; touch /tmp/mark";
    s.sh(before).await.expect_success();
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let mut happenings = view.follow().await;
    let code = "echo 34 > changed; rm gone; mkdir -p new/deep; printf 'a\\0b' > new/deep/f; ln -s new l; \
                mkfifo pipe; head -c 3000000 /dev/zero > big; echo out; touch /tmp/begun; sleep 60";
    let (ran, ()) = join!(async { s.sh(code).timeout(50.0).await }, async {
        view.begun(&container).await;
        view.engine.container_pause(&container).await.expect("paused");
    });
    // How the program ended is unknown, but the files that it had made are there.
    let ran = ran.expect_error("lost").expect_exit(-1);
    assert_eq!(ran.stdout(), "out\n");
    let mut artifacts = ran.artifacts();
    artifacts.sort();
    assert_eq!(artifacts, ["big", "changed", "new/deep/f"].map(|name| format!("/mnt/data/{name}")));
    assert!(ran.text("message").contains("were saved"), "{}", ran.document);
    // An archive may lack a file that exists, so nothing is deleted because of it.
    let look = "cat same changed gone full/x; cat l/deep/f | od -An -c; stat -c %s big; [ -e /tmp/mark ] || \
                echo fresh";
    s.sh(look).await.expect_stdout("same\n34\nold\nx\n   a  \\0   b\n3000000\nfresh\n");
    // The next call does not wait for the removal.
    happenings.removal_of(&container, PATIENCE).await;
    d.stop().await;
}
