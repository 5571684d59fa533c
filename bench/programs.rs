//! The programs that are run, and what they print.

/// A program and what it prints.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) language: &'static str,
    pub(crate) name: &'static str,
    pub(crate) code: &'static str,
    pub(crate) prints: &'static str,
}

pub(crate) const PYTHON: Program =
    Program { language: "python", name: "python", code: "print('hi')", prints: "hi\n" };
pub(crate) const TYPESCRIPT: Program = Program {
    language: "typescript",
    name: "typescript",
    code: "const hi: string = 'hi'; console.log(hi)",
    prints: "hi\n",
};
pub(crate) const PANDAS: Program = Program {
    language: "python",
    name: "pandas",
    code: "import pandas as pd; print(pd.DataFrame({'n': [1, 2, 3]})['n'].sum())",
    prints: "6\n",
};
pub(crate) const SH: Program = Program { language: "sh", name: "sh", code: "echo hi", prints: "hi\n" };
