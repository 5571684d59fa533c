//! Dials a real container: starts the agent's bridge by an exec, whose stream the engine hands over
//! (hijacked), and replaces that stream by a direct carrier where possible.

use std::future::Future;
use std::pin::Pin;

use paddock_proto::limits::AGENT_PROGRAM;

use paddock_proto::message::Offer;

use super::{Carrier, Dial, DialError, direct};
use crate::engine::{ContainerId, Engine, EngineError, ExecSpec};

/// Dials the agent of one container.
pub struct Bridge {
    /// The engine that runs it.
    pub engine: Engine,
    /// The container.
    pub container: ContainerId,
}

impl Dial for Bridge {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async {
            let cmd = vec![AGENT_PROGRAM.to_owned(), "bridge".to_owned()];
            let spec = ExecSpec { cmd, stdin: true, ..ExecSpec::default() };
            let exec = self.engine.exec_create(&self.container, &spec).await.map_err(failed)?;
            let hijacked = self.engine.exec_start(&exec).await.map_err(failed)?;
            let (from, to) = hijacked.into_split();
            let carrier: Carrier = (Box::new(from), Box::new(to));
            Ok(carrier)
        })
    }

    fn wants_direct(&self) -> bool {
        direct::is_possible(self.engine.host().unix_path().is_some())
    }

    fn direct(&self, offer: Offer) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async move {
            let container = self.engine.container_inspect(&self.container).await.map_err(failed)?;
            let taken = direct::take(container.state.pid, offer).await;
            taken.map_err(|error| DialError::Failed(error.to_string()))
        })
    }
}

/// A container that is missing, or does not run, will not come back, since nobody restarts our containers.
fn failed(error: EngineError) -> DialError {
    let gone = error.is_not_found() || error.is_conflict();
    let text = error.to_string();
    if gone { DialError::Gone(text) } else { DialError::Failed(text) }
}
