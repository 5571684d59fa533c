//! Addresses in headers: where a server sends a browser, and where it came from. Pure.
//!
//! A server in a container takes itself for `http://localhost:PORT`, or, if it honours `X-Forwarded-Host`,
//! for the host that the browser has. Either way what it calls its own address is below the link's prefix to
//! the browser. Addresses of other hosts stay as they are: a page can send a browser there in any case.

use super::cookies::is_below;

/// How a browser reaches a port, and how the server there takes it.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// The origin of the browser: `http://ports.example:9090`, lower case.
    pub(super) outside: String,
    /// The path in front of everything, without a slash at its end.
    pub(super) prefix: String,
    /// The TCP port.
    pub(super) port: u16,
}

impl Addresses {
    /// The host, with its port, that the server is asked by.
    pub(super) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// A `Location` or `Content-Location` of the server's, for the browser.
    pub(super) fn outward(&self, location: &str) -> String {
        if location.starts_with("//") || location.starts_with("/\\") {
            return self.own(location.get(2..).unwrap_or_default()).unwrap_or_else(|| location.to_owned());
        }
        if location.starts_with('/') {
            return self.below(location);
        }
        let (scheme, rest) = location.split_once("://").unwrap_or_default();
        let is_web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let own = if is_web { self.own(rest) } else { None };
        own.unwrap_or_else(|| location.to_owned())
    }

    /// The path of `host/path` below the prefix, if the host is the server's own.
    fn own(&self, rest: &str) -> Option<String> {
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(at);
        let names = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"];
        let inside = names.map(|name| format!("{name}:{}", self.port));
        let outside = self.outside.split_once("://").map(|(_, host)| host);
        let host = host.to_ascii_lowercase();
        let is_own =
            inside.contains(&host) || outside == Some(&host) || (self.port == 80 && names.contains(&&*host));
        is_own.then(|| if path.starts_with('/') { self.below(path) } else { self.below(&format!("/{path}")) })
    }

    fn below(&self, path: &str) -> String {
        if is_below(path, &self.prefix) { path.to_owned() } else { format!("{}{path}", self.prefix) }
    }

    /// An `Origin` of the browser's, for the server: its own where it is ours, so that the server takes a
    /// page of its own for one.
    pub(super) fn origin(&self, origin: &str) -> String {
        if origin.eq_ignore_ascii_case(&self.outside) {
            format!("http://{}", self.host())
        } else {
            origin.to_owned()
        }
    }

    /// A `Referer` of the browser's, for the server: without the prefix, and without the path of anything
    /// else at our host, which can be another port's link.
    pub(super) fn referer(&self, referer: &str) -> Option<String> {
        let rest = match referer.get(..self.outside.len()) {
            Some(start) if start.eq_ignore_ascii_case(&self.outside) => &referer[self.outside.len()..],
            _ => return Some(referer.to_owned()),
        };
        // A longer host that begins as ours.
        if !(rest.is_empty() || rest.starts_with(['/', '?', '#'])) {
            return Some(referer.to_owned());
        }
        let path = rest.strip_prefix(&self.prefix).filter(|_| is_below(rest, &self.prefix))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        Some(format!("http://{}{slash}{path}", self.host()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> Addresses {
        Addresses {
            outside: "http://box.example:9090".to_owned(),
            prefix: "/sig/s/8000".to_owned(),
            port: 8000,
        }
    }

    #[test]
    fn a_server_s_own_addresses_are_below_the_prefix() {
        for (given, is) in [
            ("/", "/sig/s/8000/"),
            ("/login?next=/x#y", "/sig/s/8000/login?next=/x#y"),
            ("/sig/s/8000", "/sig/s/8000"),
            ("/sig/s/8000/x", "/sig/s/8000/x"),
            ("/sig/s/80001/x", "/sig/s/8000/sig/s/80001/x"),
            ("http://localhost:8000/x", "/sig/s/8000/x"),
            ("http://localhost:8000", "/sig/s/8000/"),
            ("HTTP://LocalHost:8000?a", "/sig/s/8000/?a"),
            ("https://127.0.0.1:8000/x", "/sig/s/8000/x"),
            ("http://[::1]:8000/", "/sig/s/8000/"),
            ("//localhost:8000/x", "/sig/s/8000/x"),
            ("http://box.example:9090/x", "/sig/s/8000/x"),
            ("http://box.example:9090/sig/s/8000/x", "/sig/s/8000/x"),
            // Not its own, or relative to its path.
            ("x/y", "x/y"),
            ("?a", "?a"),
            ("../x", "../x"),
            ("", ""),
            ("//evil.example/x", "//evil.example/x"),
            ("/\\evil.example/x", "/\\evil.example/x"),
            ("https://evil.example/", "https://evil.example/"),
            ("http://localhost:8001/", "http://localhost:8001/"),
            ("http://localhost:8000@evil.example/", "http://localhost:8000@evil.example/"),
            ("http://localhost:8000.evil.example/", "http://localhost:8000.evil.example/"),
            ("javascript:alert(1)", "javascript:alert(1)"),
            ("ftp://localhost:8000/", "ftp://localhost:8000/"),
        ] {
            assert_eq!(addresses().outward(given), is, "{given}");
        }
        let at_80 = Addresses { port: 80, prefix: "/sig/s/80".to_owned(), ..addresses() };
        assert_eq!(at_80.outward("http://localhost/x"), "/sig/s/80/x");
    }

    #[test]
    fn a_page_s_own_origin_is_the_server_s_own() {
        for (given, is) in [
            ("http://box.example:9090", "http://localhost:8000"),
            ("http://BOX.example:9090", "http://localhost:8000"),
            ("http://evil.example", "http://evil.example"),
            ("http://box.example", "http://box.example"),
            ("null", "null"),
        ] {
            assert_eq!(addresses().origin(given), is, "{given}");
        }
    }

    #[test]
    fn a_referer_tells_of_no_other_link() {
        for (given, is) in [
            ("http://box.example:9090/sig/s/8000/x?y", Some("http://localhost:8000/x?y")),
            ("http://box.example:9090/sig/s/8000", Some("http://localhost:8000/")),
            ("http://box.example:9090/other/t/9/", None),
            ("http://box.example:9090/sig/s/80001/", None),
            ("http://box.example:9090", None),
            ("http://box.example:90901/x", Some("http://box.example:90901/x")),
            ("https://evil.example/x", Some("https://evil.example/x")),
        ] {
            assert_eq!(addresses().referer(given).as_deref(), is, "{given}");
        }
    }

    proptest! {
        #[test]
        fn addresses_of_any_form_are_read_without_a_panic(text in ".{0,60}") {
            let _ = (addresses().outward(&text), addresses().origin(&text), addresses().referer(&text));
        }

        #[test]
        fn a_path_stays_below_the_prefix(path in "/[a-z0-9][ -~]{0,40}") {
            prop_assert!(is_below(&addresses().outward(&path), "/sig/s/8000"));
        }
    }
}
