//! `typecheck` of `run_code`: errors of types are told and the program does not run; without it, or without
//! errors, it runs.

use std::time::{Duration, Instant};

use crate::support::{Call, Daemon, Session};

fn checked<'d>(session: &Session<'d>, code: &str) -> Call<'d> {
    session.typescript(code).with("typecheck", true)
}

const WRONG: &str =
    "import { twice } from './lib/twice';\nconst n: number = 'x';\nconsole.log('ran', twice('2'), n);";
const TOLD: &str = r"main.ts:2:7 - error TS2322: Type 'string' is not assignable to type 'number'.
main.ts:3:26 - error TS2345: Argument of type 'string' is not assignable to parameter of type 'number'.
";

/// What this image has types of, and what it has none of; nothing of the check stays behind.
const GOOD: &str = r"import * as fs from 'node:fs';
import pg from 'pg';
import postgres from 'postgres';
import Papa from 'papaparse';
import csv from 'csv-parser';
const { sep } = require('path');
function add(a, b) { return a + b }
enum E { A, B }
const r = await fetch('data:text/plain,hi');
console.log(add(E.B, 1), sep, await r.text(), process.env.SANDBOX_TYPECHECK);
console.log(fs.readdirSync('/tmp').filter((n) => !n.startsWith('run.')).length, typeof csv, typeof postgres);
console.log(Object.keys(require.cache).length, fs.readdirSync('/data').join(), typeof Papa.parse, typeof pg);
";

/// Types that take the compiler for ever.
const ENDLESS: &str = r"type Pairs<S extends string> =
  S extends `${infer A}${infer B}` ? `${A}${Pairs<B>}` | `${Pairs<B>}${A}` : S;
const x: Pairs<'abcdefghijklmnop'> = 'x';
console.log('ran', x);
";

#[tokio::test]
async fn errors_of_types_are_told_and_the_program_does_not_run() {
    for warm in [true, false] {
        let d = Daemon::with().set("agent.warm_parts", warm).start().await;
        let session = d.session("types");
        session.upload("lib/twice.ts", b"export const twice = (n: number): number => n * 2;\n").await;
        session.typescript(WRONG).await.expect_stdout("ran 4 x\n");
        let ran = checked(&session, WRONG).await.expect_exit(2);
        assert_eq!((ran.stderr(), ran.stdout()), (TOLD, ""), "{:?}", ran.document);
        // An error in a file of the session is told by its name.
        session.upload("lib/twice.ts", b"export const twice = (n: number): string => n * 2;\n").await;
        let ran = checked(&session, "import { twice } from './lib/twice.ts';\nconsole.log(twice(2));").await;
        assert!(ran.expect_exit(2).stderr().starts_with("lib/twice.ts:1:45 - error TS2322"));
        let ran = checked(&session, GOOD).await.expect_success();
        assert_eq!(ran.stdout(), session.typescript(GOOD).await.stdout(), "as without the check");
        let missing = checked(&session, "import x from 'not-there';\nconsole.log(x);").await.expect_exit(2);
        assert!(missing.stderr().starts_with("main.ts:1:15 - error TS2307"), "{}", missing.stderr());
        d.stop().await;
    }
}

#[tokio::test]
async fn a_check_has_the_limits_of_its_run_and_a_language_without_types_refuses_it() {
    let d = Daemon::start().await;
    let python = d.session("s").python("print(1)").with("typecheck", true).await;
    let refused = python.expect_error("invalid_argument");
    assert!(
        refused.text("message").contains("the runner for python checks no types"),
        "{:?}",
        refused.document
    );
    d.session("s").python("print(1)").with("typecheck", false).await.expect_stdout("1\n");
    let begun = Instant::now();
    let ran = checked(&d.session("s"), ENDLESS).timeout(5.0).await;
    assert!(ran.exit_code() != 0 && !ran.stdout().contains("ran"), "{:?}", ran.document);
    assert!(begun.elapsed() < Duration::from_secs(30), "the run's time ends it");
    // Errors without end are told up to a bound.
    let many: String = (0..200).map(|n| format!("const v{n}: number = '';\n")).collect();
    let ran = checked(&d.session("s"), &many).await.expect_exit(2);
    assert_eq!(ran.stderr().lines().count(), 51);
    assert!(ran.stderr().ends_with("and 150 more errors\n"));
    d.stop().await;
}
