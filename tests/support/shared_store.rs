//! The servers of a store of many machines: a real PostgreSQL and a real S3 server (tests/shared-store),
//! which can be stopped and started again. They die with the process of the test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Both servers need seconds on a busy machine.
const START: Duration = Duration::from_secs(120);

/// The settings of S3 at these servers, but for the endpoint.
const AWS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "test:paddock"),
    ("AWS_SECRET_ACCESS_KEY", "testing"),
    ("AWS_REGION", "us-east-1"),
];

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    S3,
}

impl Kind {
    fn word(self) -> &'static str {
        if self == Self::Postgres { "postgres" } else { "s3" }
    }
}

struct Server {
    port: u16,
    child: Mutex<Option<Child>>,
}

/// Both servers.
pub(crate) struct SharedServers {
    dir: TempDir,
    /// The words before a command that is to run where they are.
    there: Vec<String>,
    address: String,
    postgres: Server,
    s3: Server,
    made: AtomicU32,
}

impl SharedServers {
    /// Those that all tests of this process share; nobody stops them.
    pub(crate) fn of_process() -> &'static SharedServers {
        static ALL: OnceLock<SharedServers> = OnceLock::new();
        ALL.get_or_init(SharedServers::start)
    }

    /// Servers of a test that stops them.
    pub(crate) fn start() -> SharedServers {
        SharedServers::at(Vec::new(), "127.0.0.1".to_owned())
    }

    /// Servers at this address, where these words before a command have it run.
    pub(crate) fn at(there: Vec<String>, address: String) -> SharedServers {
        let dir = TempDir::new().expect("a directory");
        let open = std::fs::Permissions::from_mode(0o755); // PostgreSQL runs as another user
        std::fs::set_permissions(dir.path(), open).expect("a directory of ours");
        let server = || {
            let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = probe.local_addr().expect("an address").port();
            Server { port, child: Mutex::new(None) }
        };
        let (postgres, s3) = (server(), server());
        let servers = SharedServers { dir, there, address, postgres, s3, made: AtomicU32::new(0) };
        std::thread::scope(|scope| {
            for kind in [Kind::Postgres, Kind::S3] {
                let servers = &servers;
                scope.spawn(move || servers.resume(kind));
            }
        });
        servers
    }

    fn server(&self, kind: Kind) -> &Server {
        if kind == Kind::Postgres { &self.postgres } else { &self.s3 }
    }

    /// Starts a server that does not run, with what it had before; returns once it serves.
    pub(crate) fn resume(&self, kind: Kind) {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/shared-store/serve");
        let server = self.server(kind);
        let mut command = self.command(&here);
        command.arg(kind.word()).arg(self.dir.path().join(kind.word())).arg(server.port.to_string());
        command.arg(&self.address);
        let log = std::fs::File::create(self.dir.path().join(format!("{}.log", kind.word()))).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = start_for_ever(command);
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let ready = match kind {
            Kind::S3 => out.lines().map_while(Result::ok).any(|line| line == "ready"),
            Kind::Postgres => {
                let began = Instant::now();
                while self.psql("select 1").is_err() && began.elapsed() < START {
                    std::thread::sleep(Duration::from_millis(50)); // it says nothing that could be waited for
                }
                began.elapsed() < START
            }
        };
        let log = || std::fs::read_to_string(self.dir.path().join(format!("{}.log", kind.word())));
        assert!(ready, "{} serves; run tests/shared-store/install: {:?}", kind.word(), log());
        *server.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Ends a server at once, as if its machine had failed.
    pub(crate) fn stop(&self, kind: Kind) {
        let child = self.server(kind).child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut child) = child else { return };
        // PostgreSQL's immediate shutdown: what it does after a crash it does at the next start. Swift ends
        // its parts.
        let signal = if kind == Kind::Postgres { "-QUIT" } else { "-TERM" };
        let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
        let _ = child.wait();
    }

    /// A command that runs where the servers are.
    fn command(&self, program: &Path) -> Command {
        let mut words = self.there.iter().map(Path::new).chain([program]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        command
    }

    fn psql(&self, sql: &str) -> Result<String, String> {
        let url = format!("postgres://postgres@{}:{}/postgres", self.address, self.postgres.port);
        self.in_database(&url, sql)
    }

    /// What psql answers to these statements in the database at this address.
    pub(crate) fn in_database(&self, url: &str, sql: &str) -> Result<String, String> {
        let mut command = self.command(Path::new("psql"));
        command.args(["-qAtc", sql, url]);
        let done = command.output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// A database and a prefix of its own, for one test: `store.url` and `store.objects`.
    pub(crate) fn fresh(&self) -> (String, String) {
        let name = format!("d{}", self.made.fetch_add(1, Ordering::Relaxed));
        self.psql(&format!("create database {name}")).expect("a database");
        (
            format!("postgres://postgres@{}:{}/{name}?sslmode=disable", self.address, self.postgres.port),
            format!("s3://paddock/{name}"),
        )
    }

    /// The settings of S3.
    pub(crate) fn aws(&self) -> Vec<(String, String)> {
        let endpoint = ("AWS_ENDPOINT".to_owned(), format!("http://{}:{}", self.address, self.s3.port));
        AWS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain([endpoint]).collect()
    }
}

impl Drop for SharedServers {
    fn drop(&mut self) {
        self.stop(Kind::Postgres);
        self.stop(Kind::S3);
    }
}

/// A command to start, and who waits for the child.
type Order = (Command, mpsc::Sender<Child>);

/// Starts a child that is to die with this process. The kernel ends it with the thread that started it, so
/// that thread lives as long as the process.
fn start_for_ever(command: Command) -> Child {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, asked) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in asked {
                let _ = answer.send(command.spawn().expect("tests/shared-store/serve"));
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = mpsc::channel();
    let sent = starter.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    sent.expect("the starter lives");
    child.recv().expect("it was started")
}
