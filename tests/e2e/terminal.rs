//! `paddock run` as people and scripts use it: with a daemon, and alone.

use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::support::{Daemon, PATIENCE, Store, View, engine_host, within};

/// `paddock run` on a store.
fn command(store: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
    command.arg("run").args(words).env_clear().env("SANDBOX_ROOT", store);
    command.env("DOCKER_HOST", engine_host().to_string()).env("MCP_HTTP_ADDR", "127.0.0.1:0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(store: &Path, words: &[&str]) -> Output {
    within(PATIENCE, "a run", command(store, words).output()).await.expect("the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn expect(ran: &Output, code: i32, stdout: &str, stderr: &str) {
    let seen = (ran.status.code(), text(&ran.stdout), text(&ran.stderr));
    assert_eq!(seen, (Some(code), stdout.to_owned(), stderr.to_owned()));
}

#[tokio::test]
async fn it_is_as_if_the_language_were_installed() {
    let d = Daemon::start().await;
    let at = d.store.path();
    expect(&run(at, &["-l", "sh", "-c", "echo out; echo err >&2; exit 3"]).await, 3, "out\n", "err\n");
    expect(&run(at, &["-l", "sh", "-c", "kill -9 $$"]).await, 137, "", "");
    expect(
        &run(at, &["-l", "python", "-c", "import os; print(os.environ['A'])", "-e", "A=b=c"]).await,
        0,
        "b=c\n",
        "",
    );

    // The program from standard input, and then only its input.
    let piped = async |words: &[&str], input: &str| {
        let mut child = command(at, words).stdin(Stdio::piped()).spawn().expect("the program");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).await.expect("it reads");
        within(PATIENCE, "a run", child.wait_with_output()).await.expect("an end")
    };
    expect(&piped(&["-l", "python", "-"], "print(6 * 7)").await, 0, "42\n", "");
    expect(&piped(&["-l", "python"], "print(6 * 7)").await, 0, "42\n", "");
    let echo = "import sys; print(sys.stdin.read().upper(), end='')";
    expect(&piped(&["-i", "-l", "python", "-c", echo], "ä line\n").await, 0, "Ä LINE\n", "");
    d.stop().await;
}

#[tokio::test]
async fn files_go_in_and_come_out() {
    let d = Daemon::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::create_dir_all(at("in/deep")).expect("folders");
    std::fs::write(at("in/deep/a.csv"), "1,2\n").expect("a file");
    std::fs::write(at("b.bin"), [0, 255, 10, 13]).expect("a file");
    std::fs::write(
        at("p.py"),
        "import os, shutil\nshutil.copy('in/deep/a.csv', 'c.csv')\n\
                                os.makedirs('x/y')\nshutil.copy('b', 'x/y/b')\nopen('big', \
                                'wb').write(bytes(20_000_000))\n[open(f'n{i}', 'w').close() for i in \
                                range(150)]\n",
    )
    .expect("a program");
    let out = at("out");
    let words = [&at("p.py"), "-f", &at("in"), "-f", &(at("b.bin") + ":b"), "-o", &out];
    expect(&run(d.store.path(), &words).await, 0, "", "");
    let made =
        |name: &str| std::fs::read(Path::new(&out).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!((made("c.csv"), made("x/y/b")), (b"1,2\n".to_vec(), vec![0, 255, 10, 13]));
    assert_eq!(made("big").len(), 20_000_000);
    assert!((0..150).all(|n| made(&format!("n{n}")).is_empty()));

    // Without a folder for them the files are only named; and nothing of a run remains.
    let odd = "open('a\\x1b[31m', 'w').write('x')";
    let ran = run(d.store.path(), &["-l", "python", "-c", odd]).await;
    expect(&ran, 0, "", "paddock: the program made a\\u{1b}[31m; -o FOLDER downloads its files\n");
    let stored = std::fs::read_dir(d.store.path()).expect("the store").filter_map(|entry| {
        let path = entry.expect("an entry").path().join("files");
        path.is_dir().then_some(path)
    });
    assert_eq!(stored.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
    d.stop().await;
}

#[tokio::test]
async fn a_named_session_stays() {
    let d = Daemon::start().await;
    let at = d.store.path();
    let note = "paddock: the program made f; -o FOLDER downloads its files\n";
    expect(&run(at, &["-s", "mine", "-l", "sh", "-c", "echo x > f"]).await, 0, "", note);
    expect(&run(at, &["-s", "mine", "-l", "python", "-c", "print(open('f').read())"]).await, 0, "x\n\n", "");
    d.session("mine").sh("cat f").await.expect_stdout("x\n");
    // Whatever its name is.
    expect(&run(at, &["-s", "paddock-run-mine", "-l", "sh", "-c", "echo x > f"]).await, 0, "", note);
    d.session("paddock-run-mine").sh("cat f").await.expect_stdout("x\n");
    d.stop().await;
}

/// No result is lost because its file cannot be written, and the others are still written.
#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_and_the_others_are_written() {
    let d = Daemon::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::create_dir_all(at("out/m")).expect("folders");
    std::os::unix::fs::symlink(folder.path(), at("out/up")).expect("a link");
    let code = "mkdir up; echo 1 > a; echo 2 > m; echo 3 > up/x; echo 4 > z";
    let ran = run(d.store.path(), &["-l", "sh", "-c", code, "-o", &at("out")]).await;
    let said = text(&ran.stderr);
    assert!(
        ran.status.code() == Some(125) && said.contains("2 of the program's files could not be written to"),
        "{said}"
    );
    assert!(said.contains("/out/m: ") && said.contains("leads out of"), "{said}");
    let made = |name: &str| std::fs::read_to_string(at(name)).ok();
    assert_eq!(
        (made("out/a"), made("out/z"), made("x")),
        (Some("1\n".to_owned()), Some("4\n".to_owned()), None)
    );

    // The folder is checked before anything runs.
    let ran = run(d.store.path(), &["-l", "sh", "-c", "echo ran", "-o", &at("out/a")]).await;
    assert!(ran.status.code() == Some(125) && ran.stdout.is_empty(), "{ran:?}");
    let ran = run(d.store.path(), &["-l", "sh", "-c", "ls", "-f", &at("out")]).await;
    assert_eq!((text(&ran.stdout), ran.status.code()), ("out\n".to_owned(), Some(0)));
    assert!(text(&ran.stderr).contains("out/up is a link"), "{ran:?}");
    d.stop().await;
}

/// As with `head`.
#[tokio::test]
async fn it_ends_quietly_when_its_reader_is_gone() {
    let d = Daemon::start().await;
    let mut child = command(d.store.path(), &["-l", "sh", "-c", "yes"]).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(within(PATIENCE, "a line", lines.next_line()).await.expect("a line").as_deref(), Some("y"));
    drop(lines);
    let ended = within(PATIENCE, "its end", child.wait_with_output()).await.expect("an end");
    assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(141), String::new()));
    d.stop().await;
}

