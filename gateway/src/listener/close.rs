//! Closing a connection so that its client can read the last answer.
//!
//! If a socket is closed while bytes of the client are unread, the connection is reset, and the reset discards what
//! the client has not read yet. So the writing side is closed first, and arriving bytes are read and discarded for a
//! while. A client that sends a body of some MiB before it reads then gets the refusal and not a broken pipe.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;

/// The most bytes discarded.
const MAX_DISCARDED: usize = 128 << 20;

/// A client that sends nothing for this long is no longer waited for.
const SILENCE: Duration = Duration::from_secs(5);

/// How long a rejected connection may take to read the closing answer.
const TURNING_AWAY: Duration = Duration::from_secs(1);

/// Sends a closing answer, if there is one, closes the writing side and discards what still arrives.
pub(super) async fn linger<S>(mut stream: S, closing_answer: Option<String>, limit: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ending = async {
        if let Some(closing_answer) = closing_answer {
            // If this fails, the client is gone and needs no answer.
            let _ = stream.write_all(closing_answer.as_bytes()).await;
        }
        let _ = stream.shutdown().await;
        discard(&mut stream).await;
    };
    let _ = tokio::time::timeout(limit, ending).await;
}

async fn discard<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut buffer = vec![0; 16 << 10];
    let mut left = MAX_DISCARDED;
    while let Ok(Ok(bytes)) = tokio::time::timeout(SILENCE, stream.read(&mut buffer)).await {
        if bytes == 0 || bytes > left {
            return;
        }
        left -= bytes;
    }
}

/// Sends the reason for the missing place, in a task of its own.
pub(super) fn turn_away<S>(stream: S, closing_answer: String, turn: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        linger(stream, Some(closing_answer), TURNING_AWAY).await;
        drop(turn);
    });
}
