//! The checks of the way out, defect by defect.

use super::super::check::Status::{self, Fail, Warn};
use super::super::check::tests::lacks;
use super::*;

fn good() -> WayOutFacts {
    WayOutFacts {
        mode: NetworkMode::Restricted,
        allowed: 3,
        services: 1,
        listen_ports: vec![80, 443],
        names: Names::Asked("pypi.org".into(), 4),
        proxy: Some(("proxy.lan:3128".into(), Ok(()))),
        certificates: Some((1, 140)),
        own: Ok(3),
        told: 1,
        is_in_container: true,
        ports: Some(("127.0.0.1:8081".parse().expect("an address"), AddressState::Free)),
    }
}

fn seen() -> ProbeReport {
    ProbeReport { no_new_privs: true, landlock: 2, separates: true, ..ProbeReport::default() }
}

fn found<'a>(checks: &'a [Check], name: &str) -> &'a str {
    checks.iter().find(|check| check.name == name).map_or("", |check| &check.found)
}

#[test]
fn each_defect_gives_its_check_and_no_other() {
    type Spoil = fn(&mut WayOutFacts);
    let fine: [Spoil; 5] = [
        |_| {},
        |f| f.names = Names::OfProxy,
        |f| f.names = Names::Unneeded,
        |f| (f.told, f.is_in_container) = (0, false),
        |f| (f.proxy, f.certificates, f.ports) = (None, None, None),
    ];
    for spoil in fine {
        let mut facts = good();
        spoil(&mut facts);
        assert_eq!(lacks(&judge(&facts, Some(&seen()))), [], "{facts:?}");
    }
    let spoil: [(&str, Status, &str, Spoil); 6] = [
        ("names", Warn, "pypi.org, which", |f| f.names = Names::Asked("pypi.org".into(), 0)),
        ("upstream proxy", Warn, "proxy.lan:3128 cannot be reached: refused", |f| {
            f.proxy = Some(("proxy.lan:3128".into(), Err("refused".into())));
        }),
        ("certificates", Warn, "only the certificates", |f| f.certificates = Some((2, 0))),
        ("own addresses", Warn, "cannot be read", |f| f.own = Err(io::ErrorKind::PermissionDenied)),
        ("own addresses", Warn, "in a container", |f| f.told = 0),
        ("ports address", Fail, "127.0.0.1:8081", |f| {
            f.ports = f.ports.take().map(|(addr, _)| (addr, AddressState::Taken(None)));
        }),
    ];
    for (name, status, word, spoil) in spoil {
        let mut facts = good();
        spoil(&mut facts);
        let checks = judge(&facts, Some(&seen()));
        assert_eq!(lacks(&checks), [(name, status)], "{facts:?}");
        assert!(found(&checks, name).contains(word), "{word}: {checks:?}");
    }
    let untold = ProbeReport { connects_lack: Some("user notification".into()), ..seen() };
    for (name, word, inside) in [
        ("runs", "(Landlock 0)", ProbeReport { separates: false, landlock: 0, ..seen() }),
        (
            "programs",
            "captured by listeners: names, on the ports 80, 443; programs reach all else by proxy",
            untold.clone(),
        ),
    ] {
        let checks = judge(&good(), Some(&inside));
        assert_eq!(lacks(&checks), [(name, Warn)]);
        assert!(found(&checks, name).contains(word), "{checks:?}");
        // A service is a way out too.
        let none = WayOutFacts { mode: NetworkMode::None, ..good() };
        assert_eq!(lacks(&judge(&none, Some(&inside))), [(name, Warn)]);
        let nothing = WayOutFacts { services: 0, ..none };
        assert_eq!(lacks(&judge(&nothing, Some(&inside))), []);
    }
    let silent = WayOutFacts { listen_ports: vec![], ..good() };
    let checks = judge(&silent, Some(&untold));
    assert_eq!(
        found(&checks, "programs"),
        "no connection is captured; programs reach all else by proxy variables only (it lacks user \
         notification)"
    );
    assert_eq!(found(&judge(&good(), None), "programs"), "", "no container was seen");
}

#[test]
fn the_mode_is_told_with_what_it_means() {
    let told = |mode, services| {
        let checks = judge(&WayOutFacts { mode, services, ..good() }, None);
        found(&checks, "mode").to_owned()
    };
    assert!(told(NetworkMode::Restricted, 0).ends_with("what egress.allow lists, 3 entries"));
    assert_eq!(
        told(NetworkMode::None, 2),
        "egress.mode is none: no program has a network; 2 services can be used"
    );
    assert!(told(NetworkMode::Open, 0).contains("open: a call reaches what it lists"));
}
