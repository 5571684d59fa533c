//! What a run may do with files, as programs see it: the agent's enforcement over its link, in real
//! containers.

use paddock::link::Incoming;
use paddock_proto::message::{Outcome, RunSpec};
use paddock_proto::{Event, ExecutePolicy, FilePolicy};

use crate::container::{Container, ended, spec};

fn policy(allow: Option<&[&str]>, deny_read: &[&str], deny_write: &[&str]) -> FilePolicy {
    let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
    FilePolicy { allow_write: allow.map(list), deny_read: list(deny_read), deny_write: list(deny_write) }
}

/// The configuration of a coding agent.
fn example() -> FilePolicy {
    policy(Some(&["/tmp", "."]), &["~/.ssh", "~/.aws"], &[".env", "*.key"])
}

fn under(files: FilePolicy, command: &str) -> RunSpec {
    RunSpec { files: Some(files), ..spec(command) }
}

/// Runs a script that prints `bad` for everything that must not happen, and then `done`.
async fn holds(container: &Container, files: Option<FilePolicy>, script: &str) {
    let preamble = "no() { if \"$@\" 2>/dev/null; then echo \"bad: went through: $*\"; fi; }
        yes() { \"$@\" || echo \"bad: refused: $*\"; }
        is() { [ \"$(cat \"$1\" 2>&1)\" = \"$2\" ] || echo \"bad: $1 is $(cat \"$1\" 2>&1)\"; }
        put() { echo \"$2\" > \"$1\"; }
        add() { echo \"$2\" >> \"$1\"; }\n";
    let run = RunSpec { files, ..spec(&format!("{preamble}{script}\necho done")) };
    let (output, end) = ended(&container.run(&run)).await;
    assert_eq!((output.as_str(), end.outcome), ("done\n", Outcome::Exited(0)), "{script}");
}

#[tokio::test]
async fn the_policy_of_the_coding_agents_is_enforced() {
    let container = Container::start().await;
    let before = "mkdir -p a/b .ssh; echo secret > .env; echo secret > a/b/x.key; echo private > .ssh/id; \
        ln .env other; ln -s .env soft; ln -s a/b deep; mkdir dir; echo k > dir/y.key";
    holds(&container, None, before).await;
    let script = "
        yes put file 1; yes add file 2; yes put /tmp/file 1; yes put /tmp/.env 1; yes put .envrc 1
        yes put a/b/c 1
        yes rm file; yes mkdir m; yes rmdir m; yes touch t; yes chmod 600 t; yes mv t u; yes ln -s u v
        yes rm v u
        # What is there: its content, its name, its mode, its time.
        for f in .env a/b/x.key ./a/../.env /workspace/.env /mnt/data/a/b/x.key soft deep/x.key other \
            /proc/self/cwd/.env /proc/self/root/data/.env /proc/thread-self/cwd/.env; do
            no put $f new; no add $f new; no dd if=/dev/zero of=$f count=1 conv=notrunc
            no chmod 777 $f; no touch $f; no truncate -s 0 $f
            no ln $f /tmp/l
            is $f secret
        done
        for f in .env a/b/x.key; do no rm -f $f; no mv $f /tmp/m; no mv file $f; no cp -f /tmp/file $f; done
        no mv a/b /tmp/b; no mv a /tmp/a; no mv dir /tmp/dir; is dir/y.key k
        # What is made later.
        rm -f /tmp/*; echo x > x
        for f in new.key a/.env a/b/later.key soft.key; do
            no put $f 1; no touch $f; no ln x $f; no ln -s x $f; no mv x $f; no cp x $f; no mkdir $f
            no mkfifo $f
            [ ! -e $f ] || echo bad: $f
        done
        # Of a name, wherever a directory comes to be.
        mkdir /tmp/tree; echo 1 > /tmp/tree/.env
        no mv /tmp/tree tree; no cp -r /tmp/tree tree; [ ! -e tree/.env ] || echo bad: moved in
        # A directory without anything that is denied is moved like any other.
        mkdir plain; echo 1 > plain/f; yes mv plain moved; is moved/f 1
        # By an object that was opened before, and by names of it in /proc.
        exec 3< .env; no put /proc/self/fd/3 1; no put /dev/fd/3 1; no chmod 777 /proc/self/fd/3
        # Beyond what is allowed.
        no put /dev/shm/x 1; no mkdir /dev/shm/d; no touch /etc/x
        # And what may not be read.
        no cat .ssh/id; no cat ~/.ssh/id; no ls .ssh; no cp .ssh/id c; no cp -r .ssh c; no mv .ssh s
        no ln .ssh/id l
        no cat /workspace/.ssh/id; no cat /proc/self/root/data/.ssh/id; no sh .ssh/id; no tar cf t.tar .ssh/id
        ln -s .ssh/id way; no cat way; cd .ssh; no cat id; no ls; cd ..; yes ls -d .ssh >/dev/null
        yes stat .ssh/id >/dev/null
        is .env secret";
    let files = example();
    holds(&container, Some(files), &format!("export HOME=/data; {script}")).await;
    // And nothing was changed.
    holds(&container, None, "is .env secret; is a/b/x.key secret; is .ssh/id private; yes put .env new")
        .await;
    container.stop().await;
}

#[tokio::test]
async fn with_no_path_allowed_a_shell_runs_and_writes_nothing() {
    let container = Container::start().await;
    let script = "
        echo one | cat | grep -q one || echo bad: pipe
        yes ls / >/dev/null; yes cat /etc/passwd > /dev/null; echo x > /dev/null 2>&1
        head -c 3 /dev/urandom > /dev/zero
        x=$(echo sub; (echo shell)); [ \"$x\" = \"sub
shell\" ] || echo bad: $x
        (echo to > /dev/stderr) 2>&1 | grep -q to || echo bad: stderr; cat <<E >/dev/null
here
E
        no put f 1; no put /tmp/f 1; no put /dev/shm/f 1; no mkdir d; no touch kept; no chmod 777 kept
        no rm kept
        # A semaphore is a file, and nothing else that has such a name.
        yes put /dev/shm/sem.s 1; yes rm /dev/shm/sem.s; no mkdir /dev/shm/sem.d; no mkdir -p /dev/shm/sem.d/d
        no ln -s /tmp /dev/shm/sem.l; no mkfifo /dev/shm/sem.p; no put /dev/shm/sem.d/f x
        no rmdir /dev/shm/sem.b
        no put /dev/shm/sem.b/f x; no mv /dev/shm/sem.b /dev/shm/sem.c; no put /dev/shm/semx x
        [ \"$(ls -A /dev/shm)\" = sem.b ] || echo bad: $(ls -A /dev/shm)
        no ln kept l; no ln -s kept l; no mv kept m; no truncate -s 0 kept; no mkfifo p; no chmod 700 /data
        is kept kept; [ \"$(ls -A /data)\" = kept ] || echo bad: $(ls -A /data)";
    holds(&container, None, "echo kept > kept; mkdir /dev/shm/sem.b").await;
    holds(&container, Some(policy(Some(&[]), &[], &[])), script).await;
    container.stop().await;
}

#[tokio::test]
async fn patterns_and_paths_that_do_not_exist_yet_are_allowed() {
    let container = Container::start().await;
    let files = policy(Some(&["out", "*.csv", "~/cache/**/x"]), &[], &["out/keep"]);
    let script = "
        no put f 1; yes put f.csv 1; no mkdir in; yes mkdir out; yes mkdir -p out/a/b; yes put out/a/b/c 1
        no put out/keep 1
        no mkdir out/keep; yes mv out/a out/z; no mv out /data/in; no mv out/z in; no ln out/z/b/c g
        no mkdir cache; yes rm -r out; no ln -s /tmp out; yes mkdir out; no put cache/x 1";
    holds(&container, Some(files), script).await;
    container.stop().await;
}

#[tokio::test]
async fn a_run_with_a_policy_runs_beside_one_without() {
    let container = Container::start().await;
    let writes = "for i in $(seq 200); do echo $i > .env && echo $i > file$N; done 2>/dev/null";
    let free = container.run(&spec(&format!("N=1; {writes}; touch over; cat .env")));
    let after = "until [ -e over ]; do sleep 0.05; done";
    let bound = container.run(&under(example(), &format!("N=2; {writes}; {after}; cat .env")));
    assert_eq!(ended(&free).await.0, "200\n");
    assert_eq!(ended(&bound).await.0, "200\n");
    // It cannot use the other run either: /proc does not show it a process without a policy.
    let free = container
        .run(&spec("echo $$ > pid; exec 3<>.env 4>fine; until [ -e /tmp/go ]; do sleep 0.1; done; echo end"));
    holds(
        &container,
        Some(example()),
        "while [ ! -s pid ]; do sleep 0.05; done; sleep 0.1; p=$(cat pid)
        for f in fd/3 fd/4 cwd/.env cwd/fine root/data/fine root/data/.env mem environ; do
            no put /proc/$p/$f 1
        done
        no cat /proc/$p/environ; no cat /proc/1/environ; no cat /proc/1/maps; no ls -l /proc/1/fd/
        yes cat /proc/$p/stat /proc/1/stat /proc/self/maps /proc/meminfo /proc/self/status > /dev/null",
    )
    .await;
    ended(&container.run(&spec("touch /tmp/go"))).await;
    assert_eq!(ended(&free).await.0, "end\n");
    container.stop().await;
}

#[tokio::test]
async fn named_pipes_and_many_calls_delay_nobody() {
    let container = Container::start().await;
    let script = "
        mkfifo p q; (sleep 0.3; echo through > p) & is p through; wait
        (sleep 0.3; cat p > got) & echo back > p; wait; is got back
        for i in $(seq 40); do timeout 1 sh -c 'echo x > q' 2>/dev/null & done
        sleep 0.2; echo 1 > file; is file 1; wait";
    holds(&container, Some(example()), script).await;
    let flood = "for i in 1 2 3 4; do (while :; do : > f$i; done) & done; until [ -e f4 ]; do :; done
        touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.1; done";
    let flood = container.run(&RunSpec { wall_ms: 300_000, ..under(example(), flood) });
    let waits = "until [ -e /tmp/begun ]; do sleep 0.02; done";
    assert_eq!(ended(&container.run(&spec(waits))).await.1.outcome, Outcome::Exited(0));
    // The flood ends after these runs.
    let mut took = Vec::new();
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        assert_eq!(ended(&container.run(&spec("echo beside"))).await.0, "beside\n");
        took.push(begun.elapsed());
    }
    took.sort();
    assert!(took[10].as_millis() < 500 && took[19].as_secs() < 10, "{took:?}");
    ended(&container.run(&spec("touch /tmp/go"))).await;
    let (_, end) = ended(&flood).await;
    assert_eq!((end.outcome, end.survivors), (Outcome::Exited(0), 0));
    container.stop().await;
}

#[tokio::test]
async fn descriptors_that_pid_1_keeps_for_a_run_are_closed_with_it() {
    let container = Container::start().await;
    // More of them than PID 1 may have descriptors.
    for _ in 0..110 {
        let runs: Vec<_> = (0..10).map(|_| container.run(&under(example(), "echo x > x"))).collect();
        for run in &runs {
            let (output, end) = ended(run).await;
            assert_eq!((output.as_str(), end.outcome), ("", Outcome::Exited(0)));
        }
    }
    container.stop().await;
}

#[tokio::test]
async fn a_policy_of_files_and_one_of_programs_hold_together() {
    let container = Container::start().await;
    let command = "echo 1 > ok && read line < ok && echo $line; { echo 1 > .env; } 2>/dev/null || echo no
        for program in cat ls; do $program ok 2>/dev/null || echo $program $?; done; mkdir -p a && mv ok a/";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (execute, printed) in [
        (ExecutePolicy::Only(names(&["sh", "mkdir", "/bin/mv"])), "1\nno\ncat 126\nls 126\n"),
        (ExecutePolicy::Except(names(&["cat"])), "1\nno\ncat 126\nok\n"),
        (ExecutePolicy::Except(names(&["nothing"])), "1\nno\n1\nok\n"),
    ] {
        let run = RunSpec { execute: Some(execute.clone()), ..under(example(), command) };
        let (output, end) = ended(&container.run(&run)).await;
        assert_eq!((output.as_str(), end.outcome), (printed, Outcome::Exited(0)), "{execute:?}");
    }
    container.stop().await;
}

#[tokio::test]
async fn a_malformed_policy_starts_nothing() {
    let container = Container::start().await;
    let command = "echo started > /data/started";
    let execute = Some(ExecutePolicy::Except(vec!["/bin/cat".to_owned()]));
    for (run, said) in [
        (under(policy(None, &[], &["[a"]), command), "[a"),
        (RunSpec { execute, ..spec(command) }, "a name is needed"),
    ] {
        match container.run(&run).next().await.expect("an answer") {
            Incoming::Event(Event::Unsupported { what }) => assert!(what.contains(said), "{what}"),
            other @ (Incoming::Event(_) | Incoming::Data(..) | Incoming::End) => panic!("{other:?}"),
        }
    }
    holds(&container, None, "no cat /data/started").await;
    container.stop().await;
}

/// Runs Python, which must print exactly `done`.
async fn python(container: &Container, files: Option<FilePolicy>, code: &str) {
    let (output, end) = ended(&container.run(&script(files, code))).await;
    assert_eq!((output.as_str(), end.outcome), ("done\n", Outcome::Exited(0)));
}

fn script(files: Option<FilePolicy>, code: &str) -> RunSpec {
    let argv = ["python3", "-c", code].map(str::to_owned).to_vec();
    let env = ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/data", "MPLCONFIGDIR=/tmp"].map(str::to_owned);
    RunSpec { argv, files, env: env.to_vec(), wall_ms: 60_000, ..spec("") }
}

#[tokio::test]
async fn no_system_call_bypasses_a_policy() {
    let container = Container::of("python").await;
    python(&container, None, &format!("{}\nprint('done')", include_str!("policy/before.py"))).await;
    let mut files = example();
    files.deny_write.extend(["conf/.x", "**/.git/hooks"].map(str::to_owned));
    python(&container, Some(files), include_str!("policy/tricks.py")).await;
    container.stop().await;
}

#[tokio::test]
async fn a_link_that_another_process_swaps_never_leads_to_a_denied_file() {
    let container = Container::of("python").await;
    let swap = "import os, time
open('.env', 'w').write('secret'); open('good', 'w').close(); os.symlink('good', 'a'); os.symlink('.env', 'b')
os.link('a', 'swap', follow_symlinks=False)
print('up', flush=True)
while not os.path.exists('/tmp/over'):
    for n in range(1000):
        os.rename('swap', 'c'); os.rename('b', 'swap'); os.rename('swap', 'b'); os.rename('c', 'swap')
print(open('.env').read())";
    let write = "import os, time
end, done = time.time() + 2, [0, 0]
while time.time() < end or not all(done) and time.time() < end + 30:
    try:
        fd = os.open('swap', os.O_WRONLY | os.O_TRUNC); os.write(fd, b'raced'); os.close(fd); done[0] += 1
    except PermissionError: done[1] += 1
    except FileNotFoundError: pass
open('/tmp/over', 'w').close(); print('done' if all(done) else done)";
    let swapping = container.run(&script(None, swap));
    while !matches!(swapping.next().await.expect("output"), Incoming::Data(..)) {}
    python(&container, Some(policy(None, &[], &[".env"])), write).await;
    assert_eq!(ended(&swapping).await.0, "secret\n");
    container.stop().await;
}

#[tokio::test]
async fn programs_work_with_a_policy_as_without() {
    for files in [None, Some(policy(Some(&["/tmp", "."]), &[], &[".env", "*.key"])), Some(example())] {
        let container = Container::of("python").await;
        python(&container, files, include_str!("policy/programs.py")).await;
        container.stop().await;
    }
}

#[tokio::test]
async fn the_cost_of_a_policy_is_small() {
    let container = Container::of("python").await;
    let reading = policy(None, &["~/.ssh"], &[]);
    for (name, files) in [("without", None), ("S1's", Some(example())), ("deny_read", Some(reading))] {
        let (output, _) = ended(&container.run(&script(files, include_str!("policy/cost.py")))).await;
        let figures: Vec<f64> = output.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        eprintln!("{name}: µs to open and close, to write and to read: {output}");
        assert!(figures.len() == 2 && figures.iter().all(|us| *us < 2000.0), "{output}");
    }
    container.stop().await;
}
