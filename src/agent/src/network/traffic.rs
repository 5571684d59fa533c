//! The bytes of one connection, between the program's side and the daemon's stream.
//!
//! It must never hold more than one piece of each direction, nor end in good order a connection that did not:
//! what is dropped before its end is a reset, on both sides.

use std::cell::Cell;

use bytes::{BufMut, Bytes, BytesMut};
use paddock_proto::limits::CHUNK;
use paddock_proto::{Channel, Inbound, Kind};
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::proxy::AnswerHead;
use crate::link::Stream;

/// Fewer bytes than this are copied: they would keep a whole buffer in memory until the daemon has read them.
const LITTLE: usize = CHUNK / 2;

/// How one direction ended.
type Ended = Result<(), Reset>;

/// The connection is of no use any more.
#[derive(Debug)]
struct Reset;

/// Carries bytes both ways until both directions are at their end, or either side resets. Once `over`, the
/// end of the run, nobody reads any more, and what its programs have sent still goes to the daemon.
pub(crate) async fn carry(program: TcpStream, daemon: Stream, over: impl Future<Output = ()>) {
    carry_answer(program, daemon, None, over).await;
}

/// As [`carry`]; the daemon's side begins with the head of an answer that is rewritten.
pub(super) async fn carry_answer(
    mut program: TcpStream,
    daemon: Stream,
    answer: Option<AnswerHead>,
    over: impl Future<Output = ()>,
) {
    let is_sent = Cell::new(false);
    let is_whole = {
        let (from, to) = program.split();
        let up = async {
            let ended = up(from, &daemon).await;
            is_sent.set(true);
            ended
        };
        tokio::pin!(up);
        tokio::select! {
            both = async { tokio::try_join!(&mut up, down(&daemon, to, answer)) } => both.is_ok(),
            () = over => is_sent.get() || up.await.is_ok(),
        }
    };
    if is_whole {
        daemon.close().await;
        // What is still in the kernel must arrive.
        let _ = sockopt::set_socket_linger(&program, None);
    }
}

/// From the program to the daemon.
async fn up(mut program: ReadHalf<'_>, daemon: &Stream) -> Ended {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        let read = program.read_buf(&mut (&mut buffer).limit(CHUNK)).await.map_err(|_| Reset)?;
        let kind = if read == 0 { Kind::Eof(Channel::Net) } else { Kind::Data(Channel::Net) };
        let bytes = if read < LITTLE {
            let bytes = Bytes::copy_from_slice(&buffer);
            buffer.clear();
            bytes
        } else {
            buffer.split().freeze()
        };
        if !daemon.send(kind, bytes).await {
            return Err(Reset);
        }
        if read == 0 {
            return Ok(());
        }
    }
}

/// From the daemon to the program.
async fn down(daemon: &Stream, mut program: WriteHalf<'_>, mut answer: Option<AnswerHead>) -> Ended {
    loop {
        match daemon.recv().await {
            Inbound::Data(Channel::Net, bytes) => {
                let bytes = match &mut answer {
                    Some(head) => head.pass(bytes),
                    None => bytes,
                };
                program.write_all(&bytes).await.map_err(|_| Reset)?;
            }
            Inbound::Eof(Channel::Net) => {
                if let Some(mut head) = answer {
                    program.write_all(&head.end()).await.map_err(|_| Reset)?;
                }
                return program.shutdown().await.map_err(|_| Reset);
            }
            Inbound::Data(..) | Inbound::Eof(_) | Inbound::Message(_) | Inbound::Close | Inbound::Reset => {
                return Err(Reset);
            }
        }
    }
}