/// The program continues only when its first line was seen.
#[tokio::test]
async fn output_comes_while_the_program_runs() {
    let d = Daemon::with().set("pool.idle", 0).start().await;
    let code = "echo first; until [ -e /tmp/seen ]; do sleep 0.01; done; echo last";
    let mut child = command(d.store.path(), &["-l", "sh", "-c", code]).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let first = within(PATIENCE, "its first line", lines.next_line()).await.expect("a line");
    assert_eq!(first.as_deref(), Some("first"));
    let view = d.view().await;
    view.exec(&view.the_container("sh").await, &["touch", "/tmp/seen"]).await;
    let last = within(PATIENCE, "its last line", lines.next_line()).await.expect("a line");
    assert_eq!(last.as_deref(), Some("last"));
    assert!(within(PATIENCE, "its end", child.wait()).await.expect("an end").success());
    d.stop().await;
}

/// A slow reader is waited for, and gets every byte.
#[tokio::test]
async fn output_is_complete_however_slowly_it_is_read() {
    let d = Daemon::start().await;
    let code = "i=0; while [ $i -lt 30000 ]; do echo \"line $i\"; i=$((i+1)); done; yes x | head -c 8000000; \
                echo end >&2";
    let mut child = command(d.store.path(), &["-l", "sh", "-c", code]).spawn().expect("the program");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut all = Vec::new();
    // Less at a time than the program writes, so its output backs up all the way.
    let mut piece = vec![0; 1000];
    loop {
        let n = within(PATIENCE, "more output", stdout.read(&mut piece)).await.expect("a pipe");
        if n == 0 {
            break;
        }
        all.extend_from_slice(&piece[..n]);
    }
    let mut expected: Vec<u8> = (0..30_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    expected.extend(b"x\n".repeat(4_000_000));
    assert!(all == expected, "{} bytes, not {}", all.len(), expected.len());
    let ended = within(PATIENCE, "its end", child.wait_with_output()).await.expect("an end");
    assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(0), "end\n".to_owned()));
    d.stop().await;
}

#[tokio::test]
async fn a_program_that_cannot_run_is_reported_with_the_reason() {
    let d = Daemon::start().await;
    let at = d.store.path();
    let ran = run(at, &["-t", "2.5", "-l", "sh", "-c", "echo begun; sleep 60"]).await;
    expect(&ran, 124, "begun\n", "paddock: Execution timed out after 2.5 seconds\n");
    // As long as the most patient callers ask for, and no longer.
    expect(&run(at, &["-t", "30m", "-l", "sh", "-c", "echo ran"]).await, 0, "ran\n", "");
    let ran = run(at, &["-t", "1801", "-l", "sh", "-c", "echo ran"]).await;
    assert!(ran.status.code() == Some(125) && text(&ran.stderr).contains("at most 1800"), "{ran:?}");
    let unknown = "paddock: no runner for language \"cobol\"; there are: python, sh, typescript\n";
    expect(&run(at, &["-l", "cobol", "-c", "x"]).await, 125, "", unknown);
    let ran = run(at, &["-l", "sh", "-c", "x", "-f", "/no/such/file"]).await;
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(125), 0));
    assert!(text(&ran.stderr).contains("/no/such/file"), "{}", text(&ran.stderr));
    let ran = run(at, &["-c", "x"]).await;
    assert!(
        ran.status.code() == Some(125) && text(&ran.stderr).contains("-l python"),
        "{}",
        text(&ran.stderr)
    );
    assert_eq!(run(at, &["-t", "never", "-c", "x"]).await.status.code(), Some(2));
    d.stop().await;
}

