//! Keeps a warm part standing: starts it, hears it, and starts the next one when it is gone.
//!
//! It must never start one sooner than the last one's end allows: a part that never stands must not cost the
//! processor that the runs need.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::message::{RestoreFailure, WarmSpec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::task::spawn_local;

use super::forker::Forker;
use super::line::{PATIENCE, PartMessage, PartMessages, printable};
use super::restoring::{RestoredEnd, Restoring};
use super::single::Single;
use super::state::{StandingPart, Warm};
use crate::complain::complain;
use crate::foreign::Brief;
use crate::intercept::{Answerers, Confinement, Stops};
use crate::network::{Owner, PartRun};
use crate::program::{in_memory, prepare};
use crate::report::{Report, Reports};
use crate::sweep::sweep;
use crate::{job, tree};

/// How long a part may take until it stands.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long a part may take until it is restored: milliseconds, unless the machine has to read the whole
/// snapshot from a slow disk.
pub(super) const RESTORED_WITHIN: Duration = Duration::from_secs(10);

/// How long a part that has ended may take to be heard: its words are there already.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// When a restored part is expected, of which nothing is known yet.
const RESTORED_SOON: Duration = Duration::from_millis(10);

/// How often a part that loads is looked at, in case the code of a run has stopped it.
const LOOK: Duration = Duration::from_millis(250);

/// After a part that stood and died.
const PAUSE: Duration = Duration::from_millis(100);
/// After each part that never stood twice as long as before, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps a part standing, for as long as the container lives, or as long as a level can be restored.
pub(super) async fn keep(warm: Rc<Warm>, spec: Rc<WarmSpec>) {
    let (mut pause, mut usual) = (Duration::ZERO, None);
    let mut restoring = Restoring::new(!spec.restore.is_empty());
    // A level has no command that imports.
    while restoring.goes_on() || !spec.argv.is_empty() {
        tokio::time::sleep(pause).await;
        if warm.is_wary() {
            // A run must not wait for a part that waits for its end.
            warm.is_not_due();
            warm.runs.none().await;
        }
        let (begun, runs) = (Instant::now(), warm.runs.begun());
        let is_restored = restoring.goes_on();
        warm.set_restored(is_restored);
        let expected = usual.or(is_restored.then_some(RESTORED_SOON));
        warm.set_due(expected.map(|expected| begun + expected));
        let mut stood = None;
        let (argv, within) =
            if is_restored { (&spec.restore, RESTORED_WITHIN) } else { (&spec.argv, READY_WITHIN) };
        let end = stand(&warm, (argv, &spec.env), within, || stood = Some(begun.elapsed())).await;
        warm.set_standing(None);
        warm.set_due(None);
        let code_ran = warm.runs.begun() > 0;
        if end.is_err() && code_ran {
            warm.become_wary();
        }
        usual = stood.or(usual);
        let what = if is_restored { "the restored warm part" } else { "the warm part" };
        match (&end, stood) {
            (Ok(()), _) => {}
            (Err(why), Some(_)) => complain(&format!("{what} is gone: {why}")),
            (Err(why), None) => complain(&format!("{what} does not come to stand: {why}")),
        }
        pause = next_pause(pause, end.is_ok(), stood.is_some());
        if let (Err(why), true) = (&end, is_restored) {
            let (how, failure) = match (why, stood) {
                (PartFailure::NotRestored(failure, _), _) => (RestoredEnd::Failed, *failure),
                (PartFailure::Other(_), None) => (RestoredEnd::NeverStood, RestoreFailure::Died),
                (PartFailure::Other(_), Some(_)) => (RestoredEnd::Died, RestoreFailure::Died),
            };
            if restoring.ended(how, warm.runs.begun() > runs, code_ran) {
                (pause, usual) = (Duration::ZERO, None);
                if !code_ran {
                    warm.restores_no_more(printable(&why.to_string()), failure);
                    if spec.argv.is_empty() {
                        return;
                    }
                    // Many containers may be here at this moment: the daemon lets them import by turns.
                    warm.import_is_asked_for().await;
                }
            }
        }
    }
}

/// Why a part is gone.
#[derive(Debug)]
enum PartFailure {
    /// It cannot be restored, as it said itself.
    NotRestored(RestoreFailure, String),
    /// Anything else.
    Other(String),
}

impl From<String> for PartFailure {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl fmt::Display for PartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotRestored(_, why) | Self::Other(why)) = self;
        f.write_str(why)
    }
}

/// How long to wait before the next part starts. The last part had its run, or it died ready, or it was never
/// ready.
fn next_pause(last: Duration, had_its_run: bool, stood: bool) -> Duration {
    match (had_its_run, stood) {
        (true, _) => Duration::ZERO,
        (false, true) => PAUSE,
        (false, false) => (last * 2).clamp(PAUSE, LONGEST_PAUSE),
    }
}

