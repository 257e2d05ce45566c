//! Arriving bytes, handed over in pieces to a thread for blocking work while the next ones arrive.

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::layout::LayoutError;

/// A piece is handed over from this size on, if the one before it is done.
pub(crate) const PIECE: usize = 256 * 1024;

/// From this size on, the sender waits until the piece before is done. So no more than twice as much is in memory,
/// and the two strings of bytes that filled the pieces.
const LARGEST: usize = 2 * PIECE;

/// The same for the number of strings of bytes. Short ones need more memory than they have bytes.
const MOST_STRINGS: usize = 1024;

/// The bytes gathered for the next piece, and the work on the piece before.
#[derive(Default)]
pub(crate) struct Pieces {
    gathered: Vec<Bytes>,
    size: usize,
    under_way: Option<JoinHandle<Result<(), LayoutError>>>,
    failed: Option<LayoutError>,
}

impl Pieces {
    /// Adds bytes, and hands over a piece if there is enough for one.
    pub(crate) async fn add(
        &mut self,
        bytes: Bytes,
        work: impl FnOnce(Vec<Bytes>) -> Result<(), LayoutError> + Send + 'static,
    ) -> Result<(), LayoutError> {
        self.size += bytes.len();
        self.gathered.push(bytes);
        let is_full = self.size >= LARGEST || self.gathered.len() >= MOST_STRINGS;
        let is_idle = self.under_way.as_ref().is_none_or(JoinHandle::is_finished);
        if is_full || (is_idle && self.size >= PIECE) {
            self.hand_over(work).await?;
        }
        Ok(())
    }

    /// Hands over what is gathered, once the piece before is done.
    pub(crate) async fn hand_over(
        &mut self,
        work: impl FnOnce(Vec<Bytes>) -> Result<(), LayoutError> + Send + 'static,
    ) -> Result<(), LayoutError> {
        self.settle().await?;
        let piece = self.take();
        if !piece.is_empty() {
            self.start(move || work(piece)).await?;
        }
        Ok(())
    }

    /// Starts work once the work before is done. It is completed even if the caller stops waiting.
    pub(crate) async fn start(
        &mut self,
        work: impl FnOnce() -> Result<(), LayoutError> + Send + 'static,
    ) -> Result<(), LayoutError> {
        self.settle().await?;
        self.under_way = Some(tokio::task::spawn_blocking(work));
        Ok(())
    }

    /// Waits for the work under way. After a failure no further work is started.
    pub(crate) async fn settle(&mut self) -> Result<(), LayoutError> {
        if let Some(under_way) = &mut self.under_way {
            let done = under_way.await;
            self.under_way = None;
            self.failed = match done {
                Ok(done) => done.err(),
                Err(error) => Some(LayoutError::Failed {
                    what: "working on the bytes of a body".to_owned(),
                    error: error.to_string(),
                }),
            };
        }
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Takes what is gathered.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.size = 0;
        std::mem::take(&mut self.gathered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use parking_lot::Mutex;

    use super::*;

    /// Work on pieces, each of which waits for permission.
    struct Held {
        go_on: SyncSender<()>,
        waiting: Arc<Mutex<Receiver<()>>>,
        done: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    impl Held {
        fn new() -> Held {
            let (go_on, waiting) = sync_channel(8);
            Held { go_on, waiting: Arc::new(Mutex::new(waiting)), done: Arc::default() }
        }

        fn work(&self) -> impl FnOnce(Vec<Bytes>) -> Result<(), LayoutError> + Send + use<> {
            let (waiting, done) = (self.waiting.clone(), self.done.clone());
            move |piece: Vec<Bytes>| {
                waiting.lock().recv().unwrap();
                done.lock().push(piece.concat());
                Ok(())
            }
        }
    }

    fn bytes(letter: u8, length: usize) -> Bytes {
        vec![letter; length].into()
    }

    #[tokio::test]
    async fn one_piece_is_worked_on_while_the_next_is_gathered_up_to_a_bound() {
        let (mut pieces, held) = (Pieces::default(), Held::new());
        pieces.add(bytes(b'a', PIECE - 1), held.work()).await.unwrap();
        assert!(pieces.under_way.is_none(), "not enough for a piece");
        pieces.add(bytes(b'b', 1), held.work()).await.unwrap();
        assert!(pieces.under_way.is_some() && pieces.gathered.is_empty());
        // Enough for a piece, but the first is not done.
        pieces.add(bytes(b'c', LARGEST - 1), held.work()).await.unwrap();
        assert_eq!(pieces.size, LARGEST - 1);
        {
            let adding = pieces.add(bytes(b'd', 1), held.work());
            tokio::pin!(adding);
            assert!(futures_util::poll!(&mut adding).is_pending(), "the sender waits");
            held.go_on.send(()).unwrap();
            adding.await.unwrap();
        }
        assert_eq!(pieces.size, 0);
        pieces.add(bytes(b'e', 1), held.work()).await.unwrap();
        held.go_on.send(()).unwrap();
        pieces.settle().await.unwrap();
        assert_eq!(pieces.take().concat(), b"e");
        let first = [bytes(b'a', PIECE - 1), bytes(b'b', 1)].concat();
        let second = [bytes(b'c', LARGEST - 1), bytes(b'd', 1)].concat();
        assert!(*held.done.lock() == [first, second], "in order, each once");
    }

    #[tokio::test]
    async fn many_short_strings_are_a_piece() {
        let (mut pieces, held) = (Pieces::default(), Held::new());
        for _ in 0..MOST_STRINGS {
            assert!(pieces.under_way.is_none());
            pieces.add(bytes(b'x', 1), held.work()).await.unwrap();
        }
        held.go_on.send(()).unwrap();
        pieces.settle().await.unwrap();
        assert_eq!(*held.done.lock(), [vec![b'x'; MOST_STRINGS]]);
    }

    /// A caller that stops waiting loses no bytes, and its work is still waited for.
    #[tokio::test]
    async fn bytes_of_a_dropped_call_stay_gathered() {
        let (mut pieces, held) = (Pieces::default(), Held::new());
        pieces.add(bytes(b'a', PIECE), held.work()).await.unwrap();
        {
            let adding = pieces.add(bytes(b'b', LARGEST), held.work());
            tokio::pin!(adding);
            assert!(futures_util::poll!(&mut adding).is_pending());
        }
        held.go_on.send(()).unwrap();
        pieces.settle().await.unwrap();
        assert_eq!(held.done.lock().len(), 1);
        assert_eq!(pieces.take().concat().len(), LARGEST);
    }

    #[tokio::test]
    async fn after_a_failure_nothing_more_is_worked_on() {
        let mut pieces = Pieces::default();
        let full = LayoutError::NoSpace("full".to_owned());
        let failing = full.clone();
        pieces.add(bytes(b'a', PIECE), move |_| Err(failing)).await.unwrap();
        assert_eq!(pieces.settle().await, Err(full.clone()));
        assert_eq!(pieces.add(bytes(b'b', PIECE), |_| panic!("worked on")).await, Err(full.clone()));
        assert_eq!(pieces.start(|| panic!("worked on")).await, Err(full.clone()));
        assert_eq!(pieces.settle().await, Err(full));
    }

    #[tokio::test]
    async fn work_that_panics_is_a_failure() {
        let mut pieces = Pieces::default();
        pieces.start(|| panic!("injected")).await.unwrap();
        assert!(matches!(pieces.settle().await, Err(LayoutError::Failed { .. })));
    }
}
