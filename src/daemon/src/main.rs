//! The `paddock` command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use paddock::config::{Config, LogLevel, Overrides};
use paddock::metrics::Metrics;
use paddock::{app, doctor, stdio, terminal};

/// Runs code nobody has read yet in locked-down containers that stand warm before the code comes.
#[derive(Parser)]
#[command(name = "paddock", version = paddock::build::LONG)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The daemon: MCP, files and the page over HTTP
    Serve {
        /// The configuration; what it leaves out has the defaults of config.example.toml
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// MCP on standard input and output, for clients that start their servers themselves. Beside a daemon that has the
    /// store it is that daemon's client; alone it is the daemon, for as long as its client stays
    Stdio {
        /// The configuration, the same as the daemon's
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        overrides: Overrides,
    },
    /// Runs code and prints what it prints, in the daemon that has the store, or without one. Its exit code is the program's;
    /// 124 when its time is over, 125 when nothing could be run
    #[command(
        mut_arg("addr", |arg| arg.hide(true)),
        mut_arg("public_url", |arg| arg.hide(true)),
        mut_arg("allow_open", |arg| arg.hide(true))
    )]
    Run {
        #[command(flatten)]
        arguments: terminal::Arguments,
        /// The configuration, the same as the daemon's
        #[arg(long, value_name = "FILE", help_heading = DAEMON)]
        config: Option<PathBuf>,
        #[command(flatten, next_help_heading = DAEMON)]
        overrides: Overrides,
    },
    /// What this host's engine really enforces, tried in a container of its own, and what to do about each lack
    Doctor(doctor::Arguments),
}

/// Above the flags of `paddock run` that say which daemon it goes to, and how it is one itself.
const DAEMON: &str = "The daemon that it goes to, or is itself where there is none";

/// For a command line or configuration that cannot be used.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let what = Command::parse().what;
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (config, overrides) = match &what {
        What::Serve { config, overrides }
        | What::Stdio { config, overrides }
        | What::Run { config, overrides, .. } => (config, overrides),
        What::Doctor(arguments) => return ExitCode::from(doctor::run(arguments, &env)),
    };
    let mut loaded = match Config::load(config.as_deref(), &env, overrides) {
        Ok(loaded) => loaded,
        Err(error) => return complain(&error, UNUSABLE),
    };
    if matches!(what, What::Run { .. }) && loaded.config.log.level == LogLevel::Info {
        loaded.config.log.level = LogLevel::Warn; // a terminal is for what the program says
    }
    let metrics = Metrics::of_process();
    let flush = match paddock::log::init(&loaded.config.log, &metrics) {
        Ok(flush) => flush,
        Err(error) => return complain(&format!("log.file: {error}"), UNUSABLE),
    };
    // They are about serving others, which a run on a terminal does not.
    for warning in loaded.warnings.iter().filter(|_| !matches!(what, What::Run { .. })) {
        tracing::warn!("{warning}");
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error, 1),
    };
    let ended = match what {
        What::Stdio { .. } => runtime.block_on(stdio::serve(loaded.config, metrics)),
        What::Run { arguments, .. } => {
            let code = runtime.block_on(terminal::run(arguments, loaded.config, metrics));
            runtime.shutdown_background();
            return code;
        }
        What::Serve { .. } | What::Doctor(_) => runtime.block_on(app::serve(loaded.config, metrics)),
    };
    // A read of standard input can be under way for ever.
    runtime.shutdown_background();
    drop(flush); // what was logged comes before what is said last
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "paddock: {error}");
    ExitCode::from(code)
}
