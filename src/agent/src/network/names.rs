//! The names that programs looked up, each with an address that stands for it in this container.
//!
//! A connection to such an address says which name was meant. One address must never stand for two names in
//! the life of a container: a program may keep it for as long as it likes.

use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Names that runs may have looked up at one time. With more the resolver fails.
const MAX_NAMES: usize = 4096;

/// 127.64.0.0/10: all of it is loopback, and nobody's own servers use it.
const FIRST: u32 = 0x7F40_0000;
const MASK: u32 = 0xFFC0_0000;

/// The table.
#[derive(Default)]
pub(super) struct Names {
    indices: HashMap<String, usize>,
    names: Vec<String>,
    /// How many names were forgotten: their addresses stand for nothing any more.
    forgotten: u32,
}

impl Names {
    /// The address of a name, the same as before if it had one; `None` if the table is full.
    pub(super) fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        let index = match self.indices.get(name) {
            Some(index) => *index,
            None if self.names.len() >= MAX_NAMES => return None,
            None => {
                self.names.push(name.to_owned());
                self.indices.insert(name.to_owned(), self.names.len() - 1);
                self.names.len() - 1
            }
        };
        let number = self.forgotten.checked_add(u32::try_from(index).ok()?)?;
        let address = Ipv4Addr::from_bits(FIRST + 1 + number);
        is_reserved(address).then_some(address)
    }

    /// Forgets all names if there are many, so that one run cannot fill the table for all that follow. To be
    /// called when no run has a network; no address is given out again.
    pub(super) fn make_room(&mut self) {
        if self.names.len() >= MAX_NAMES / 2 {
            self.forgotten =
                self.forgotten.saturating_add(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
            self.names.clear();
            self.indices.clear();
        }
    }

    /// The name that an address stands for.
    pub(super) fn name_of(&self, address: Ipv4Addr) -> Option<&str> {
        let index = address.to_bits().checked_sub(FIRST + 1)?.checked_sub(self.forgotten)?;
        self.names.get(usize::try_from(index).ok()?).map(String::as_str)
    }
}

/// Whether an address can stand for a name.
pub(super) fn is_reserved(address: Ipv4Addr) -> bool {
    address.to_bits() & MASK == FIRST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_no_other_name_gets_it() {
        let mut names = Names::default();
        let a = names.address_of("a.example").expect("room");
        let b = names.address_of("b.example").expect("room");
        assert_eq!(a, Ipv4Addr::new(127, 64, 0, 1));
        assert_ne!(a, b);
        assert_eq!(names.address_of("a.example"), Some(a));
        assert_eq!((names.name_of(a), names.name_of(b)), (Some("a.example"), Some("b.example")));
        for other in [[127, 64, 0, 0], [127, 64, 0, 3], [127, 0, 0, 1], [0, 0, 0, 0], [255, 255, 255, 255]] {
            assert_eq!(names.name_of(other.into()), None, "{other:?}");
        }
    }

    #[test]
    fn a_full_table_takes_no_more_names_and_keeps_those_it_has() {
        let mut names = Names::default();
        for n in 0..MAX_NAMES {
            let address = names.address_of(&format!("{n}.example")).expect("room");
            assert!(is_reserved(address));
        }
        assert_eq!(names.address_of("more.example"), None);
        assert_eq!(names.address_of("0.example"), Some(Ipv4Addr::new(127, 64, 0, 1)));
    }

    #[test]
    fn a_table_that_one_run_has_filled_is_empty_for_the_next_and_no_address_comes_again() {
        let mut names = Names::default();
        let first = names.address_of("a.example").expect("room");
        names.make_room();
        assert_eq!(names.name_of(first), Some("a.example"), "a few names do no harm");
        for n in 0..MAX_NAMES - 1 {
            names.address_of(&format!("{n}.example")).expect("room");
        }
        assert_eq!(names.address_of("more.example"), None);
        names.make_room();
        let again = names.address_of("a.example").expect("room");
        assert!(again != first && names.name_of(first).is_none(), "{again}");
        assert_eq!(names.name_of(again), Some("a.example"));
    }

    #[test]
    fn the_reserved_block_is_a_part_of_loopback() {
        for (address, reserved) in [
            ([127, 64, 0, 0], true),
            ([127, 127, 255, 255], true),
            ([127, 63, 255, 255], false),
            ([127, 128, 0, 0], false),
            ([10, 64, 0, 1], false),
        ] {
            assert_eq!(is_reserved(address.into()), reserved, "{address:?}");
        }
    }
}
