//! Drop folders at the edges of calls: what is there is taken before a program starts, and what a command
//! changed is put there after its end.

use std::sync::Arc;

use paddock_proto::RelPath;

use super::fault::Failure;
use super::{Code, Fault, Tools, check_free};
use crate::drops::DropError;
use crate::execution::Execution;
use crate::services::Services;
use crate::session::{SessionId, Turn};
use crate::store::{Manifest, StoreError};

/// Takes over what the host put into the drop folder of a session, if it has one.
pub(super) async fn take(tools: &Tools, owner: &str, session: &SessionId) -> Result<(), Failure> {
    let services = &tools.services;
    let taken = services.drops.take(&services.sessions, owner, session, is_free).await;
    taken.map_err(not_taken)
}

/// The same for a call that has its turn already.
pub(super) async fn take_in(tools: &Tools, turn: &Turn) -> Result<(), Failure> {
    tools.services.drops.take_in(turn, is_free).await.map_err(not_taken)
}

fn is_free(manifest: &Manifest, path: &RelPath) -> bool {
    check_free(manifest, path).is_ok()
}

fn not_taken(error: DropError) -> Failure {
    match error {
        DropError::Store(error) => in_the_folder(error.into()),
        DropError::TooMany(_) => Fault::new(Code::QuotaExceeded, error.to_string()).into(),
        DropError::Folder(_) | DropError::Hangs(_) => Fault::new(Code::NotFound, error.to_string()).into(),
    }
}

/// Says that a refusal is about what lies in the drop folder, and not in the call.
fn in_the_folder(failure: Failure) -> Failure {
    match failure {
        Failure::Fault(mut fault) => {
            fault.message =
                format!("what lies in the drop folder of this session was not taken: {}", fault.message);
            fault.into()
        }
        failure @ Failure::Call(_) => failure,
    }
}

/// Puts what a command changes into the drop folder after its end, whoever waits for that.
pub(super) fn give_after(tools: &Arc<Tools>, execution: &Arc<Execution>) {
    let (services, execution) = (tools.services.clone(), execution.clone());
    if services.drops.has(&execution.owner) {
        tokio::spawn(async move {
            execution.over().await;
            services.drops.give(&services.sessions, &execution.owner, &execution.session).await;
        });
    }
}

/// Closes a session; with `delete`, its files go, and with them the copies of what its runs made. False if
/// there is none.
pub(super) async fn close(
    tools: &Tools,
    owner: &str,
    id: &SessionId,
    delete: bool,
) -> Result<bool, StoreError> {
    let Services { drops, sessions, .. } = &*tools.services;
    let copies = if delete { drops.copies(sessions, owner, id).await } else { None };
    let found = sessions.close(owner, id, delete).await?;
    if let Some(copies) = copies {
        drops.remove(owner, id, copies).await;
    }
    Ok(found)
}
