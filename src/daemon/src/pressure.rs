//! How short the processors of this machine are, as the kernel says: `/proc/pressure/cpu` (kernel
//! documentation, `accounting/psi`). It must never guess where the kernel says nothing.

use std::path::Path;
use std::time::{Duration, Instant};

const FILE: &str = "/proc/pressure/cpu";

/// Looks at the counter again and again.
#[derive(Debug, Default)]
pub(crate) struct CpuPressure {
    last: Option<(Instant, Duration)>,
}

impl CpuPressure {
    /// The part of the time since the last look, from 0 to 1, in which something that could run waited for a
    /// processor. `None` at the first look, and where the kernel does not say.
    pub(crate) fn look(&mut self, now: Instant) -> Option<f64> {
        self.look_at(Path::new(FILE), now)
    }

    fn look_at(&mut self, file: &Path, now: Instant) -> Option<f64> {
        let total = std::fs::read_to_string(file).ok().as_deref().and_then(total);
        let last = std::mem::replace(&mut self.last, total.map(|total| (now, total)));
        let ((at, before), total) = (last?, total?);
        let passed = now.saturating_duration_since(at).as_secs_f64();
        (passed > 0.0).then(|| (total.saturating_sub(before).as_secs_f64() / passed).min(1.0))
    }
}

/// The sum of the line `some`: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, in microseconds.
fn total(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_the_time_is_that_between_two_looks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mut pressure, now) = (CpuPressure::default(), Instant::now());
        let mut look = |total: &str, after: u64| {
            let text =
                format!("some avg10=9.00 avg60=1.00 avg300=0.00 total={total}\nfull avg10=0.00 total=7\n");
            std::fs::write(file.path(), text).unwrap();
            pressure.look_at(file.path(), now + Duration::from_millis(after))
        };
        assert_eq!(look("1000", 0), None, "the first look");
        assert_eq!(look("101000", 200), Some(0.5));
        assert_eq!(look("101000", 300), Some(0.0));
        assert_eq!(look("901000", 400), Some(1.0), "no more than all of it");
        assert_eq!(look("-", 500), None);
        assert_eq!(look("901000", 600), None, "the first look again");
        assert_eq!(pressure.look_at(Path::new("/nowhere"), now), None);
    }
}
