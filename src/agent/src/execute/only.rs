//! The files of a policy that allows only some programs, and what the kernel needs to start them.
//!
//! A program that is not there is left out. It must never grant more than the programs name.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::head::{self, Interpreter};
use super::ruleset::MAX_GRANTS;
use super::{Writable, is_of_image};
use crate::program::candidates;

/// What to grant for these programs: real paths of files and of directories.
///
/// # Errors
/// The system's; `E2BIG` where they are too many.
pub(super) fn grants(programs: &[String], path: &str, is_writable: Writable) -> io::Result<Vec<PathBuf>> {
    let mut found =
        Found { path, is_writable, grants: BTreeSet::new(), known: BTreeSet::new(), pending: Vec::new() };
    for program in programs {
        found.program(program)?;
    }
    while let Some(file) = found.pending.pop() {
        found.needs_of(&file)?;
    }
    Ok(found.grants.into_iter().collect())
}

struct Found<'a> {
    /// The `PATH` of the run.
    path: &'a str,
    is_writable: Writable,
    grants: BTreeSet<PathBuf>,
    /// Files whose interpreters are granted, or will be.
    known: BTreeSet<PathBuf>,
    /// Known files whose interpreters have not been read yet.
    pending: Vec<PathBuf>,
}

impl Found<'_> {
    /// Grants a program by its path, or by its name: the first that there is, as an exec finds it, where no
    /// run can have put it.
    fn program(&mut self, program: &str) -> io::Result<()> {
        let is_path = program.contains('/');
        let real = candidates(program, self.path)
            .into_iter()
            .filter(|path| is_path || is_of_image(path, self.is_writable))
            .find_map(|path| path.canonicalize().ok());
        match real {
            Some(real) => self.grant(real),
            None => Ok(()),
        }
    }

    fn grant(&mut self, real: PathBuf) -> io::Result<()> {
        if real.is_dir() {
            self.below(&real)?;
        } else {
            self.look_at(real.clone())?;
        }
        self.grants.insert(real);
        Ok(())
    }

    /// Grants what the programs below a directory need. Links in it lead to nothing that the directory does
    /// not have, and are not followed.
    fn below(&mut self, dir: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.below(&entry.path())?;
            } else if kind.is_file() {
                self.look_at(entry.path())?;
            }
        }
        Ok(())
    }

    /// What this file needs will be granted.
    fn look_at(&mut self, file: PathBuf) -> io::Result<()> {
        if self.known.insert(file.clone()) {
            self.pending.push(file);
        }
        let is_bounded = self.known.len() <= MAX_GRANTS;
        if is_bounded { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::E2BIG)) }
    }

    /// Grants the interpreter of a file.
    fn needs_of(&mut self, file: &Path) -> io::Result<()> {
        // What may be executed and not read names nothing here; what it needs is not granted.
        let Ok(open) = File::open(file) else { return Ok(()) };
        let mut read_at = |at, length| {
            let mut bytes = vec![0; length];
            let read = open.read_at(&mut bytes, at)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        match head::interpreter(&mut read_at)? {
            Interpreter::None => Ok(()),
            Interpreter::Elf(path) => self.interpreter(&path),
            Interpreter::Script(path, rest) => {
                if path.file_name().is_some_and(|name| name == "env")
                    && let Some(program) = head::started_by_env(&rest)
                {
                    self.program(&program)?;
                }
                self.interpreter(&path)
            }
        }
    }

    fn interpreter(&mut self, path: &Path) -> io::Result<()> {
        match path.canonicalize() {
            Ok(real) if real.is_file() => self.grant(real),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
