//! Programs that attack, one a line: `tests/hostile/runs.jsonl` has what a program does, what stops it, and
//! what must be answered; `tests/hostile/calls.jsonl` has calls to the kernel that must be refused. A new
//! row is one line; `tests/hostile/README.md` says what it can contain.
//!
//! After each row another session runs as before. No row does harm if nothing stops it, except to its own
//! container. The other tables of `tests/hostile` have a file each in `tests/e2e/hostile`.

#[path = "hostile/covered.rs"]
mod covered;
#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/gvisor.rs"]
mod gvisor;
#[path = "hostile/http.rs"]
mod http;
#[path = "hostile/links.rs"]
mod links;
#[path = "hostile/proxy.rs"]
mod proxy;
#[path = "hostile/stdio.rs"]
mod stdio;
#[path = "hostile/tars.rs"]
mod tars;
#[path = "hostile/watch.rs"]
mod watch;

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::support::{Call, Daemon, Ran, Session};

/// A program of `runs.jsonl`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    stopped_by: String,
    /// `python`, `typescript`, `sh`, or `command` for `execute_code`.
    language: String,
    code: String,
    /// So often the code comes in a row.
    repeat: Option<usize>,
    seconds: Option<f64>,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// A command that runs afterwards in the same container, and what it prints.
    then: Option<String>,
    then_stdout: Option<String>,
    expect: Expected,
}

/// What must be answered; everything that is said must hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    stdout: Option<String>,
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    exit: Option<i64>,
    /// The limits that may end it; null: none.
    ends: Option<Vec<Option<String>>>,
    error: Option<String>,
    /// Bytes of the whole answer.
    largest: Option<usize>,
    /// Any result will do, as long as there is one.
    #[serde(default)]
    answered: bool,
}

/// A call of `calls.jsonl`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    id: String,
    attempt: String,
    stopped_by: String,
    /// Its number; -1 where there is no such call.
    x86_64: i64,
    aarch64: i64,
    arguments: Vec<i64>,
}

fn rows<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile").join(file);
    let text = std::fs::read_to_string(&path).expect("the rows");
    let row = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(row).collect()
}

impl Row {
    async fn run(&self, s: &Session<'_>) -> Ran {
        let code = self.code.repeat(self.repeat.unwrap_or(1));
        let mut call = Self::call(s, &self.language, &code).timeout(self.seconds.unwrap_or(20.0));
        for (name, value) in &self.arguments {
            call = call.with(name, value.clone());
        }
        call.await
    }

    fn call<'d>(s: &Session<'d>, language: &str, code: &str) -> Call<'d> {
        match language {
            "command" => s.tool("execute_code").with("command", code),
            language => s.run(language, code),
        }
    }

    /// What is wrong with an answer.
    fn judge(&self, ran: &Ran) -> Result<(), String> {
        let Expected { stdout, contains, without, exit, ends, error, largest, answered } = &self.expect;
        let (document, expect) = (&ran.document, &self.expect);
        if error.is_some() {
            let fine = document["error"].as_str() == error.as_deref() && ran.is_error;
            return if fine { Ok(()) } else { Err(format!("not refused with {error:?}: {document}")) };
        }
        let output = output(ran);
        let limit = document["limit"].as_str();
        let said_nothing = stdout.is_none() && contains.is_empty() && exit.is_none() && ends.is_none();
        let checks = [
            (document["error"] == "lost", "the run was lost"),
            (stdout.as_ref().is_some_and(|text| *text != output), "another output"),
            (contains.iter().any(|text| !output.contains(text)), "something is missing in its output"),
            (without.iter().any(|text| output.contains(text)), "something must not be in its output"),
            (exit.is_some_and(|code| document["exit_code"] != code), "another exit code"),
            (ends.as_ref().is_some_and(|all| !all.iter().any(|one| one.as_deref() == limit)), "another end"),
            (largest.is_some_and(|most| document.to_string().len() > most), "too large an answer"),
            (said_nothing && !expect.answered && without.is_empty(), "a row that expects nothing"),
            (!answered && ends.is_none() && exit.is_none() && document["success"] == false, "it failed"),
        ];
        match checks.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, what)) => {
                let text: String = document.to_string().chars().take(1500).collect();
                Err(format!("{what} (limit {limit:?}): {text}"))
            }
            None => Ok(()),
        }
    }

    async fn attack(&self, d: &Daemon) -> Result<(), String> {
        let s = d.session(&self.id);
        let mut judged = self.judge(&self.run(&s).await);
        if let (Ok(()), Some(then)) = (&judged, &self.then) {
            let language = if self.language == "sh" { "sh" } else { "command" };
            let seen = output(&Self::call(&s, language, then).await);
            let expected = self.then_stdout.as_deref().unwrap_or_default();
            if seen != expected {
                judged = Err(format!("afterwards {seen:?}, not {expected:?}"));
            }
        }
        if self.expect.error.is_none() {
            s.tool("close_session").with("delete_files", true).await.expect_success();
        }
        // Another session, in its own container.
        d.session("witness").python("print('ok')").await.expect_stdout("ok\n");
        let Row { id, attempt, stopped_by, .. } = self;
        judged.map_err(|why| format!("{id}: {attempt}\n  (what stops it: {stopped_by})\n  {why}"))
    }
}

