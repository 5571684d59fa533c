//! Writes on blocking threads, in their order, so that a slow disk never holds up a worker of the runtime.
//!
//! ```text
//!  push ─► queue ─► a thread takes all that waits, as one batch ─► WriteBatch::write ─► the next batch
//!                                                                        └─► poll_written, once none waits
//! ```
//!
//! A thread is busy with a queue only while something waits in it, so a thousand idle queues cost no thread.
//! Items that arrive during a write become the next batch: one wakeup of a thread for each burst, not for
//! each item.
//!
//! The queue has no bound of its own. Its users have one: what a program wrote is acknowledged to its agent
//! only after it is written, so no more than one window of it can wait here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What a queue's thread does with a batch. It may block.
pub(crate) trait WriteBatch: Send + 'static {
    /// What can be written.
    type Item: Send + 'static;

    /// Writes the items, in their order. It keeps its errors, see [`WriteQueue::writer`].
    fn write(&mut self, batch: Vec<Self::Item>);

    /// Notes as an error that [`WriteBatch::write`] panicked: its batch may be lost.
    fn failed(&mut self);
}

/// See the module documentation. Dropping it loses nothing: what was pushed is still written.
pub(crate) struct WriteQueue<W: WriteBatch> {
    shared: Arc<SharedQueue<W>>,
}

struct SharedQueue<W: WriteBatch> {
    queue: Mutex<WaitingItems<W::Item>>,
    /// Locked during a write.
    writer: Mutex<W>,
}

struct WaitingItems<T> {
    waiting: Vec<T>,
    /// Whether a thread writes, or is about to.
    busy: bool,
    /// The task that waits until everything is written.
    waker: Option<Waker>,
}

impl<W: WriteBatch> WriteQueue<W> {
    /// A queue in front of `writer`.
    pub(crate) fn new(writer: W) -> Self {
        let queue = WaitingItems { waiting: Vec::new(), busy: false, waker: None };
        Self { shared: Arc::new(SharedQueue { queue: Mutex::new(queue), writer: Mutex::new(writer) }) }
    }

    /// Has `items` written after all that was pushed before. To be called within a runtime.
    pub(crate) fn push(&self, items: impl IntoIterator<Item = W::Item>) {
        let mut queue = self.shared.queue();
        queue.waiting.extend(items);
        if queue.busy || queue.waiting.is_empty() {
            return;
        }
        queue.busy = true;
        drop(queue);
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || shared.drain());
    }

    /// Whether everything that was pushed is written, or has failed.
    pub(crate) fn is_written(&self) -> bool {
        !self.shared.queue().busy
    }

    /// Ready once everything that was pushed is written, or has failed. One task can wait at a time.
    pub(crate) fn poll_written(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.shared.queue();
        if !queue.busy {
            return Poll::Ready(());
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Resolves once everything that was pushed is written, or has failed.
    pub(crate) async fn written(&self) {
        std::future::poll_fn(|context| self.poll_written(context)).await;
    }

    /// The writer. Waits for a write that is under way: to be called once everything is
    /// [written](Self::written).
    pub(crate) fn writer(&self) -> MutexGuard<'_, W> {
        self.shared.writer()
    }
}

impl<W: WriteBatch> SharedQueue<W> {
    fn queue(&self) -> MutexGuard<'_, WaitingItems<W::Item>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, W> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes batch after batch until nothing waits.
    fn drain(&self) {
        loop {
            let mut queue = self.queue();
            if queue.waiting.is_empty() {
                queue.busy = false;
                let waker = queue.waker.take();
                drop(queue);
                waker.into_iter().for_each(Waker::wake);
                return;
            }
            let batch = std::mem::take(&mut queue.waiting);
            drop(queue);
            // A writer that panics loses its batch, and its queue goes on: no task may wait for it for ever.
            if catch_unwind(AssertUnwindSafe(|| self.writer().write(batch))).is_err() {
                self.writer().failed();
            }
        }
    }
}

/// For tests of what happens before a write is done.
#[cfg(test)]
pub(crate) mod slow_disk {
    use std::future::Future;
    use std::sync::mpsc;

    /// Runs a test on a paused clock and with one blocking thread, which a [`SlowDisk`] can hold.
    pub(crate) fn run<F: Future>(test: F) -> F::Output {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).max_blocking_threads(1);
        runtime.build().unwrap().block_on(test)
    }

    /// No write goes on until it is dropped.
    pub(crate) struct SlowDisk {
        _until_dropped: mpsc::Sender<()>,
    }

    impl SlowDisk {
        pub(crate) fn new() -> Self {
            let (until_dropped, dropped) = mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || {
                let _ = dropped.recv();
            });
            Self { _until_dropped: until_dropped }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Tells of each batch when it begins, and ends it when it is told to.
    struct Gated {
        begun: mpsc::Sender<Vec<u32>>,
        go: mpsc::Receiver<()>,
        wrote: Vec<u32>,
        failures: usize,
    }

    impl WriteBatch for Gated {
        type Item = u32;

        fn write(&mut self, batch: Vec<u32>) {
            self.begun.send(batch.clone()).unwrap();
            self.go.recv().unwrap();
            assert_ne!(batch, [666], "a writer that panics");
            self.wrote.extend(batch);
        }

        fn failed(&mut self) {
            self.failures += 1;
        }
    }

    fn gated() -> (WriteQueue<Gated>, mpsc::Receiver<Vec<u32>>, mpsc::Sender<()>) {
        let ((begun, batches), (gate, go)) = (mpsc::channel(), mpsc::channel());
        (WriteQueue::new(Gated { begun, go, wrote: Vec::new(), failures: 0 }), batches, gate)
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_arrive_during_a_write_are_the_next_batch_and_no_worker_waits_for_a_write() {
        let (queue, batches, gate) = gated();
        assert!(queue.is_written());
        queue.push([1]);
        assert_eq!(batches.recv(), Ok(vec![1]));
        // This thread is the runtime's only worker, and goes on.
        queue.push([2, 3]);
        queue.push([]);
        queue.push([4]);
        let waiting = tokio::spawn(async move {
            queue.written().await;
            queue
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "said to be written during the write");
        gate.send(()).unwrap();
        assert_eq!(batches.recv(), Ok(vec![2, 3, 4]));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "said to be written with one batch to go");
        gate.send(()).unwrap();
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        let queue = waited.expect("it is woken").unwrap();
        assert!(queue.is_written());
        assert_eq!(queue.writer().wrote, [1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn a_writer_that_panics_loses_its_batch_and_no_other_and_notes_it() {
        let (queue, _batches, gate) = gated();
        for (item, wrote, failures) in [(1, vec![1], 0), (666, vec![1], 1), (2, vec![1, 2], 1)] {
            queue.push([item]);
            gate.send(()).unwrap();
            tokio::time::timeout(Duration::from_secs(10), queue.written()).await.expect("it is woken");
            let writer = queue.writer();
            assert_eq!((&writer.wrote, writer.failures), (&wrote, failures));
        }
    }

    #[tokio::test]
    async fn what_was_pushed_is_written_also_if_the_queue_is_dropped() {
        let (queue, batches, gate) = gated();
        queue.push([1]);
        assert_eq!(batches.recv(), Ok(vec![1]));
        queue.push([2]);
        drop(queue);
        gate.send(()).unwrap();
        gate.send(()).unwrap();
        assert_eq!(batches.recv_timeout(Duration::from_secs(10)), Ok(vec![2]));
    }
}
