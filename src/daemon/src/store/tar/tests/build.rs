//! Builds entries of archives byte by byte.

/// A header with its checksum; `change` changes it before the checksum is computed.
pub(super) fn header(name: &[u8], kind: u8, size: u64, change: impl FnOnce(&mut [u8; 512])) -> Vec<u8> {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000012\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    change(&mut block);
    seal(&mut block);
    block.to_vec()
}

pub(super) fn seal(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block[..512].iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub(super) fn padded(content: &[u8]) -> Vec<u8> {
    let mut all = content.to_vec();
    all.resize(content.len().next_multiple_of(512), 0);
    all
}

pub(super) fn entry(name: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
    [header(name, kind, content.len() as u64, |_| {}), padded(content)].concat()
}

pub(super) fn link(name: &[u8], kind: u8, target: &[u8]) -> Vec<u8> {
    header(name, kind, 0, |block| block[157..157 + target.len()].copy_from_slice(target))
}

pub(super) fn record(key: &str, value: &str) -> String {
    let mut length = key.len() + value.len() + 3;
    while format!("{length} {key}={value}\n").len() != length {
        length += 1;
    }
    format!("{length} {key}={value}\n")
}

pub(super) fn pax(key: &str, value: &str) -> Vec<u8> {
    entry(b"PaxHeaders/x", b'x', record(key, value).as_bytes())
}

pub(super) fn trailer() -> Vec<u8> {
    vec![0; 1024]
}
