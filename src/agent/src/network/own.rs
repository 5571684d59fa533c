//! The ports on which PID 1 itself listens: the resolver's, the proxy's, and those of relays for as long as
//! they are open. Nobody outside may be connected to one of them.

use std::cell::RefCell;

thread_local!(static OWN: RefCell<Vec<u16>> = const { RefCell::new(Vec::new()) });

/// A port of PID 1's own, until this is dropped.
pub(super) struct OwnPort(u16);

impl OwnPort {
    pub(super) fn note(port: u16) -> Self {
        OWN.with_borrow_mut(|own| own.push(port));
        Self(port)
    }
}

impl Drop for OwnPort {
    fn drop(&mut self) {
        OWN.with_borrow_mut(|own| {
            if let Some(at) = own.iter().position(|port| *port == self.0) {
                own.swap_remove(at);
            }
        });
    }
}

/// Whether PID 1 itself listens on this port now.
pub(crate) fn is_own(port: u16) -> bool {
    OWN.with_borrow(|own| own.contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_its_own_until_the_last_of_its_listeners_is_gone() {
        let (one, other) = (OwnPort::note(53), OwnPort::note(53));
        assert!(is_own(53) && !is_own(54));
        drop(one);
        assert!(is_own(53));
        drop(other);
        assert!(!is_own(53));
    }
}