/// One part of this command and environment, from its start to its end; `Ok` if it had its one run. `stood`
/// is called when it stands, which it must within this time.
async fn stand(
    warm: &Rc<Warm>,
    (argv, env): (&[String], &[String]),
    within: Duration,
    stood: impl FnOnce(),
) -> Result<(), PartFailure> {
    let system = |error: io::Error| error.to_string();
    let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| system(error.into()))?;
    let stdin = in_memory("stdin", &[]).map_err(system)?;
    let theirs_in = stdin.try_clone().map_err(system)?;
    let (mut program, outputs) = prepare(argv, env, "/", theirs_in, Some(theirs)).map_err(system)?;
    // Any run of it may have a network. Where calls cannot be stopped, PID 1 listens instead.
    let stops = Stops { connect: true, ..Stops::default() };
    let (confinement, socket) = Confinement::stopped(stops).map_err(system)?;
    program.confinement = confinement.or_silent();
    let owner = Rc::<PartRun>::default();
    let (job, reports) = job::start(&program).map_err(system)?;
    let connect = Some(warm.network.answers(Owner::Part(owner.clone())));
    socket.serve(Answerers { connect, ..Answerers::default() });
    let death = warm.reaper.watch(job);
    warm.set_loading(Some(job));
    drop(program);
    let line = std::os::unix::net::UnixStream::from(line);
    line.set_nonblocking(true).map_err(system)?;
    let line = Rc::new(Brief::new(UnixStream::from_std(line).map_err(system)?));
    let mut reports = Reports::of_job(reports);
    let mut messages = PartMessages::new(line.clone());
    let first = tokio::select! {
        first = first_message(&mut messages, &mut reports) => first,
        () = tokio::time::sleep(within) => Err(format!("not within {within:?}").into()),
        never = keep_awake(job) => match never {},
    };
    warm.set_loading(None);
    let ended = match first {
        Ok((PartMessage::Ready, part)) => {
            stood();
            warm.set_due(None);
            let single = Single { job, part, death: death.clone(), reports, line, stdin, outputs, owner };
            warm.set_standing(Some(StandingPart::Single(single)));
            death.wait().await;
            let waits = warm.take_back();
            return if waits.is_none() { Ok(()) } else { Err("it died while it waited".to_owned().into()) };
        }
        Ok((message, part)) => {
            stood();
            outputs.into_iter().for_each(|output| drop(spawn_local(discard(output))));
            let forker = Forker::new(job, part, line, owner);
            let why = fork(warm, &forker, message, &mut messages, &mut reports).await;
            forker.let_go();
            Err(PartFailure::from(why))
        }
        Err(why) => Err(why),
    };
    warm.set_standing(None);
    tree::kill(&tree::descendants(job));
    if tokio::time::timeout(PATIENCE, death.wait()).await.is_err() {
        tree::kill(&[job]); // stopped by the code
        death.wait().await;
        sweep(&warm.reaper, None, None).await;
    }
    ended
}

/// Waits until the part says that it stands; what it said, and the part's PID.
async fn first_message(
    messages: &mut PartMessages,
    reports: &mut Reports,
) -> Result<(PartMessage, i32), PartFailure> {
    let mut part = None;
    loop {
        tokio::select! {
            biased;
            report = reports.next() => match report {
                Some(Report::Started(pid)) => part = Some(pid),
                other => {
                    // What it said before it ended.
                    let said = tokio::time::timeout(LAST_WORDS, messages.next()).await;
                    if let Ok(Ok(PartMessage::Failed(failure, why))) = said {
                        return Err(PartFailure::NotRestored(failure, why));
                    }
                    return Err(format!("it ended: {other:?}").into());
                }
            },
            message = messages.next(), if part.is_some() => match (message?, part) {
                (message @ (PartMessage::Ready | PartMessage::Stands { .. }), Some(part)) => {
                    return Ok((message, part));
                }
                (PartMessage::Failed(failure, why), _) => {
                    return Err(PartFailure::NotRestored(failure, why));
                }
                (message, _) => return Err(format!("out of turn it said {message:?}").into()),
            },
        }
    }
}

/// Resumes whatever code has stopped of a part that loads: it would stand only after [`READY_WITHIN`] was
/// over and the next one was loaded, and until then every run would be a cold one.
async fn keep_awake(job: i32) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOOK).await;
        let mut stopped = tree::descendants(job);
        stopped.retain(|pid| tree::is_stopped(*pid));
        tree::resume(&stopped);
    }
}

/// Serves runs by a part that forks; why it no longer does.
async fn fork(
    warm: &Warm,
    forker: &Rc<Forker>,
    first: PartMessage,
    messages: &mut PartMessages,
    reports: &mut Reports,
) -> String {
    let mut message = first;
    loop {
        if let Err(why) = forker.hear(message) {
            return why;
        }
        warm.heard(forker);
        message = tokio::select! {
            biased;
            message = messages.next() => match message {
                Ok(message) => message,
                Err(why) => return why,
            },
            report = reports.next() => return format!("it ended: {report:?}"),
        };
    }
}

/// Reads what a part that forks, or a child that waits, writes where no run listens.
async fn discard(output: OwnedFd) {
    let Ok(mut pipe) = pipe::Receiver::from_owned_fd(output) else { return };
    let mut bytes = [0; 4096];
    while pipe.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
}

#[cfg(test)]
mod tests;
