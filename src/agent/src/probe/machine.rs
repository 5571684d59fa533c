//! The machine that this container runs on, as far as a process that was written into a file depends on it.
//!
//! It must never include what differs between two looks at one machine, such as the speed of a processor.

use std::collections::BTreeSet;

use paddock_proto::message::Machine;

/// Names of lines in /proc/cpuinfo that say what a processor is and can do, on x86 and on ARM.
const LINES: [&str; 10] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "flags",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
];

pub(super) fn look() -> Machine {
    let uname = rustix::system::uname();
    Machine {
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        processor: processor(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
    }
}

/// By the text of /proc/cpuinfo. A machine can have processors of several kinds, each of which counts once.
fn processor(cpuinfo: &str) -> String {
    let lines = cpuinfo.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        LINES.contains(&name.trim()).then(|| format!("{}: {}", name.trim(), value.trim()))
    });
    lines.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_its_model_and_what_it_can_do_however_many_there_are() {
        let one = "processor\t: 0\nmodel name\t: A 1\ncpu MHz\t\t: 2100.1\nflags\t: sse avx\n\n";
        let other = one.replace("2100.1", "800.0").replace("processor\t: 0", "processor\t: 1");
        assert_eq!(processor(one), "flags: sse avx\nmodel name: A 1");
        assert_eq!(processor(&format!("{one}{other}")), processor(one));
        assert_ne!(processor(&one.replace(" avx", "")), processor(one));
    }
}
