//! The lines that a daemon writes to standard error, and their end.

use std::io::{BufRead, BufReader};
use std::process::ChildStderr;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::{PATIENCE, within};

/// The lines so far, and a signal for more.
#[derive(Clone)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    /// The number of lines, and whether more can come.
    news: watch::Receiver<(usize, bool)>,
}

impl Log {
    /// Reads until the other end is closed, in a thread of its own; the receiver is then disconnected.
    pub(crate) fn read(stderr: ChildStderr) -> (Log, Receiver<()>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (tell, news) = watch::channel((0, true));
        let kept = lines.clone();
        let (alive, ended) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let mut lines = kept.lock().expect("no panic");
                lines.push(String::from_utf8_lossy(&line).into_owned());
                tell.send_replace((lines.len(), true));
            }
            tell.send_modify(|news| news.1 = false);
            drop(alive);
        });
        (Log { lines, news }, ended)
    }

    /// The number of lines so far.
    pub(crate) fn mark(&self) -> usize {
        self.news.borrow().0
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        self.lines.lock().expect("no panic").join("\n")
    }

    /// The number of lines so far that contain `what`.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.lines.lock().expect("no panic").iter().filter(|line| line.contains(what)).count()
    }

    fn find(&self, from: usize, what: &str) -> Option<String> {
        self.lines.lock().expect("no panic").iter().skip(from).find(|line| line.contains(what)).cloned()
    }

    /// The first line that contains `what`; `None` if the log ends without one.
    pub(crate) async fn line_or_end(&self, what: &str) -> Option<String> {
        self.line_after(0, what, PATIENCE).await
    }

    /// The first line that contains `what`.
    pub(crate) async fn line(&self, what: &str) -> String {
        self.line_since(0, what).await
    }

    /// The first line that contains `what` and comes after the `mark`.
    pub(crate) async fn line_since(&self, mark: usize, what: &str) -> String {
        self.some_line(mark, what, PATIENCE).await
    }

    /// The first line that contains `what`, which comes within this time.
    pub(crate) async fn line_within(&self, patience: Duration, what: &str) -> String {
        self.some_line(0, what, patience).await
    }

    async fn some_line(&self, mark: usize, what: &str, patience: Duration) -> String {
        let line = self.line_after(mark, what, patience).await;
        line.unwrap_or_else(|| panic!("the daemon ended and never said {what:?}:\n{}", self.text()))
    }

    /// The mark behind the line that [`Log::line_since`] finds.
    pub(crate) async fn mark_behind(&self, mark: usize, what: &str) -> usize {
        self.line_since(mark, what).await;
        let lines = self.lines.lock().expect("no panic");
        lines
            .iter()
            .enumerate()
            .skip(mark)
            .find(|(_, line)| line.contains(what))
            .map_or(mark, |(at, _)| at + 1)
    }

    async fn line_after(&self, mark: usize, what: &str, patience: Duration) -> Option<String> {
        let mut news = self.news.clone();
        let wait = async {
            loop {
                let (_, more) = *news.borrow_and_update();
                if let Some(line) = self.find(mark, what) {
                    return Some(line);
                }
                if !more || news.changed().await.is_err() {
                    return self.find(mark, what);
                }
            }
        };
        match tokio::time::timeout(patience, wait).await {
            Ok(line) => line,
            Err(_) => panic!("no line with {what:?} within {patience:?}:\n{}", self.text()),
        }
    }

    /// Waits until no more lines can come: the daemon has ended.
    pub(crate) async fn end(&self, patience: Duration) {
        let mut news = self.news.clone();
        let _ = within(patience, "the end of the daemon", news.wait_for(|(_, more)| !more)).await;
    }
}

/// The value of `key=value` in a line, or of a text field in a JSON line.
pub(crate) fn field(line: &str, key: &str) -> Option<String> {
    if line.starts_with('{') {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        return line[key].as_str().map(str::to_owned);
    }
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.to_owned())
}