#[tokio::test]
async fn a_language_has_its_usual_names() {
    let d = Daemon::start().await;
    let at = d.store.path();
    expect(&run(at, &["-l", "Bash", "-c", "echo $((6 * 7))"]).await, 0, "42\n", "");
    expect(&run(at, &["-l", "JavaScript", "-c", "console.log(6 * 7)"]).await, 0, "42\n", "");
    let similar =
        "no runner for language \"pyhton\"; did you mean python?; there are: python, sh, typescript";
    expect(&run(at, &["-l", "pyhton", "-c", "x"]).await, 125, "", &format!("paddock: {similar}\n"));
    // From any client, and the answer names the language itself.
    let ran = d.run("py", "print(6 * 7)").await.expect_stdout("42\n");
    assert_eq!(ran.text("language"), "python");
    let refused = d.run("Typescrit", "x").await.expect_error("unknown_language");
    assert!(refused.text("message").contains("did you mean typescript?"), "{}", refused.document);
    d.stop().await;
}

/// The daemon's flags have a heading of their own, and flags that do not concern a run are hidden.
#[tokio::test]
async fn its_help_is_about_running_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
    let shown = within(PATIENCE, "its help", command.args(["run", "--help"]).output()).await.expect("help");
    let help = text(&shown.stdout);
    let (own, daemons) = help.split_once("The daemon to connect to").expect("a heading");
    for flag in ["--language", "--file", "--session", "--timeout"] {
        assert!(own.contains(flag) && !daemons.contains(flag), "{flag}: {help}");
    }
    for flag in ["--config", "--store", "--engine"] {
        assert!(daemons.contains(flag) && !own.contains(flag), "{flag}: {help}");
    }
    for flag in ["--addr", "--public-url", "--allow-open"] {
        assert!(!help.contains(flag), "{flag}: {help}");
    }
}

#[tokio::test]
async fn ctrl_c_ends_the_program_and_leaves_nothing() {
    let d = Daemon::with().set("pool.idle", 0).start().await;
    let mut child =
        command(d.store.path(), &["-l", "sh", "-c", "echo begun; sleep 600"]).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    within(PATIENCE, "its first line", lines.next_line()).await.expect("a line");
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let mut happenings = view.follow().await;
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
    kill_process(pid, Signal::INT).expect("a signal");
    let ended = within(PATIENCE, "its end", child.wait()).await.expect("an end");
    assert_eq!(ended.code(), Some(130));
    happenings.removal_of(&container, PATIENCE).await;
    let log = d.stop().await.text();
    assert!(log.contains("limit=Cancelled") && log.contains("its files deleted"), "{log}");
}

/// Without a daemon it becomes one itself, and leaves nothing afterwards.
#[tokio::test]
async fn alone_it_needs_no_daemon_and_leaves_nothing() {
    let store = Store::new();
    expect(&run(store.path(), &["-l", "python", "-c", "print('hello')"]).await, 0, "hello\n", "");
    View::of(&store.owner()).await.expect_empty().await;
    // A defect of the engine is reported, and nothing hangs.
    let mut command = command(store.path(), &["-l", "sh", "-c", "x"]);
    let ran = within(PATIENCE, "a run", command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").output());
    let ran = ran.await.expect("the program");
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(125), 0));
    assert!(text(&ran.stderr).contains("is Docker running?"), "{}", text(&ran.stderr));
}

/// On a terminal it shows what it does, and removes that before the program's output.
#[tokio::test]
async fn a_terminal_shows_the_progress() {
    let d = Daemon::start().await;
    let line = format!("{} run -l sh -c 'sleep 3.5; echo out'", env!("CARGO_BIN_EXE_paddock"));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("SANDBOX_ROOT", d.store.path()).stdin(Stdio::null());
    let ran = within(PATIENCE, "a run", script.output()).await.expect("script, of util-linux");
    let seen = text(&ran.stdout);
    let seconds = (1..4).any(|seconds| seen.contains(&format!("paddock: {seconds} s")));
    assert!(seen.contains("waiting for a container of sh") && seconds, "{seen:?}");
    assert!(seen.contains("\r\u{1b}[2Kout\r\n"), "{seen:?}");
    let seen = text(&run(d.store.path(), &["-l", "sh", "-c", "true"]).await.stderr);
    assert_eq!(seen, "", "a pipe is no terminal");
    d.stop().await;
}