/// Standard output of a run or a command.
fn output(ran: &Ran) -> String {
    if ran.document["output"].is_array() {
        return ran.command_stdout();
    }
    ran.document["stdout"].as_str().unwrap_or_default().to_owned()
}

/// What a program could change on the host.
fn host() -> Vec<Option<String>> {
    let files =
        ["kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "kernel/randomize_va_space"];
    // Not every kernel has each.
    let read = |file: &&str| std::fs::read_to_string(Path::new("/proc/sys").join(file)).ok();
    files.iter().map(read).collect()
}

async fn attack(is_mine: fn(&Row) -> bool) {
    let d = Daemon::start().await;
    let faults = attack_on(&d, is_mine).await;
    let text: Vec<&str> = faults.iter().map(|(_, why)| why.as_str()).collect();
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), text.join("\n\n"));
    d.stop().await;
}

/// The rows of mine that were answered in another way than they must be, and how.
async fn attack_on(d: &Daemon, is_mine: fn(&Row) -> bool) -> Vec<(String, String)> {
    let before = host();
    let rows: Vec<Row> = rows::<Row>("runs.jsonl").into_iter().filter(is_mine).collect();
    assert!(rows.len() >= 15, "{} rows", rows.len());
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(row.attack(d).await.err().map(|why| (row.id.clone(), why)));
    }
    assert_eq!(host(), before);
    assert_eq!(d.log.count("panicked"), 0, "{}", d.log.text());
    faults
}

#[tokio::test]
async fn python_that_attacks_harms_nobody() {
    attack(|row| row.language == "python").await;
}

#[tokio::test]
async fn commands_that_attack_harm_nobody() {
    attack(|row| row.language != "python").await;
}

/// Each call is made in a process of its own. A refusal is one that comes before the call looks at its
/// arguments.
#[tokio::test]
async fn calls_that_no_program_needs_are_refused() {
    let d = Daemon::start().await;
    let granted = calls_on(&d).await;
    let text: Vec<&str> = granted.iter().map(|(_, why)| why.as_str()).collect();
    assert!(granted.is_empty(), "{}", text.join("\n"));
    d.stop().await;
}

/// The calls that were not refused, and what they answered.
async fn calls_on(d: &Daemon) -> Vec<(String, String)> {
    let rows: Vec<Attempt> = rows("calls.jsonl");
    assert!(rows.len() >= 60, "{} calls", rows.len());
    let calls: Vec<_> =
        rows.iter().map(|row| json!([row.id, row.x86_64, row.aarch64, row.arguments])).collect();
    let code = format!(
        "import ctypes, errno, json, os, signal\n\
         libc, on_x86 = ctypes.CDLL(None, use_errno=True), os.uname().machine == 'x86_64'\n\
         seen = {{}}\n\
         for name, x86, arm, arguments in json.loads({:?}):\n    \
         number = x86 if on_x86 else arm\n    \
         if number < 0: continue\n    \
         reading, writing = os.pipe()\n    \
         pid = os.fork()\n    \
         if pid == 0:\n        \
         signal.alarm(5)\n        \
         done = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))\n        \
         os.write(writing, b'ok' if done >= 0 else errno.errorcode[ctypes.get_errno()].encode())\n        \
         os._exit(0)\n    \
         os.close(writing); os.waitpid(pid, 0)\n    \
         seen[name] = os.read(reading, 99).decode(); os.close(reading)\n\
         print(json.dumps(seen))",
        serde_json::to_string(&calls).expect("JSON")
    );
    let ran = d.session("calls").python(&code).await.expect_success();
    let seen: Map<String, Value> = serde_json::from_str(ran.stdout()).expect("a map");
    let refused = ["EPERM", "ENOSYS", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"];
    let mut granted = Vec::new();
    for row in &rows {
        let Attempt { id, attempt, stopped_by, .. } = row;
        match seen.get(id).and_then(Value::as_str) {
            Some(outcome) if refused.contains(&outcome) => {}
            None if row.aarch64 < 0 => {} // the other kind of machine
            outcome => {
                granted.push((id.clone(), format!("{id} ({attempt}; {stopped_by}): {outcome:?}")));
            }
        }
    }
    d.session("witness").python("print('ok')").await.expect_stdout("ok\n");
    granted
}
