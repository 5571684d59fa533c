//! Programs as language models write them, in `tests/programs`: each succeeds in the images that we ship,
//! prints what it should and makes the files that it should. The benchmark runs the same files.
//!
//! The first comment of a program says what it does, and then what must come out, in lines of their own:
//! `prints: LINE` (a whole line of its standard output), `makes: PATH` (a file below `/data`), and `network:
//! true` for those that read the pages of [`crate::far`].

use std::path::{Path, PathBuf};

use crate::far::program::allowed;
use crate::far::{FAR, Far};
use crate::support::{Daemon, Image, Ran, Session};

/// The fewest programs of each language.
const LEAST: [(&str, usize); 2] = [("python", 20), ("typescript", 10)];
/// Removes all files.
const EMPTY: [(&str, &str); 2] = [
    ("python", "import subprocess; subprocess.run('rm -rf /data/*', shell=True, check=True)"),
    ("typescript", "require('child_process').execSync('rm -rf /data/*')"),
];

/// A program and what its first comment promises.
struct Program {
    name: String,
    language: &'static str,
    source: String,
    prints: Vec<String>,
    makes: Vec<String>,
    network: bool,
}

impl Program {
    fn read(path: &Path) -> Program {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let (language, comment) = match ending {
            Some("py") => ("python", "# "),
            Some("ts" | "js") => ("typescript", "// "),
            _ => panic!("{name}: tests/programs has programs in .py, .ts and .js"),
        };
        let source = std::fs::read_to_string(path).expect("a program");
        let head: Vec<_> = source.lines().map_while(|line| line.strip_prefix(comment)).collect();
        let all = |key: &str| -> Vec<String> {
            let values = head.iter().filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            values.map(str::to_owned).collect()
        };
        let (prints, makes, network) = (all("prints"), all("makes"), all("network") == ["true"]);
        assert!(!prints.is_empty(), "{name} does not say what it prints");
        let known = 1 + prints.len() + makes.len() + usize::from(network);
        assert_eq!(head.len(), known, "{name}: one line of what it does, then prints, makes, network");
        Program { name, language, source, prints, makes, network }
    }

    fn all() -> Vec<Program> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
        let entries = std::fs::read_dir(folder).expect("the programs");
        let mut all: Vec<_> = entries.map(|entry| Program::read(&entry.expect("an entry").path())).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Runs it, and removes its files: the next one finds `/data` empty.
    async fn run(&self, s: &Session<'_>) -> Result<(), String> {
        let mut call = s.run(self.language, &self.source).timeout(120.0);
        if self.network {
            call = call.with("network", allowed(&[FAR]));
        }
        let ran = call.await;
        let (_, empty) =
            EMPTY.into_iter().find(|(language, _)| *language == self.language).expect("its code");
        s.run(self.language, empty).await.expect_success();
        self.judge(&ran)
    }

    fn judge(&self, ran: &Ran) -> Result<(), String> {
        let fault = |what: String| Err(format!("{}: {what}\n{}", self.name, ran.document));
        if ran.document["success"] != true {
            return fault("it failed".to_owned());
        }
        if let Some(line) = self.prints.iter().find(|line| !ran.stdout().lines().any(|own| own == *line)) {
            return fault(format!("it did not print {line:?}"));
        }
        let made = ran.artifacts();
        if let Some(path) = self.makes.iter().find(|path| !made.contains(&format!("/mnt/data/{path}"))) {
            return fault(format!("it did not make {path}"));
        }
        let files = ran.document["artifacts"].as_array().into_iter().flatten();
        match files.into_iter().find(|file| file["size_bytes"].as_u64() == Some(0)) {
            Some(empty) => fault(format!("{} is empty", empty["path"])),
            None => Ok(()),
        }
    }
}

#[tokio::test]
async fn programs_of_models_succeed() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let programs = Program::all();
    let (d, programs) = (&d, &programs);
    let of_a_language = async |(language, least): (&str, usize)| {
        let s = d.session(language);
        let mut faults = Vec::new();
        let programs: Vec<_> = programs.iter().filter(|program| program.language == language).collect();
        assert!(programs.len() >= least, "{} programs of {language}", programs.len());
        for program in programs {
            faults.extend(program.run(&s).await.err());
        }
        faults
    };
    let (mut faults, more) = tokio::join!(of_a_language(LEAST[0]), of_a_language(LEAST[1]));
    faults.extend(more);
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), programs.len(), faults.join("\n\n"));
}

/// The folder of an example of `runner-images`.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runner-images").join(name)
}

#[tokio::test]
async fn a_library_is_added_to_the_image_as_its_page_says() {
    let image = Image::without_a_runner(&example("example-library"));
    let d = Daemon::with().set("runners.python.image", image.name()).start().await;
    let code = "import humanize, pandas\nprint(humanize.naturalsize(3_000_000))";
    d.session("s").python(code).await.expect_stdout("3.0 MB\n");
    d.stop().await;
}

#[tokio::test]
async fn sql_is_a_language_where_its_example_is_built() {
    let image = Image::without_a_runner(&example("example-sql"));
    let d = Daemon::with().set("runners.sql.image", image.name()).start().await;
    let s = d.session("s");
    s.upload("sales.csv", b"day,amount\n1,2.5\n2,4\n").await.expect_success();
    let query = "CREATE TABLE doubled AS SELECT day, amount * 2 AS amount FROM 'sales.csv';
        SELECT sum(amount) AS total FROM doubled;
        COPY doubled TO 'doubled.parquet'";
    let ran = s.run("sql", query).await.expect_stdout("total\n-----\n13.0\n");
    assert_eq!(ran.artifacts(), ["/mnt/data/doubled.parquet", "/mnt/data/tables.duckdb"]);
    // The tables are there for the next program, also in Python.
    s.run("sql", "SELECT count(*) AS n FROM doubled").await.expect_stdout("n\n-\n2\n");
    let code = "import duckdb
tables = duckdb.connect('tables.duckdb')
print(tables.sql('FROM doubled').fetchall())";
    s.python(code).await.expect_stdout("[(1, 5.0), (2, 8.0)]\n");
    let failed = s.run("sql", "SELECT amuont FROM 'sales.csv'").await.expect_exit(1);
    assert!(failed.stderr().contains("amount"), "the close name: {}", failed.document);
    d.stop().await;
}
