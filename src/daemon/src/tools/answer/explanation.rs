//! Why a program ended, where that was not its own doing: one sentence for the answer.

use paddock_proto::message::{Limit, Outcome as Death};

use crate::session::{RunEnd, RunRequest, limit_name};
use crate::tools::{Code, Tools, values};

/// What an answer says of such an end.
pub(super) struct EndExplanation {
    pub(super) message: String,
    pub(super) limit: Option<&'static str>,
    pub(super) error: Option<Code>,
}

/// The explanation of a run's end; `None` if the program ended by itself.
pub(super) fn explanation(tools: &Tools, run: &RunRequest, end: &RunEnd) -> Option<EndExplanation> {
    let (outcome, limit) = match end {
        RunEnd::Ended { outcome, limit } => (*outcome, *limit),
        RunEnd::Lost(why) => {
            let message = format!(
                "The container was lost in mid-run ({why}). What the program did is unknown, and it is not \
                 run again. Files saved before this run are kept."
            );
            return Some(EndExplanation { message, limit: None, error: Some(Code::Lost) });
        }
    };
    let message = match limit {
        Some(limit) => ended_by(tools, run, limit),
        None => match outcome {
            Death::NotStarted(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                format!("The runner's entrypoint could not be started: {error}")
            }
            Death::Exited(_) | Death::Signaled(_) => return None,
        },
    };
    let limit = match limit {
        Some(Limit::Cancelled) => Some("cancelled"),
        limit => limit.and_then(limit_name),
    };
    Some(EndExplanation { message, limit, error: None })
}

/// The sentence for a bound that ended the program.
fn ended_by(tools: &Tools, run: &RunRequest, limit: Limit) -> String {
    // Unless its image was removed meanwhile, the run's own runner has the bounds.
    let runners = tools.services.pool.runners();
    let bounds = runners.get(&run.language).map(|(_, runner)| &runner.bounds);
    match limit {
        Limit::Wall => format!("Execution timed out after {} seconds", run.timeout.as_secs_f64()),
        Limit::Output => {
            let max = values::size(tools.services.sessions.bounds().max_log);
            format!("The program was ended: it wrote more than {max} to one stream")
        }
        Limit::Memory => format!(
            "The program ran out of memory: {}, and what its files in /data, /tmp and /dev/shm take",
            values::size(bounds.map_or(tools.limits.memory, |bounds| bounds.memory))
        ),
        Limit::Pids => "The program ran out of processes".to_owned(),
        Limit::Cpu => "The program used up its CPU time".to_owned(),
        Limit::FileSize => {
            let max = values::size(bounds.map_or(tools.limits.file_size, |bounds| bounds.file_size));
            format!("The program was ended: it wrote more than {max} to one file")
        }
        Limit::Disk => {
            let most = bounds.map(|bounds| (values::size(bounds.data), bounds.data_inodes));
            let most = most.map(|(size, entries)| format!("has more than {size} or {entries} entries"));
            let most = most.unwrap_or_else(|| "has more than it may".to_owned());
            format!("The program was ended: the container {most} on the disk, or the disk is nearly full")
        }
        Limit::Cancelled if tools.services.stopping.is_cancelled() => {
            "The daemon was shutting down and ended the run; what it had printed and saved until then is kept"
                .to_owned()
        }
        Limit::Cancelled => "The run was cancelled".to_owned(),
    }
}
