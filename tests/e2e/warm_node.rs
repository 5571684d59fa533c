//! Runs of TypeScript are children of a node that has started: what each of them must have of its own, and
//! what code can do to the process that forks. That programs come out alike otherwise is in `alike.rs`.

use std::collections::BTreeSet;

use crate::support::{Daemon, Session};
use crate::warm::by_the_part;

/// Prints whether a run was forked: the entrypoint's node is a child of PID 1.
const HOW: &str = "console.log(process.ppid === 1 ? 'cold' : 'warm')";

/// A daemon whose session `s` has a container in which node's warm part is ready.
async fn standing() -> Daemon {
    let d = Daemon::start().await;
    d.session("s").typescript("1").await.expect_success();
    d.log.line("INFO warm language=typescript").await;
    d
}

/// Repeats a run until the warm part, which is starting, ran it.
async fn until_warm(s: &Session<'_>) {
    while s.typescript(HOW).await.expect_success().stdout() != "warm\n" {}
}

#[tokio::test]
async fn each_run_has_a_process_id_and_random_numbers_of_its_own() {
    let d = standing().await;
    let code = "import vm from 'node:vm'\n\
                import { randomUUID, randomInt, getRandomValues } from 'node:crypto'\n\
                console.log(process.ppid); console.log([process.pid, Math.random(), Math.random(), \
                vm.runInNewContext('Math.random()'), randomUUID(), randomInt(2 ** 47), \
                crypto.randomUUID(), getRandomValues(new BigUint64Array(1))[0]].join('\\n'))";
    let (mut parents, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..10 {
        let ran = by_the_part(&d, |s| s.typescript(code)).await.expect_success();
        let mut lines = ran.stdout().lines().map(str::to_owned);
        parents.insert(lines.next().expect("the parent"));
        seen.extend(lines);
    }
    assert_eq!(parents.len(), 1, "all of one process: {parents:?}");
    assert_eq!(seen.len(), 80, "{seen:#?}");
    d.stop().await;
}

#[tokio::test]
async fn the_process_that_forks_can_be_neither_read_nor_slowed() {
    let d = standing().await;
    let s = d.session("s");
    let code = "import { openSync, readFileSync } from 'node:fs'; import os from 'node:os';\n\
                const refused = (act: () => unknown) => { try { act(); return 'allowed' } \
                catch (e: any) { return e.code } };\n\
                console.log(refused(() => openSync(`/proc/${process.ppid}/mem`, 'r+')), \
                refused(() => readFileSync(`/proc/${process.ppid}/environ`)), \
                refused(() => os.setPriority(process.ppid, 10)))";
    let ran = s.typescript(code).await.expect_success();
    assert_eq!(ran.stdout(), "EACCES EACCES ERR_SYSTEM_ERROR\n");
    s.typescript("import os from 'node:os'; console.log(os.getPriority())").await.expect_stdout("0\n");
    d.stop().await;
}

/// libuv sends itself pointers through pipes: one that the parent reads would be a way into its memory, and
/// every later run is a copy of that.
#[tokio::test]
async fn no_descriptor_of_a_run_leads_into_the_process_that_forks() {
    let d = standing().await;
    let s = d.session("s");
    let view = "import { readdirSync, readlinkSync } from 'node:fs'\n\
                const link = (fd: string) => { try { return readlinkSync(`/proc/self/fd/${fd}`) } \
                catch { return '' } }\n\
                console.log([process.ppid, ...readdirSync('/proc/self/fd').filter((fd) => Number(fd) > 2)\
                .map(link).filter((name) => name.startsWith('pipe:'))].join('\\n'))";
    let (first, second) =
        (s.typescript(view).await.expect_success(), s.typescript(view).await.expect_success());
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (first, second) = (lines(first.stdout()), lines(second.stdout()));
    assert!(first.len() > 2, "{first:?}");
    let shared: Vec<_> = first.intersection(&second).filter(|name| name.starts_with("pipe:")).collect();
    assert!(shared.is_empty(), "{shared:?}");
    // A program that writes to whatever it has may end itself, and nothing else.
    let code = "import { readdirSync, writeSync } from 'node:fs'\n\
                console.log(process.ppid)\n\
                for (const fd of readdirSync('/proc/self/fd').map(Number)) if (fd > 2) \
                for (const bytes of [16, 8]) try { writeSync(fd, Buffer.alloc(bytes, 0x41)) } catch {}";
    let parent = s.typescript(code).timeout(10.0).await.stdout().to_owned();
    until_warm(&s).await;
    s.typescript("console.log(process.ppid)").await.expect_stdout(&parent);
    d.stop().await;
}

#[tokio::test]
async fn a_part_that_code_kills_or_stops_restarts_and_no_run_waits_for_it() {
    let d = standing().await;
    let s = d.session("s");
    let children =
        "readFileSync(`/proc/${process.ppid}/task/${process.ppid}/children`, 'utf8').trim().split(' ')";
    for what in [
        "process.kill(process.ppid, 'SIGKILL'); setTimeout(() => {}, 60_000)".to_owned(),
        "process.kill(-1, 'SIGKILL')".to_owned(),
        "process.kill(process.ppid, 'SIGSTOP')".to_owned(),
        // The child that waits for the next run, or will.
        format!(
            "setTimeout(() => {{ for (const pid of {children}) \
                 if (Number(pid) !== process.pid) process.kill(Number(pid), 'SIGKILL') }}, 300)"
        ),
    ] {
        until_warm(&s).await;
        let code = format!("import {{ readFileSync }} from 'node:fs'; console.log('on'); {what}");
        let ran = s.typescript(&code).timeout(5.0).await;
        assert_eq!(ran.stdout(), "on\n", "{what}: {}", ran.document);
    }
    until_warm(&s).await;
    d.stop().await;
}

#[tokio::test]
async fn a_run_that_takes_all_memory_leaves_the_next_one_unharmed() {
    let d = standing().await;
    let s = d.session("s");
    let code = "const kept: Buffer[] = []; for (;;) kept.push(Buffer.alloc(16 << 20, 1))";
    s.typescript(code).timeout(20.0).await.expect_limit(Some("memory"));
    until_warm(&s).await;
    let heap =
        "const kept: number[][] = []; for (;;) kept.push(Array.from({ length: 100_000 }, Math.random))";
    let ran = s.typescript(heap).timeout(30.0).await;
    assert_ne!(ran.exit_code(), 0, "{}", ran.document);
    until_warm(&s).await;
    d.stop().await;
}
