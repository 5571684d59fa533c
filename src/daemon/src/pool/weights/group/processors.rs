//! The processors on which the programs of a container may run: its cpuset ([cpuset(7)]).
//!
//! It must never give a container a processor that the group above it does not have. A container of this
//! daemon also gets none that it was not made with.
//!
//! [cpuset(7)]: https://man7.org/linux/man-pages/man7/cpuset.7.html

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::core::CpusetSight;
use crate::tenants::confine::Confinement;

/// Names of the file of the group above that has the processors that it really has: in the first version of
/// control groups, and in the second one.
const EFFECTIVE: [&str; 2] = ["cpuset.effective_cpus", "cpuset.cpus.effective"];

/// The cpuset of one container.
#[derive(Debug)]
pub(super) struct Processors {
    file: PathBuf,
    /// The numbers of all processors that it has while it is not confined, in ascending order.
    all: Vec<usize>,
}

impl Processors {
    /// The cpuset in this control group, if the group says what it has, and the group above it. What it has
    /// now is all that it has if it `is_new`; in the second version of control groups that is nothing, if
    /// nobody has chosen its processors.
    pub(super) fn of(group: &Path, is_new: bool) -> Option<Self> {
        let file = group.join("cpuset.cpus");
        let own = parse(&fs::read_to_string(&file).ok()?)?;
        let above = group.parent()?;
        let above = EFFECTIVE.iter().find_map(|name| fs::read_to_string(above.join(name)).ok())?;
        let all = if is_new && !own.is_empty() { own } else { parse(&above)? };
        (!all.is_empty()).then_some(Self { file, all })
    }

    /// The processors that it has while it is not confined.
    pub(super) fn all(&self) -> &[usize] {
        &self.all
    }

    /// Where its programs may run now.
    pub(super) fn cpuset(&self) -> CpusetSight {
        let Ok(text) = fs::read_to_string(&self.file) else { return CpusetSight::Unread };
        match parse(&text) {
            // Nobody has written to a file without numbers.
            Some(numbers) if numbers.is_empty() || numbers == self.all => {
                CpusetSight::Confined(Confinement::All)
            }
            Some(numbers) if self.all.ends_with(&numbers) => {
                CpusetSight::Confined(Confinement::Last(numbers.len()))
            }
            Some(_) | None => CpusetSight::Other,
        }
    }

    /// Lets its programs run there only.
    pub(super) fn confine(&self, to: Confinement) -> io::Result<()> {
        fs::write(&self.file, list(left_of(&self.all, to)))
    }
}

/// What is left of these processors.
pub(in crate::pool::weights) fn left_of(all: &[usize], to: Confinement) -> &[usize] {
    match to {
        Confinement::All => all,
        Confinement::Last(count) => &all[all.len().saturating_sub(count)..],
    }
}

/// The numbers of a list such as `0-3,8`, ascending.
fn parse(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(numbers)
}

/// The numbers as such a list, in the shortest form.
pub(in crate::pool::weights) fn list(numbers: &[usize]) -> String {
    let mut text = String::new();
    for range in numbers.chunk_by(|one, next| one + 1 == *next) {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match range {
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            _ => write!(text, "{comma}{}", range[0]),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, numbers) in
            [("0-1\n", vec![0, 1]), ("0,2-4,7\n", vec![0, 2, 3, 4, 7]), ("5", vec![5]), ("\n", vec![])]
        {
            assert_eq!(parse(text), Some(numbers.clone()));
            assert_eq!(list(&numbers), text.trim());
        }
        for text in ["a", "0-", "-1", "1 2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_container_is_confined_to_what_the_group_above_it_has() {
        for name in EFFECTIVE {
            let above = tempfile::tempdir().expect("a folder");
            let group = above.path().join("group");
            fs::create_dir(&group).expect("a folder");
            fs::write(above.path().join(name), "2-4,8\n").expect("a file");
            assert!(Processors::of(&group, true).is_none(), "it has no cpuset");
            fs::write(group.join("cpuset.cpus"), "\n").expect("a file");
            let processors = Processors::of(&group, true).expect("processors");
            let written = || fs::read_to_string(&processors.file).expect("a file");
            let all = CpusetSight::Confined(Confinement::All);
            assert_eq!((processors.all().len(), processors.cpuset()), (4, all));
            for (to, is) in [(Confinement::Last(2), "4,8"), (Confinement::All, "2-4,8")] {
                processors.confine(to).expect("written");
                assert_eq!((written().as_str(), processors.cpuset()), (is, CpusetSight::Confined(to)));
            }
            for other in ["2\n", "whatever"] {
                fs::write(&processors.file, other).expect("a file");
                assert_eq!(processors.cpuset(), CpusetSight::Other, "somebody else wrote {other}");
            }
            // Somebody has chosen its processors, or an earlier daemon has.
            fs::write(&processors.file, "3-4\n").expect("a file");
            let count = |is_new| Processors::of(&group, is_new).expect("processors").all().len();
            assert_eq!((count(true), count(false)), (2, 4));
        }
    }
}
