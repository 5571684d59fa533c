//! The machine's clock as one daemon sees it, which a test can set: a library that is loaded before the
//! others. It needs gcc, and a daemon that is not static.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::Setup;

pub(crate) struct FakeClock {
    dir: TempDir,
    file: File,
}

impl FakeClock {
    /// A clock that is right.
    pub(crate) fn new() -> FakeClock {
        let dir = TempDir::new().expect("a directory");
        let source = dir.path().join("clock.c");
        std::fs::write(&source, include_str!("clock.c")).expect("a file");
        let library = dir.path().join("clock.so");
        let done =
            Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(source).output();
        let done = done.expect("these tests need gcc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let file = File::create(dir.path().join("offset")).expect("a file");
        let clock = FakeClock { dir, file };
        clock.set(0);
        clock
    }

    /// Sets it to so many seconds after the true time.
    pub(crate) fn set(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).expect("written");
    }

    /// Lets a daemon see this clock.
    pub(crate) fn seen_by(&self, setup: Setup) -> Setup {
        let path = |name: &str| -> PathBuf { self.dir.path().join(name) };
        let text = |path: PathBuf| path.to_str().expect("text").to_owned();
        setup.env("LD_PRELOAD", &text(path("clock.so"))).env("PADDOCK_TEST_CLOCK", &text(path("offset")))
    }
}
