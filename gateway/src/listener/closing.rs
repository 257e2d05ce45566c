//! The end of a connection, so that its client can read the last answer.
//!
//! A socket that is closed with bytes of the client unread is reset, and the reset throws away what the client has not
//! read yet. So the writing side is closed first, and what still arrives is read and discarded for a while: a client
//! that sends a body of some MiB before it reads gets the refusal, and not a broken pipe.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;

/// Bytes that are discarded at the most.
const MAX_DISCARDED: usize = 128 << 20;

/// A client that sends nothing for so long is not waited for.
const SILENCE: Duration = Duration::from_secs(5);

/// How long a connection that is turned away may take to read why.
const TURNING_AWAY: Duration = Duration::from_secs(1);

/// Sends a last answer, if there is one, ends the writing side and discards what still arrives.
pub(super) async fn linger<S>(mut stream: S, closing_answer: Option<String>, limit: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ending = async {
        if let Some(closing_answer) = closing_answer {
            // If the client is gone, there is nobody to read it.
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

/// Says why there is no place, in a task of its own.
pub(super) fn turn_away<S>(stream: S, closing_answer: String, turn: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        linger(stream, Some(closing_answer), TURNING_AWAY).await;
        drop(turn);
    });
}
