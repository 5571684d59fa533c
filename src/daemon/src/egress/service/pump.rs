//! Moves the bytes between a program's stream and the HTTP server that answers it, and pays for them.
//!
//! It must never hold more than one read of each direction, and pass on no byte that the run has not paid
//! for.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use super::super::relay::{Account, Cut};
use crate::link::{AskStream, LinkError, NetInput};

/// Bytes that wait on their way, in each direction.
pub(super) const ROOM: usize = 64 * 1024;

/// Carries both halves to their ends.
///
/// # Errors
/// Why the connection is cut short.
pub(super) async fn pump(
    program: &AskStream,
    server: DuplexStream,
    account: &Account<'_>,
) -> Result<(), Cut> {
    let (from, to) = tokio::io::split(server);
    tokio::try_join!(up(program, to, account), down(program, from, account))?;
    Ok(program.close().await?)
}

/// From the program to the server. What it sends after the server has ended is paid for and dropped, so that
/// it can read the last answer.
async fn up(program: &AskStream, mut to: WriteHalf<DuplexStream>, account: &Account<'_>) -> Result<(), Cut> {
    let mut is_heard = true;
    loop {
        match program.read().await? {
            NetInput::Data(bytes) => {
                account.goes_out(bytes.len())?;
                is_heard = is_heard && to.write_all(&bytes).await.is_ok();
                account.touch();
            }
            NetInput::Eof => {
                let _ = to.shutdown().await; // fails only if the server has ended
                return Ok(());
            }
            // An agent ends each half before it closes.
            NetInput::End => return Err(Cut::Program(LinkError::Reset)),
        }
    }
}

/// From the server to the program.
async fn down(
    program: &AskStream,
    mut from: ReadHalf<DuplexStream>,
    account: &Account<'_>,
) -> Result<(), Cut> {
    let mut buffer = BytesMut::with_capacity(ROOM);
    while from.read_buf(&mut buffer).await? > 0 {
        account.comes_in(buffer.len())?;
        program.write(buffer.split().freeze()).await?;
        account.touch();
        buffer.reserve(ROOM);
    }
    Ok(program.eof().await?)
}
