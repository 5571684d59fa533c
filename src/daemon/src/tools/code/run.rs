//! What all tools that run a program share: the check of code, the turn, and the run itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{notify, now_ns};
use crate::session::{OutputBacklog, Phases, RunRequest, Session, SessionError, SessionId, TurnKind};
use crate::store::Batch;
use crate::tools::answer;
use crate::tools::fault::Failure;
use crate::tools::packages::WantedPackages;
use crate::tools::{CallError, Caller, Code, Fault, Outcome, Timing, Tools, drops, packages, values};

/// A call whose every argument is right.
pub(super) struct CheckedRun {
    pub(super) session: SessionId,
    pub(super) run: RunRequest,
    /// The packages that it needs.
    pub(super) packages: Option<WantedPackages>,
    /// Files that are put into `/data` before the run.
    pub(super) files: Vec<(RelPath, Vec<u8>)>,
    /// Whether it waits while another call of the session is in progress.
    pub(super) waits: bool,
}

/// Runs the program to its end. A caller that goes away cancels it; its files are still saved.
pub(super) async fn perform(
    tools: &Arc<Tools>,
    caller: &Caller,
    checked: CheckedRun,
    cancel: CancellationToken,
) -> Result<Outcome, Failure> {
    let _held = tools.message_shares.enter(&caller.owner, &checked.session, caller.message.as_deref())?;
    let mut checked = checked;
    checked.run.packages = packages::bring(caller, checked.packages.take(), &cancel).await?;
    let cancel = cancel.child_token();
    let _gone = cancel.clone().drop_guard();
    let (tools, owner, output) = (tools.clone(), caller.owner.clone(), caller.output.clone());
    let run = async move { run(&tools, &owner, checked, &cancel, output).await };
    let run = tokio::spawn(run.in_current_span());
    run.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a task of the daemon failed");
        Err(Failure::Call(CallError::Internal("the daemon failed in mid-run; its log says why".to_owned())))
    })
}

/// Checks that source code can be run.
pub(super) fn code(tools: &Tools, text: String) -> Result<Bytes, Fault> {
    let invalid = |message: &str| Err(Fault::new(Code::InvalidArgument, message));
    if text.trim().is_empty() {
        return invalid("`code` is empty; give source code to run");
    }
    values::bounded("code", text.len(), tools.limits.code)?;
    if text.contains('\0') {
        return invalid("`code` contains a NUL byte; write it as an escape such as \\x00");
    }
    Ok(Bytes::from(text))
}

/// A call that was held back for less has lost nothing.
const WORTH_TELLING: Duration = Duration::from_millis(1);

async fn run(
    tools: &Arc<Tools>,
    owner: &str,
    checked: CheckedRun,
    cancel: &CancellationToken,
    mut output: Option<OutputBacklog>,
) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let services = &tools.services;
    services.sessions.admits(owner, &checked.session)?;
    let code = services.sessions.turn_for(&checked.run.language, false, checked.run.network.is_some());
    let is_alone = matches!(code, TurnKind::Alone { .. });
    let turn = if checked.waits {
        let kind = if checked.files.is_empty() { code } else { TurnKind::Whole };
        tokio::select! {
            turn = services.sessions.enter(owner, &checked.session, kind) => turn?,
            () = cancel.cancelled() => return Err(SessionError::Cancelled.into()),
        }
    } else {
        services.sessions.try_enter(owner, &checked.session, code).await?
    };
    // In its turn, so that the calls of its session keep their order.
    let places = async {
        let asked = Instant::now();
        let credit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(SessionError::Cancelled),
            credit = services.sessions.may_begin(owner, &checked.session) => credit?,
        };
        let held_back = asked.elapsed();
        // A call that waits behind others of its session, or is held back, takes no place.
        let wait = (services.sessions.bounds().wait + held_back).saturating_sub(begun.elapsed());
        let place = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(SessionError::Cancelled),
            place = services.tenants.begin_run(owner, wait) => place.map_err(SessionError::Limited)?,
        };
        Ok((credit, held_back, place))
    };
    let (credit, held_back, _place) = match turn.unless_closed(cancel, places).await {
        (_, true) => return Err(SessionError::Closed.into()),
        (places, false) => places?,
    };
    let turn = if held_back < WORTH_TELLING { turn } else { turn.held_back(held_back) };
    drops::take_in(tools, &turn).await?;
    let session = &turn.session().clone();
    put_files(session, checked.files).await?;
    let turn = if is_alone { turn } else { turn.for_program(&checked.run.language) };
    let waited_for_turn = begun.elapsed();
    notify::begun(services, session, &checked.run);
    let notes = notify::output(services, session, &checked.run, &mut output);
    let running = services.sessions.runs().run(&turn, &checked.run, credit, cancel, output);
    let ran = match turn.unless_closed(cancel, running).await {
        (Err(SessionError::Cancelled), true) => Err(SessionError::Closed),
        (ran, _) => ran,
    };
    if let Some(notes) = notes {
        notes.finish().await;
    }
    notify::ended(services, session, &checked.run, ran.as_ref().map(|(report, _)| report));
    let (mut report, captured) = ran?;
    let (images, more) = answer::images(session, &report.changed).await;
    let mut document = answer::run_document(tools, session, &checked.run, &report, &captured);
    if more > 0 {
        document.insert("images_not_shown".into(), more.into());
    }
    tools.put_earlier_runs(session, &mut document);
    if let Some(unsaved) = report.unsaved.take() {
        answer::put_unsaved(&mut document, unsaved);
    }
    drop(turn);
    services.drops.give(&services.sessions, owner, &checked.session).await;
    let failed = document.get("success") != Some(&Value::Bool(true));
    let Phases { container, files_in, files_out } = report.phases;
    let total = begun.elapsed();
    services.metrics.overhead(&checked.run.language, total.saturating_sub(report.duration));
    let queued = waited_for_turn + container;
    let timing = Timing { queued, files_in, program: report.duration, files_out, total };
    Ok(Outcome { document, failed, images, timing: Some(timing), ..Outcome::default() })
}

/// Saves the files that a call brings, all or none.
pub(in crate::tools) async fn put_files(
    session: &Session,
    files: Vec<(RelPath, Vec<u8>)>,
) -> Result<(), Failure> {
    if files.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(session.space.clone());
    for (path, content) in files {
        let kind = EntryKind::File(content.len() as u64);
        let entry = Entry { path, kind, mode: 0o644, mtime_ns: now_ns() };
        batch.admit(&entry)?;
        batch.file(entry);
        batch.write(&content).await?;
        batch.keep();
    }
    batch.commit().await?;
    Ok(())
}
