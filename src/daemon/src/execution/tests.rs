//! Executions over real sessions, whose pool has no containers: what happens around a command, not in it.

use std::time::SystemTime;

use futures_util::FutureExt;
use paddock_proto::message::{Outcome, RunLimits};
use tokio::time::timeout;

use super::log::ExecutionLog;
use super::stored::now_ms;
use super::*;
use crate::agents::TaskNote;
use crate::session::test_world::World;
use crate::session::{Program, RunEnd};
use crate::store::blocking;
use crate::store::slow_disk::{self, SlowDisk};

const MINUTE: Duration = Duration::from_secs(60);
const KEEP: Duration = Duration::from_secs(3600);

fn executions(world: &World) -> Arc<Executions> {
    let bounds = ExecutionBounds { max: 1, per_session: 1, keep: KEEP, kept: 10 };
    Executions::new(world.sessions.clone(), bounds, Arc::default(), crate::ports::PortLinks::for_tests())
}

fn command() -> StartRequest {
    StartRequest {
        program: Program::Command { command: "true".to_owned(), interactive: false },
        language: "python".to_owned(),
        directory: "/data".to_owned(),
        environment: Vec::new(),
        timeout: MINUTE,
        limits: RunLimits::default(),
        files: None,
        execute: None,
        network: None,
        packages: None,
        task: None,
    }
}

impl Executions {
    async fn permit(&self, world: &World) -> Result<ExecutionPermit, ExecutionError> {
        self.enter(&world.session.owner, &world.session.id).await
    }

