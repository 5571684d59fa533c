//! Connections to PostgreSQL: as few as the statements need, each used by many at once, opened again when
//! they break.
//!
//! Every statement commits by itself, so no transaction stays open while anybody waits for a network. The
//! lease has a connection of its own: a statement that waits for a lock must not hold up a renewal. It must
//! never repeat a statement by itself.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::LedgerError;
use crate::http::tls;
use crate::lines::{Lines, MOST};

/// How long opening a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a statement may take at the server,
const STATEMENT: Duration = Duration::from_secs(10);
/// and how long its answer may take here: later, the connection counts as broken.
const ANSWER: Duration = Duration::from_secs(12);
/// The same for the lease: a renewal that takes longer is of no use.
const RENEWAL: Duration = Duration::from_secs(3);

/// A parameter of a statement, with its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Which connection a statement takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// One of those that all share.
    Shared,
    /// That of the lease.
    Lease,
}

/// How a statement failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was not sent.
    NotSent(String),
    /// It was sent, and nobody knows what became of it.
    Unknown(String),
    /// The server refused it, so it changed nothing: the SQLSTATE, and its words.
    Refused(String, String),
}

impl From<Failed> for LedgerError {
    /// Of a statement that changes nothing, or that may be repeated.
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotSent(why) | Failed::Unknown(why) => Self::DatabaseAway(why),
            // Of a server that is shutting down, starting, or out of connections, memory or disk; of two
            // statements that waited for each other, or too long.
            Failed::Refused(code, why)
                if ["57", "53", "40", "08", "55", "25"].iter().any(|class| code.starts_with(class)) =>
            {
                Self::DatabaseAway(why)
            }
            Failed::Refused(_, why) => Self::Refused(why),
        }
    }
}

pub(crate) struct Database {
    config: Config,
    tls: MakeRustlsConnect,
    shared: [Place; MOST],
    lease: Place,
    lines: std::sync::Mutex<Lines>,
    /// The zero of the clock of `lines`.
    began: Instant,
}

/// Where a connection is, once it has been opened.
type Place = Mutex<Option<Arc<Client>>>;

/// A statement's part of a connection, until it has its answer or nobody waits for it any more.
struct Waits<'d> {
    database: &'d Database,
    line: usize,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let now = self.database.began.elapsed();
        self.database.lines().done(self.line, now);
    }
}

impl Database {
    /// Reads the address; connects to nothing yet.
    pub(crate) fn new(url: &str) -> Result<Self, LedgerError> {
        // The parser's own words can repeat parts of the address, and a password is in it.
        let unusable = || LedgerError::Setting {
            setting: "store.url",
            problem: "is no address of a PostgreSQL database: postgres://user:password@host:port/database"
                .to_owned(),
        };
        let mut config: Config = url.parse().map_err(|_| unusable())?;
        if config.get_hosts().is_empty() {
            return Err(unusable());
        }
        config.connect_timeout(CONNECT).application_name("paddock").tcp_user_timeout(ANSWER);
        let tls = MakeRustlsConnect::new(tls()?);
        let (shared, lease, lines) = Default::default();
        Ok(Self { config, tls, shared, lease, lines, began: Instant::now() })
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections that nobody has needed for a while. To be called now and then.
    pub(crate) async fn close_idle(&self) {
        let idle = self.lines().idle(self.began.elapsed());
        for place in idle.into_iter().filter_map(|line| self.shared.get(line)) {
            *place.lock().await = None;
        }
    }

    /// Runs one statement; it commits by itself.
    pub(crate) async fn rows(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failed> {
        self.rows_on(Line::Shared, sql, parameters).await
    }

    /// The same on this line.
    pub(crate) async fn rows_on(
        &self,
        line: Line,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failed> {
        let (place, client, answer, _waits) = match line {
            Line::Shared => {
                let (place, client, waits) = self.shared_client().await?;
                (place, client, ANSWER, Some(waits))
            }
            Line::Lease => (&self.lease, self.client(&self.lease).await?, RENEWAL, None),
        };
        match timeout(answer, client.query_typed(sql, parameters)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => match error.as_db_error() {
                Some(refused) => {
                    let code = refused.code().code().to_owned();
                    if code.starts_with("57P") {
                        forget(place, &client).await; // the server ends this connection
                    }
                    Err(Failed::Refused(code, refused.message().to_owned()))
                }
                None => {
                    forget(place, &client).await;
                    Err(Failed::Unknown(in_words(&error)))
                }
            },
            Err(_) => {
                forget(place, &client).await;
                Err(Failed::Unknown(format!("no answer within {} s", answer.as_secs())))
            }
        }
    }

    /// Runs statements that have no parameters and answer nothing.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), Failed> {
        let client = self.client(&self.lease).await?;
        let failed = match timeout(ANSWER, client.batch_execute(sql)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => match error.as_db_error() {
                Some(refused) => {
                    Failed::Refused(refused.code().code().to_owned(), refused.message().to_owned())
                }
                None => Failed::Unknown(in_words(&error)),
            },
            Err(_) => Failed::Unknown("no answer".to_owned()),
        };
        forget(&self.lease, &client).await;
        Err(failed)
    }

    /// A connection for a statement: where the server has no more of them, one that is open.
    async fn shared_client(&self) -> Result<(&Place, Arc<Client>, Waits<'_>), Failed> {
        loop {
            let line = self.lines().take(self.began.elapsed());
            let waits = Waits { database: self, line };
            let place = self.shared.get(line).unwrap_or(&self.lease);
            match self.client(place).await {
                Ok(client) => return Ok((place, client, waits)),
                Err(failed) => {
                    if !self.lines().failed(line, self.began.elapsed()) {
                        return Err(failed);
                    }
                }
            }
        }
    }

    async fn client(&self, place: &Place) -> Result<Arc<Client>, Failed> {
        let mut held = place.lock().await;
        if let Some(client) = held.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        *held = None;
        let opened = timeout(CONNECT, async {
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(error = in_words(&error), "a connection to the database ended");
                }
            });
            let millis = STATEMENT.as_millis();
            client
                .batch_execute(&format!(
                    "set statement_timeout = {millis}; set client_min_messages = warning"
                ))
                .await?;
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = match opened.await {
            Ok(Ok(client)) => Arc::new(client),
            Ok(Err(error)) => return Err(Failed::NotSent(in_words(&error))),
            Err(_) => return Err(Failed::NotSent(format!("no connection within {} s", CONNECT.as_secs()))),
        };
        *held = Some(client.clone());
        Ok(client)
    }
}

/// Drops a connection that cannot be used any more, unless another has its place by now.
async fn forget(place: &Place, client: &Arc<Client>) {
    let mut held = place.lock().await;
    if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, client)) {
        *held = None;
    }
}

/// What a failure was, with its cause: the library's own words name only the kind.
fn in_words(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
