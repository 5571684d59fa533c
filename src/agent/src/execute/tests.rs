//! What a policy stops and what it lets through, with real processes: each test starts children that enter
//! its rules as the program of a run does.
#![expect(unsafe_code, reason = "exec, wait and memfd_create of a forked process have no safe form here")]

use std::ffi::CString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use paddock_proto::ExecutePolicy;
use paddock_proto::message::{Input, RunLimits};

use super::*;
use crate::intercept::{Confinement, Stops};
use crate::sys::{Fork, errno, exit, fork, in_a_child};

/// A directory of the test's own, which is removed with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("paddock-execute-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        Self(dir.canonicalize().expect("it is there"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A copy of a program that ends well.
    fn program(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::copy("/bin/true", &path).expect("a program");
        path
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The user of the tests can be root, who may write everywhere: the rules are made as for a user who may not.
const FIXED: Writable = |_| false;

/// A run under a policy.
fn spec(policy: ExecutePolicy) -> RunSpec {
    RunSpec {
        id: "r1".to_owned(),
        argv: vec![],
        env: vec![format!("PATH={PATH}")],
        cwd: "/".to_owned(),
        wall_ms: 0,
        output_cap: 0,
        input: Input::Nothing,
        limits: RunLimits::default(),
        warm: false,
        files: None,
        execute: Some(policy),
        network: false,
    }
}

/// What becomes of an attempt to execute a file: 0 if it ran to its end, or the errno of exec.
fn execute(path: &Path) -> i32 {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
    match fork().expect("a child") {
        Fork::Child => {
            let argv = [path.as_ptr(), std::ptr::null()];
            // SAFETY: both arrays end in null, and the strings outlive the call.
            unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), argv[1..].as_ptr()) };
            exit(errno())
        }
        Fork::Parent(pid) => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
        }
    }
}

/// Runs `act` under a policy, as the program of a run.
fn under(policy: ExecutePolicy, act: impl FnOnce() -> bool) -> bool {
    let memory = matches!(policy, ExecutePolicy::Only(_));
    assert_eq!(missing(&policy), None, "this kernel has Landlock");
    let ruleset = grants(&policy, PATH, FIXED).and_then(|grants| ruleset::make(&grants)).expect("rules");
    let confinement = Confinement::refusing(Stops { memory, ..Stops::default() }).executing(ruleset);
    in_a_child(|| confinement.enter().is_ok() && act())
}

fn only(programs: &[&Path]) -> ExecutePolicy {
    let programs = programs.iter().map(|path| path.to_str().expect("text").to_owned());
    ExecutePolicy::Only(programs.collect())
}

#[test]
fn only_the_named_program_and_its_loader_run() {
    let dir = Dir::new("only");
    let (named, other, link) = (dir.program("named"), dir.program("other"), dir.path("link"));
    symlink(&other, &link).expect("a link");
    assert_eq!(execute(&other), 0, "without a policy it runs");
    assert!(under(only(&[&named]), || {
        let refused = [&other, &link, Path::new("/bin/sh"), Path::new("/proc/self/root/bin/true")]
            .map(|path| (path.to_owned(), execute(path)));
        assert!(refused.iter().all(|(_, errno)| *errno == libc::EACCES), "{refused:?}");
        // What it makes later is refused as well, and a copy of the named program is another file.
        std::fs::copy(&named, dir.path("copy")).expect("a copy");
        assert_eq!(execute(&dir.path("copy")), libc::EACCES);
        assert_eq!(execute(&named), 0);
        in_a_child(|| execute(&other) == libc::EACCES && execute(&named) == 0)
    }));
}

#[test]
fn a_link_names_the_file_that_it_leads_to_and_a_directory_all_below_it() {
    let dir = Dir::new("below");
    std::fs::create_dir_all(dir.path("bin/deep")).expect("a directory");
    let (deep, other, link) = (dir.program("bin/deep/one"), dir.program("other"), dir.path("link"));
    symlink(&other, &link).expect("a link");
    assert!(under(only(&[&link]), || execute(&other) == 0 && execute(&deep) == libc::EACCES));
    assert!(under(only(&[&dir.path("bin")]), || execute(&deep) == 0 && execute(&other) == libc::EACCES));
    assert!(under(ExecutePolicy::Only(vec!["true".to_owned()]), || {
        let real = Path::new("/usr/bin/true");
        execute(real) == 0 && execute(&other) == libc::EACCES
    }));
}

#[test]
fn a_script_brings_its_interpreter_and_the_program_that_env_starts() {
    let dir = Dir::new("script");
    let plain = dir.script("plain", "#!/bin/sh\nexit 0\n");
    let by_env = dir.script("by_env", "#!/usr/bin/env -S sh\nexit 0\n");
    let gone = dir.script("gone", "#!/nowhere/sh\n");
    let true_ = Path::new("/bin/true");
    for script in [&plain, &by_env] {
        // The environment of `execute` is empty: `env` then looks in the usual directories.
        assert!(under(only(&[script]), || execute(script) == 0 && execute(true_) == libc::EACCES));
    }
    assert!(under(only(&[&plain]), || execute(&by_env) == libc::EACCES));
    assert!(under(only(&[&gone]), || execute(&gone) == libc::ENOENT));
    assert!(under(ExecutePolicy::Only(Vec::new()), || execute(true_) == libc::EACCES));
}