    /// Begins a command in the world's session.
    async fn begin(self: &Arc<Self>, world: &World) -> Arc<Execution> {
        let permit = self.permit(world).await.unwrap();
        self.start(permit, command(), None).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn no_jump_of_the_machine_s_clock_removes_an_execution() {
    let world = World::without_containers().await;
    let mut executions = executions(&world);
    // The daemon started long ago by this clock, and the machine's clock was set forward since.
    let day = Duration::from_secs(10_000_000);
    let clock = StoreClock::at(SystemTime::UNIX_EPOCH + day);
    Arc::get_mut(&mut executions).unwrap().clock = clock;
    for (id, ago) in [("0a", KEEP / 2), ("0b", KEEP * 2)] {
        let completed_ms = u64::try_from((day - ago).as_millis()).unwrap();
        let end = ExecutionEnd { completed_ms, ..end::Conclusion::cancelled().end };
        let whose = (world.session.owner.clone(), world.session.id.clone());
        let spec = ExecutionSpec {
            command: "sh".to_owned(),
            interactive: false,
            timeout: MINUTE,
            started_ms: 1,
            program: None,
            task: None,
        };
        let log = ExecutionLog::unloaded(world.session.space.execution_files(id));
        let execution = Execution::over_before(id.to_owned(), whose, spec, log, end);
        executions.all().insert(id.to_owned(), Arc::new(execution));
    }
    executions.remove_expired().await;
    let kept = executions.newest(&world.session.owner, 9);
    assert_eq!(kept.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["0a"]);
    // Or it was set back: what ends now ends long ago by its time.
    let clock = StoreClock::at(SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms()) + 3 * KEEP);
    executions.all().clear();
    Arc::get_mut(&mut executions).unwrap().clock = clock;
    let execution = executions.begin(&world).await;
    execution.end_within(Duration::ZERO);
    execution.over().await;
    executions.remove_expired().await;
    assert_eq!(executions.kept(), 1);
    tokio::time::advance(KEEP + MINUTE).await;
    executions.remove_expired().await;
    assert_eq!(executions.kept(), 0, "it expires all the same");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_waits_for_its_permit_does_not_begin_while_the_daemon_ends() {
    let world = World::without_containers().await;
    let executions = executions(&world);
    let first = executions.begin(&world).await;
    let waiting = tokio::spawn({
        let (executions, session) = (executions.clone(), world.session.clone());
        async move {
            let permit = executions.enter(&session.owner, &session.id).await?;
            executions.start(permit, command(), None).await
        }
    });
    tokio::time::sleep(MINUTE / 60).await;
    assert!(!waiting.is_finished());
    timeout(MINUTE, executions.close()).await.expect("it waits for a command that began meanwhile");
    assert_eq!(first.state(), ExecutionState::Cancelled);
    assert!(matches!(waiting.await.unwrap(), Err(ExecutionError::ShuttingDown)));
    assert!(matches!(executions.permit(&world).await, Err(ExecutionError::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_has_its_permit_when_the_daemon_ends_does_not_begin() {
    let world = World::without_containers().await;
    let executions = executions(&world);
    let permit = executions.permit(&world).await.unwrap();
    timeout(MINUTE, executions.close()).await.expect("nothing is under way");
    let started = executions.start(permit, command(), None).await;
    assert!(matches!(started.map(|_| ()), Err(ExecutionError::ShuttingDown)));
}

#[test]
fn a_command_that_is_beginning_when_the_daemon_ends_is_waited_for_and_cancelled() {
    slow_disk::run(async {
        let world = World::without_containers().await;
        let executions = executions(&world);
        let permit = executions.permit(&world).await.unwrap();
        let disk = SlowDisk::new();
        let mut starting = Box::pin(executions.start(permit, command(), None));
        assert!(starting.as_mut().now_or_never().is_none(), "its log is made");
        let mut closing = Box::pin(executions.close());
        assert!(closing.as_mut().now_or_never().is_none(), "a command is beginning");
        drop(disk);
        let ends = async { tokio::join!(starting, closing).0.unwrap() };
        let execution = timeout(MINUTE, ends).await.expect("it is cancelled");
        assert_eq!(execution.state(), ExecutionState::Cancelled);
    });
}

#[test]
fn a_command_does_not_begin_in_the_session_that_came_after_its_own() {
    slow_disk::run(async {
        let world = World::without_containers().await;
        let executions = executions(&world);
        let (owner, id) = (world.session.owner.clone(), world.session.id.clone());
        let permit = executions.permit(&world).await.unwrap();
        let disk = SlowDisk::new();
        let mut starting = Box::pin(executions.start(permit, command(), None));
        assert!(starting.as_mut().now_or_never().is_none(), "its log is made");
        let mut deleting = Box::pin(world.sessions.close(&owner, &id, true));
        assert!(deleting.as_mut().now_or_never().is_none(), "its files are deleted");
        drop(disk);
        let (execution, deleted) = tokio::join!(starting, deleting);
        assert!(deleted.unwrap());
        let execution = execution.unwrap();
        timeout(MINUTE, execution.over()).await.expect("it waits for a container of the new session");
        assert_eq!(execution.state(), ExecutionState::Cancelled);
    });
}

#[tokio::test(start_paused = true)]
async fn a_program_whose_execution_cannot_be_read_is_followed_all_the_same() {
    let (world, run) = World::with_a_command_in_flight("0a-1b").await;
    let files = world.session.space.execution_files("0a-1b");
    files.append().unwrap();
    files.write_note(b"this is no note").unwrap();
    let executions = executions(&world);
    executions.recover(&world.store, vec![run]).await.unwrap();
    assert_eq!(executions.kept(), 0);
    executions.tasks.close();
    timeout(MINUTE, executions.tasks.wait()).await.expect("it ends");
    assert_eq!(world.saved("out").as_deref(), Some("made"));
}

/// A daemon can be killed after the program of a task has ended and its files are saved, and before the diff
/// is made or noted: the next daemon makes it, of the files before the task.
#[tokio::test]
async fn a_diff_that_a_killed_daemon_did_not_make_is_made_by_the_next() {
    for had_written_some in [false, true] {
        let world = World::without_containers().await;
        world.save("a.txt", b"old\n").await;
        world.save("gone.txt", b"gone\n").await;
        let files = world.session.space.execution_files("0a-1b");
        files.append().unwrap();
        let keeping = blocking(move || files.keep_before(crate::diff::is_compared).map(|()| files));
        let files = keeping.await.unwrap();
        world.save("a.txt", b"new\n").await;
        world.save("b.txt", b"made\n").await;
        world.remove("gone.txt").await;
        if had_written_some {
            files.write_diff(b"half a di").unwrap();
        }
        let task = TaskNote { agent: "claude-code".into(), level: 3, directory: "/workspace".into() };
        let spec = ExecutionSpec {
            command: "do it".to_owned(),
            interactive: false,
            timeout: MINUTE,
            started_ms: 1,
            program: None,
            task: Some(task),
        };
        let ended = RunEnd::Ended { outcome: Outcome::Exited(0), limit: None };
        let conclusion = Some(end::Conclusion::of(&ended, MINUTE / 60, &spec));
        let note = stored::StoredExecution { spec, end: None, conclusion };
        files.write_note(&serde_json::to_vec(&note).unwrap()).unwrap();

        let executions = executions(&world);
        executions.recover(&world.store, Vec::new()).await.unwrap();
        let execution = executions.newest(&world.session.owner, 1).pop().unwrap();
        timeout(MINUTE, execution.over()).await.expect("it is over");
        let end = execution.end().unwrap();
        let diff = end.diff.as_ref().expect("it has a diff");
        assert_eq!(
            (end.state, diff.summary.files_changed, &diff.missing),
            (ExecutionState::Completed, 3, &None)
        );
        let text = world.log_of("0a-1b.diff").unwrap();
        for line in ["-old\n+new\n", "+made\n", "-gone\n"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        executions.tasks.close();
        timeout(MINUTE, executions.tasks.wait()).await.expect("it ends");
        assert!(files.before().unwrap().is_none(), "what was kept for it is removed");
        // The daemon after that has it as it is.
        let later = self::executions(&world);
        later.recover(&world.store, Vec::new()).await.unwrap();
        assert_eq!(later.newest(&world.session.owner, 1)[0].end(), Some(end));
    }
}
