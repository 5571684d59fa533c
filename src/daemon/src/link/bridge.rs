//! Dials a real container: takes the pair that stands ready in it where that is possible; otherwise starts
//! the agent's bridge by an exec, whose stream the engine hands over (hijacked).

use std::future::Future;
use std::pin::Pin;

use paddock_proto::limits::AGENT_PROGRAM;

use paddock_proto::message::Offer;
use rustix::io::Errno;

use super::{Carrier, Dial, DialError, take};
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
        take::is_possible(self.engine.host().unix_path().is_some())
    }

    fn standing(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async {
            let taken = take::take_standing(self.pid().await?, &self.container).await;
            taken.map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::SRCH) => DialError::Gone("its first process has ended".to_owned()),
                _ => DialError::Failed(error.to_string()),
            })
        })
    }

    fn direct(&self, offer: Offer) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async move {
            let taken = take::take(self.pid().await?, offer).await;
            taken.map_err(|error| DialError::Failed(error.to_string()))
        })
    }
}

impl Bridge {
    /// The process id of PID 1, as the engine's machine counts.
    async fn pid(&self) -> Result<i64, DialError> {
        let container = self.engine.container_inspect(&self.container).await.map_err(failed)?;
        if container.state.pid == 0 {
            return Err(DialError::Gone("the container does not run".to_owned()));
        }
        Ok(container.state.pid)
    }
}

/// A container that is missing, or does not run, will not come back, since nobody restarts our containers.
fn failed(error: EngineError) -> DialError {
    let gone = error.is_not_found() || error.is_conflict();
    let text = error.to_string();
    if gone { DialError::Gone(text) } else { DialError::Failed(text) }
}
