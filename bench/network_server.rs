//! The other side of the rows about the network: a server on this host's loopback, on a thread of its own.
//!
//! It serves one connection after the other, since the rows make one at a time. It must never look at what it
//! receives, or it would be the slowest part.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Bytes of one transfer.
pub(crate) const TRANSFER: usize = 100 << 20;

/// One read or write.
const PIECE: usize = 256 * 1024;

/// Starts it: its port. It ends with this process.
pub(crate) fn start() -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::Builder::new().name("network".to_owned()).spawn(move || {
        let mut piece = vec![0; PIECE];
        while let Ok((mut stream, _)) = listener.accept() {
            // A program that breaks off says so itself.
            let _ = serve(&mut stream, &mut piece);
        }
    })?;
    Ok(port)
}

/// The first byte says what is wanted; a connection that ends before it was only a connect.
fn serve(stream: &mut TcpStream, piece: &mut [u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    if stream.read(&mut first)? == 0 {
        return Ok(());
    }
    match &first {
        b"d" => {
            let mut left = TRANSFER;
            while left > 0 {
                let n = left.min(piece.len());
                stream.write_all(&piece[..n])?;
                left -= n;
            }
            // The program closes first: what is closed here can overtake what a proxy still carries.
            stream.read(&mut first).map(drop)
        }
        b"u" => {
            let mut got = 0;
            while got < TRANSFER {
                match stream.read(piece)? {
                    0 => break,
                    n => got += n,
                }
            }
            stream.write_all(got.to_string().as_bytes())
        }
        _ => loop {
            match stream.read(piece)? {
                0 => return Ok(()),
                n => stream.write_all(&piece[..n])?,
            }
        },
    }
}
