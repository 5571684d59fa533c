//! The program of the daemon's exec: hands its standard streams to PID 1, and lives as long as PID 1 uses
//! them.
//!
//! It must never read a byte of them: the secret passes there, and PID 1 decides.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use paddock_proto::limits::SOCKET_NAME;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::stdio::{dup2_stdin, dup2_stdout};

use crate::carrier;

/// PID 1 listens within milliseconds of the container's start; this is for a machine under heavy load.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn main() -> io::Result<()> {
    // The program's mode makes it so already, unless the runtime starts only what everybody may read.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut socket = connect()?;
    carrier::hand_over(&socket)?;
    // Only PID 1 has them now: when it closes them, the engine sees their end.
    dup2_stdin(&socket)?;
    dup2_stdout(&socket)?;
    // PID 1 never writes here: this waits until it closes its end of the socket.
    socket.read(&mut [0]).map(drop)
}

fn connect() -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(SOCKET_NAME)?;
    let begin = Instant::now();
    loop {
        match UnixStream::connect_addr(&address) {
            Ok(socket) => return Ok(socket),
            // PID 1 has not bound its socket yet: there is no event to wait for, only its appearance.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => return Err(e),
        }
    }
}
