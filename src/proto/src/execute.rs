//! Which programs one run may execute, as the daemon says it; the agent enforces it.
//!
//! A policy must never be weakened: a run whose policy cannot be enforced is refused, see
//! [`crate::Event::Unsupported`].

use serde::{Deserialize, Serialize};

use crate::limits::MAX_NAME;

/// Programs that one policy may name: far more than any agent needs, and each is looked up in every directory
/// of programs before the run starts.
pub const MAX_PROGRAMS: usize = 256;

/// Bytes of one path: `PATH_MAX`.
pub const MAX_PROGRAM: usize = 4096;

/// Bytes of all names and paths together: beside the environment of a run they must fit into one message.
pub const MAX_PROGRAM_BYTES: usize = 32 * 1024;

/// Which programs a run may execute, within what its user may. The kernel asks at each `execve`, of the run's
/// own program too, and of the interpreter that a program names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutePolicy {
    /// Only these, and what the kernel needs to start them: their ELF interpreters, and the interpreters of
    /// scripts. Each is an absolute path of a file or of a directory, which stands for all below it, or a
    /// name that is looked up in the run's `PATH`. What is not there is left out.
    Only(Vec<String>),
    /// All but the programs of these names. A name stands for the file that it leads to, in the run's `PATH`
    /// and in the usual directories of programs.
    Except(Vec<String>),
}

impl ExecutePolicy {
    /// The names and paths of its list.
    pub fn programs(&self) -> &[String] {
        match self {
            Self::Only(programs) | Self::Except(programs) => programs,
        }
    }

    /// Checks every name and path, and their number.
    ///
    /// # Errors
    /// The name, what is wrong with it and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let programs = self.programs();
        if programs.len() > MAX_PROGRAMS {
            return Err(format!(
                "{} programs are named; at most {MAX_PROGRAMS} are possible",
                programs.len()
            ));
        }
        if programs.iter().map(String::len).sum::<usize>() > MAX_PROGRAM_BYTES {
            return Err(format!("the names of programs have more than {MAX_PROGRAM_BYTES} bytes together"));
        }
        let takes_paths = matches!(self, Self::Only(_));
        programs.iter().try_for_each(|program| {
            check(program, takes_paths).map_err(|what| {
                let beginning: String = program.chars().take(80).collect();
                format!("the program {beginning:?} {what}")
            })
        })
    }
}

fn check(program: &str, takes_paths: bool) -> Result<(), String> {
    if program.is_empty() || program == "." || program == ".." {
        return Err("is no name of a program".to_owned());
    }
    if program.contains('\0') {
        return Err("has a NUL, which no path can have".to_owned());
    }
    match program.contains('/') {
        true if !takes_paths => Err("has a `/`; a name is needed here".to_owned()),
        true if !program.starts_with('/') => Err("is a relative path; write an absolute path".to_owned()),
        true if program.len() > MAX_PROGRAM => Err(format!("has more than {MAX_PROGRAM} bytes")),
        false if program.len() > MAX_NAME => Err(format!("has more than {MAX_NAME} bytes")),
        true | false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_absolute_paths_are_accepted() {
        for program in ["claude", "nc.openbsd", "/usr/local/bin/claude", "/opt/agent/", "a b"] {
            assert_eq!(ExecutePolicy::Only(vec![program.to_owned()]).check(), Ok(()), "{program}");
        }
        assert_eq!(ExecutePolicy::Except(vec!["ssh".to_owned(); MAX_PROGRAMS]).check(), Ok(()));
        assert_eq!(ExecutePolicy::Only(Vec::new()).check(), Ok(()), "nothing may be executed");
    }

    #[test]
    fn an_error_has_the_program_and_what_would_be_right() {
        let only = |program: &str| ExecutePolicy::Only(vec![program.to_owned()]).check();
        let except = |program: &str| ExecutePolicy::Except(vec![program.to_owned()]).check();
        for (checked, said) in [
            (only(""), "\"\" is no name"),
            (only(".."), "is no name"),
            (only("a\0b"), "NUL"),
            (only("bin/claude"), "write an absolute path"),
            (only(&format!("/{}", "x".repeat(MAX_PROGRAM))), "4096 bytes"),
            (only(&"x".repeat(MAX_NAME + 1)), "255 bytes"),
            (except("/usr/bin/ssh"), "a name is needed"),
            (except("."), "is no name"),
        ] {
            let error = checked.expect_err(said);
            assert!(error.contains(said) && error.len() < 200, "{error}");
        }
        let many = ExecutePolicy::Except(vec!["x".to_owned(); MAX_PROGRAMS + 1]).check();
        assert!(many.is_err_and(|error| error.contains("at most 256")));
        let large = ExecutePolicy::Only(vec![format!("/{}", "x".repeat(4000)); 9]).check();
        assert!(large.is_err_and(|error| error.contains("together")));
    }
}