#[test]
fn files_still_move_between_directories_and_memory_holds_no_program() {
    let dir = Dir::new("move");
    for name in ["a", "b"] {
        std::fs::create_dir_all(dir.path(name)).expect("a directory");
    }
    std::fs::write(dir.path("a/file"), "x").expect("a file");
    let in_memory = || {
        let flags = [0, libc::MFD_NOEXEC_SEAL];
        // SAFETY: the name is a C string.
        flags.map(|flags| unsafe { libc::memfd_create(c"x".as_ptr(), flags) })
    };
    for policy in [only(&[Path::new("/bin/true")]), ExecutePolicy::Except(vec!["mount".to_owned()])] {
        let is_only = matches!(policy, ExecutePolicy::Only(_));
        assert!(under(policy, || {
            let moved = std::fs::rename(dir.path("a/file"), dir.path("b/file"))
                .and_then(|()| std::fs::rename(dir.path("b/file"), dir.path("a/file")));
            assert!(moved.is_ok(), "{moved:?}");
            let [plain, sealed] = in_memory();
            assert_eq!(plain == -1, is_only);
            if sealed >= 0 {
                let path = PathBuf::from(format!("/proc/self/fd/{sealed}"));
                std::fs::write(&path, std::fs::read("/bin/true").expect("a program")).expect("it is written");
                assert_eq!(execute(&path), libc::EACCES, "it can never be executed");
            }
            true
        }));
    }
}

#[test]
fn all_but_the_named_run_whatever_leads_to_them() {
    let dir = Dir::new("except");
    let (denied, other, link) = (dir.program("denied"), dir.program("other"), dir.path("link"));
    let script = dir.script("script", &format!("#!/bin/sh\n{}\n", denied.display()));
    symlink(&denied, &link).expect("a link");
    std::fs::hard_link(&denied, dir.path("second")).expect("a second name");
    let path = dir.0.to_str().expect("text");
    let grants = grants(&ExecutePolicy::Except(vec!["link".to_owned()]), path, FIXED).expect("few enough");
    let ruleset = ruleset::make(&grants).expect("rules");
    let confinement = Confinement::silent().executing(ruleset);
    assert!(in_a_child(|| {
        confinement.enter().expect("it enters");
        for path in [&denied, &link, &dir.path("second")] {
            assert_eq!(execute(path), libc::EACCES, "{path:?}");
        }
        assert_eq!(execute(&script), 126, "a script does not get further");
        assert_eq!(execute(&other), 0);
        execute(Path::new("/bin/true")) == 0
    }));
}

#[test]
fn what_a_run_can_have_written_stands_in_for_no_program_of_the_image() {
    let dir = Dir::new("planted");
    for name in ["written", "fixed"] {
        std::fs::create_dir_all(dir.path(name)).expect("a directory");
    }
    let written = dir.program("written/agent");
    let agent = dir.program("fixed/agent");
    symlink(dir.path("written"), dir.path("fixed/link")).expect("a link");
    let writable: Writable = |dir| dir.ends_with("written");
    let path = ["written", "fixed/link", "fixed"].map(|name| dir.path(name).display().to_string()).join(":");
    let policy = ExecutePolicy::Only(vec!["agent".to_owned()]);
    let found = grants(&policy, &path, writable).expect("few enough");
    let below = |path: &&PathBuf| path.starts_with(&dir.0);
    assert_eq!(found.iter().filter(below).collect::<Vec<_>>(), [&agent]);
    // Of a run's own program as well. Its path, where it has one, is taken as it is.
    let mut spec = spec(policy);
    for (argv, kept) in [("agent", 0), ("/tmp/agent", 1)] {
        spec.argv = vec![argv.to_owned()];
        let mut paths = vec![CString::new(written.as_os_str().as_encoded_bytes()).expect("no NUL")];
        keep_programs_of_image(&spec, &mut paths);
        assert_eq!(paths.len(), kept, "{argv}: this user may write there");
    }
}

#[test]
#[ignore = "a measurement"]
fn what_it_costs() {
    for policy in [only(&[Path::new("/bin/sh")]), ExecutePolicy::Except(vec!["ssh".into(), "su".into()])] {
        let spec = spec(policy.clone());
        for _ in 0..5 {
            let begun = std::time::Instant::now();
            let rules = prepare(&spec).expect("rules");
            eprintln!("{policy:?}: {:?}, {}", begun.elapsed(), rules.is_some());
        }
    }
}
