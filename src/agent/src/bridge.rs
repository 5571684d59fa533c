//! The exec'd half: carries bytes between its standard streams and PID 1's socket, and knows nothing else.
//!
//! It must never interpret what it carries: the secret passes through it, the decisions are PID 1's.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use paddock_proto::limits::SOCKET_NAME;

/// PID 1 listens within milliseconds of the container's start; this is for a machine under heavy load.
const PATIENCE: Duration = Duration::from_secs(10);

/// One read's worth; a pipe holds 64 KiB.
const BUFFER: usize = 64 * 1024;

pub(crate) fn main() -> io::Result<()> {
    let socket = connect()?;
    let up = socket.try_clone()?;
    // The daemon's side: when it closes, PID 1 is told so, and this process ends with the other direction.
    std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
        let _ = carry(&mut io::stdin().lock(), &mut &up);
        let _ = up.shutdown(std::net::Shutdown::Both);
    })?;
    carry(&mut &socket, &mut io::stdout().lock())
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

fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                to.write_all(&buffer[..n])?;
                to.flush()?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
