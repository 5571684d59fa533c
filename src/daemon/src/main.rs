//! The `paddock` command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use paddock::audit::command::{self as audit_log, AuditArguments};
use paddock::config::{Config, LogLevel, Overrides};
use paddock::metrics::Metrics;
use paddock::tenants::command::{self, TokenArguments};
use paddock::{app, backup, doctor, heaps, stdio, telemetry, terminal};

/// Runs untrusted code in locked-down Docker containers that are started before the code arrives.
#[derive(Parser)]
#[command(name = "paddock", version = paddock::build::LONG)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Start the daemon: MCP, files and a web page over HTTP
    Serve {
        /// The configuration file; keys that it does not set keep the defaults of config.example.toml
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// Serve MCP on standard input and output, for clients that start their own servers. It connects to the
    /// running daemon of the store, or becomes that daemon until its client leaves
    Stdio {
        /// The configuration file of the daemon
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// Run a program in a container and print its output. It connects to the running daemon of the store, or
    /// becomes that daemon until the program has ended. The exit code is the program's; 124 after a timeout,
    /// 125 if nothing could be run
    #[command(
        mut_arg("addr", |arg| arg.hide(true)),
        mut_arg("public_url", |arg| arg.hide(true)),
        mut_arg("allow_open", |arg| arg.hide(true))
    )]
    Run {
        #[command(flatten)]
        arguments: Box<terminal::RunArguments>,
        /// The configuration file of the daemon
        #[arg(long, value_name = "FILE", help_heading = DAEMON)]
        config: Option<PathBuf>,
        #[command(flatten, next_help_heading = DAEMON)]
        overrides: Overrides,
    },
    /// Have a coding agent do a task, show what it did as a diff, and take its changes over if asked to. It
    /// connects to the running daemon of the store, or becomes that daemon until the task has ended
    #[command(
        mut_arg("addr", |arg| arg.hide(true)),
        mut_arg("public_url", |arg| arg.hide(true)),
        mut_arg("allow_open", |arg| arg.hide(true))
    )]
    Task {
        #[command(flatten)]
        arguments: Box<terminal::TaskArguments>,
        /// The configuration file of the daemon
        #[arg(long, value_name = "FILE", help_heading = DAEMON)]
        config: Option<PathBuf>,
        #[command(flatten, next_help_heading = DAEMON)]
        overrides: Overrides,
    },
    /// Check an audit log (audit.file)
    Audit(AuditArguments),
    /// Make, show and revoke the tokens of callers; a running daemon takes up each change within a second
    Token(TokenArguments),
    /// Test in a container what the engine of this host really enforces, and say how to fix each problem
    Doctor(doctor::DoctorArguments),
    /// Ask the running daemon of the store whether it is healthy. The exit code is 0 if it is, otherwise 1
    Health {
        #[command(flatten)]
        arguments: terminal::HealthArguments,
        /// The configuration file of the daemon
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// Show the nodes of the cluster, or drain this one
    Cluster {
        #[command(flatten)]
        arguments: terminal::ClusterArguments,
        /// The configuration file of the daemon
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// Print the completions of a shell, for its folder of completions
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Write the whole store to one file, at one moment, while the daemon runs or without it
    Backup(backup::BackupArguments),
    /// Check a backup and put it in the place of the store, all of it or nothing. No daemon may use the store
    Restore(backup::RestoreArguments),
}

/// The heading of those flags of `paddock run` and `paddock task` that describe the daemon.
const DAEMON: &str = "The daemon to connect to, or to become if none is running";

/// The exit code for a command line or a configuration that cannot be used.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    heaps::bound();
    let what = Command::parse().what;
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (config, overrides) = match &what {
        What::Serve { config, overrides }
        | What::Stdio { config, overrides }
        | What::Run { config, overrides, .. }
        | What::Task { config, overrides, .. }
        | What::Cluster { config, overrides, .. }
        | What::Health { config, overrides, .. } => (config, overrides),
        What::Doctor(arguments) => return ExitCode::from(doctor::run(arguments, &env)),
        What::Completions { shell } => {
            clap_complete::generate(*shell, &mut Command::command(), "paddock", &mut std::io::stdout());
            return ExitCode::SUCCESS;
        }
        What::Man { folder } => {
            return match clap_mangen::generate_to(Command::command(), folder) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&format!("{}: {error}", folder.display()), 1),
            };
        }
        What::Backup(arguments) => return ExitCode::from(backup::backup(arguments, &env)),
        What::Restore(arguments) => return ExitCode::from(backup::restore(arguments, &env)),
        What::Token(arguments) => return token(arguments, &env),
        What::Audit(arguments) => return audit(arguments),
    };
    let asks_only = matches!(what, What::Health { .. } | What::Cluster { .. });
    let overrides = if asks_only { &overrides.serving_nobody() } else { overrides };
    let mut loaded = match Config::load(config.as_deref(), &env, overrides) {
        Ok(loaded) => loaded,
        Err(error) => return complain(&error, UNUSABLE),
    };
    let is_at_a_terminal = asks_only || matches!(what, What::Run { .. } | What::Task { .. });
    if is_at_a_terminal && loaded.config.log.level == LogLevel::Info {
        loaded.config.log.level = LogLevel::Warn; // the terminal belongs to the output of the program
    }
    let metrics = Metrics::of_process();
    let endpoint = loaded.config.telemetry.otlp_endpoint.as_deref();
    let spans = match endpoint.map(|url| telemetry::open(url, metrics.clone())).transpose() {
        Ok(spans) => spans,
        Err(error) => return complain(&error, UNUSABLE),
    };
    let (spans, last_spans) = spans.unzip();
    let flush = match paddock::log::init(&loaded.config.log, spans, &metrics) {
        Ok(flush) => flush,
        Err(error) => return complain(&format!("log.file: {error}"), UNUSABLE),
    };
    // The warnings are about serving other people, which a run from a terminal does not do.
    for warning in loaded.warnings.iter().filter(|_| !is_at_a_terminal) {
        tracing::warn!("{warning}");
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error, 1),
    };
    let ended = match what {
        What::Stdio { .. } => runtime.block_on(stdio::serve(loaded.config, metrics)),
        What::Run { arguments, .. } => {
            let code = runtime.block_on(terminal::run(*arguments, loaded.config, metrics));
            runtime.shutdown_background();
            return code;
        }
        What::Task { arguments, .. } => {
            let code = runtime.block_on(terminal::task(*arguments, loaded.config, metrics));
            runtime.shutdown_background();
            return code;
        }
        What::Health { arguments, .. } => {
            let code = runtime.block_on(terminal::health(arguments, loaded.config));
            runtime.shutdown_background();
            return code;
        }
        What::Cluster { arguments, .. } => {
            let code = runtime.block_on(terminal::cluster(arguments, loaded.config));
            runtime.shutdown_background();
            return code;
        }
        What::Serve { .. }
        | What::Doctor(_)
        | What::Token(_)
        | What::Audit(_)
        | What::Backup(_)
        | What::Restore(_)
        | What::Completions { .. }
        | What::Man { .. } => runtime.block_on(app::serve(loaded.config, metrics)),
    };
    // A read of standard input may never return, so the runtime does not wait for it.
    runtime.shutdown_background();
    drop((last_spans, flush)); // the log is written before the last message
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

/// Carries out `paddock audit`.
fn audit(arguments: &AuditArguments) -> ExitCode {
    match audit_log::run(arguments) {
        Ok((text, is_whole)) => {
            command::print(&text, "");
            if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(why) => complain(&why, UNUSABLE),
    }
}

/// Carries out `paddock token`.
fn token(arguments: &TokenArguments, env: &BTreeMap<String, String>) -> ExitCode {
    let overrides = Overrides { store: arguments.store.clone(), ..Overrides::default() }.serving_nobody();
    let loaded = match Config::load(arguments.config.as_deref(), env, &overrides) {
        Ok(loaded) => loaded,
        Err(error) => return complain(&error, UNUSABLE),
    };
    match command::run(arguments, &loaded.config) {
        Ok((out, to_people)) => {
            command::print(&out, &to_people);
            ExitCode::SUCCESS
        }
        Err(why) => complain(&why, 1),
    }
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "paddock: {error}");
    ExitCode::from(code)
}
