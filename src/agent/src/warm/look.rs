//! A look at a program's code: whether a level of the warm part has all that the program imports. Pure.
//!
//! It reads words, no grammar, so that it costs microseconds. Whichever way it errs, the program comes out
//! alike: what its process lacks is imported then. So where it is in doubt it must say no, which costs only
//! the time of a larger process.

use std::collections::HashSet;

use paddock_proto::message::WarmLevel;

/// Code that is longer than this is not looked at: its run takes longer than a larger process costs.
const LOOKED_AT: usize = 32 * 1024;

/// What a level has, and what it does not take.
#[derive(Debug)]
pub(super) struct LevelWords {
    modules: HashSet<Box<[u8]>>,
    never: HashSet<Box<[u8]>>,
}

impl LevelWords {
    /// Those of this level.
    pub(super) fn of(level: &WarmLevel) -> Self {
        let set = |words: &[String]| words.iter().map(|word| word.as_bytes().into()).collect();
        Self { modules: set(&level.modules), never: set(&level.never) }
    }

    /// Whether every `import a.b as c, d` and `from a.b import c` at the start of a statement names only
    /// modules that the level has, and no word of the code is one that it does not take.
    pub(super) fn suffice(&self, code: &[u8]) -> bool {
        if code.len() > LOOKED_AT {
            return false;
        }
        let mut reader = Reader { left: code };
        let mut is_start = true;
        while let Some(byte) = reader.peek() {
            if !is_word(byte) {
                is_start = matches!(byte, b'\n' | b';' | b':') || (is_start && is_blank(byte));
                reader.skip(1);
                continue;
            }
            let word = reader.take(is_word);
            if self.never.contains(word) {
                return false;
            }
            let known = match word {
                b"import" if is_start => self.knows_list(&mut reader),
                b"from" if is_start => self.knows_next(&mut reader),
                _ => true,
            };
            if !known {
                return false;
            }
            is_start = false;
        }
        true
    }

    /// The names behind `import`, to the end of the statement.
    fn knows_list(&self, reader: &mut Reader<'_>) -> bool {
        loop {
            if !self.knows_next(reader) {
                return false;
            }
            reader.take(is_blank);
            if reader.left.starts_with(b"as") {
                reader.take(is_word);
                reader.take(is_blank);
                if reader.take(is_word).is_empty() {
                    return false;
                }
                reader.take(is_blank);
            }
            match reader.peek() {
                Some(b',') => reader.skip(1),
                Some(b'\n' | b';' | b'#') | None => return true,
                Some(_) => return false,
            }
        }
    }

    fn knows_next(&self, reader: &mut Reader<'_>) -> bool {
        reader.take(is_blank);
        self.modules.contains(reader.take(|byte| is_word(byte) || byte == b'.'))
    }
}

/// A byte of a word: any byte that is not ASCII can be one.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\x0c')
}

struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.left.first().copied()
    }

    fn skip(&mut self, count: usize) {
        self.left = self.left.get(count..).unwrap_or_default();
    }

    fn take(&mut self, wanted: fn(u8) -> bool) -> &'a [u8] {
        let end = self.left.iter().position(|byte| !wanted(*byte)).unwrap_or(self.left.len());
        let (taken, left) = self.left.split_at(end);
        self.left = left;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suffices(code: &str) -> bool {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect();
        let (modules, never) = (words("os os.path json math"), words("__import__ exec eval importlib"));
        LevelWords::of(&WarmLevel { restore: Vec::new(), modules, never }).suffice(code.as_bytes())
    }

    #[test]
    fn a_program_that_imports_what_the_level_has_is_taken() {
        for code in [
            "",
            "print('hi')",
            "import os",
            "import os.path as p, json as j; import math\r\nprint(p)",
            "from os import (\n  path,\n  environ)",
            "from json import loads # pandas\nimport math # exe",
            "if True: import math\nelse:\n\timport json",
            "x = 'a text from pandas'",
            "# what to import from elsewhere",
            "raise ValueError(1) from None",
            "evaluate = executor = 1",
            "data = {'from': 1}",
        ] {
            assert!(suffices(code), "{code:?}");
        }
    }

    #[test]
    fn whatever_else_may_be_imported_is_a_no() {
        for code in [
            "import pandas",
            "import os, pandas",
            "import os as o, pandas as pd",
            "from pandas import DataFrame",
            "from os.missing import x",
            "from . import x",
            "from\\\n  pandas import x",
            "import \\\n pandas",
            "import os, \\\n pandas",
            "import os as",
            "x = 1; import pandas",
            "if True: import pandas",
            "try:\n\n    import pandas",
            "\u{feff}import pandas\nimport math2",
            "__import__('pan' + 'das')",
            "eval('x')",
            "from os import path; exec ('x')",
            "import\u{a0}pandas; import",
            "import jsonn",
            "import osé",
        ] {
            assert!(!suffices(code), "{code:?}");
        }
        assert!(!suffices(&" ".repeat(LOOKED_AT + 1)));
    }
}
