//! Two releases in a row on one machine: what the second must take from the first, and what it must leave
//! alone. Everything is in a Debian without a network. The engine of `deploy/up` is a script that notes
//! which images were made and started; whether containers come of that is a matter of `compose`.

use std::process::Command;

use super::dist::release;
use super::{socket, tried};

/// Unpacks the release twice. A step prints what the test reads with `say`.
const TWO: &str = r#"
set -eu
mkdir -p /work/1 /work/2
for n in 1 2; do tar -xzf /release.tar.gz -C /work/$n --strip-components 1; done
say() { printf '%s\n' "$*" >>/work/said; }
last() { tail -n 1 "$1"; }
"#;

/// Runs steps in a container, and returns what they said.
fn steps(steps: &str) -> String {
    let container = format!("paddock-test-{}", paddock::id::random_hex::<6>());
    let (code, said) = tried(
        Command::new("docker")
            .args(["run", "--rm", "--name", &container, "--network", "none", "-w", "/work"])
            .args(["-v", &format!("{}:/release.tar.gz:ro", release().1.display())])
            .args(["-v", &format!("{}:/engine.sock", socket().0), "paddock-base:trixie", "bash", "-c"])
            .arg(format!("({TWO}{steps}) >&2; code=$?; cat /work/said; exit $code")),
    );
    let _ = Command::new("docker").args(["rm", "-f", &container]).output();
    assert_eq!(code, Some(0), "{said}");
    said
}

#[track_caller]
fn has(said: &str, lines: &[&str]) {
    for line in lines {
        assert!(said.lines().any(|said| said == *line), "no line {line:?} in\n{said}");
    }
}

/// An image is a file, whose text is the SHA-256 of its program.
const UP: &str = r#"
mkdir -p /work/images /work/home /var/run && touch /var/run/docker.sock /work/built /work/started
cat >/usr/local/bin/docker <<'END'
#!/bin/bash
last=${!#}
case $* in
    'compose version' | 'exec '*) ;;
    'volume ls '*'project=paddock'*) cat /work/volumes 2>/dev/null || true ;;
    'image inspect --format {{.Size}} '*) echo 1 ;;
    'image inspect '*) cat "/work/images/$last" ;;
    'tag '*) cp "/work/images/$2" "/work/images/$3" ;;
    'build '*)
        echo "$*" >>/work/built
        sum=$(sed 's/.*paddock\.program=\([0-9a-f]*\).*/\1/' <<<"$*")
        while (($#)); do [[ $1 != -t ]] || echo "$sum" >"/work/images/$2"; shift; done ;;
    'compose '*' up '*)
        echo "$PADDOCK_IMAGE" >>/work/started
        printf 'paddock_%s\n' store grafana >/work/volumes ;;
    'compose '*' ps '*) echo container ;;
    *) echo "nobody asks: $*" >&2; exit 1 ;;
esac
END
chmod 755 /usr/local/bin/docker
for n in 1 2; do printf '#!/bin/sh\necho "paddock %s.0.0"\n' $n >/work/$n/bin/paddock; done
chmod -R a+rwX /work
up() {
    setpriv --reuid 1000 --regid 1000 --clear-groups \
        env HOME=/work/home PADDOCK_RUNNERS=no "/work/$1/deploy/up" 2>&1
}
file=/work/home/.config/paddock/compose.env
up 1
cp $file /work/first
say "mode: $(stat -c '%a %u' $file)"
up 2
cmp $file /work/first && say 'the secrets stay'
say "latest is the second: $(cmp -s /work/images/paddock:latest /work/images/paddock:2.0.0 && echo yes)"
up 2
up 1
say "started: $(paste -sd' ' /work/started), built: $(wc -l </work/built)"
say "latest is the first: $(cmp -s /work/images/paddock:latest /work/images/paddock:1.0.0 && echo yes)"
echo '# Another program of the same version.' >>/work/2/bin/paddock
up 2
say "built: $(wc -l </work/built)"
# Lost secrets are not made anew for volumes that need them.
rm $file
up 2 | sed 's/^/refused: /' >>/work/said || true
[ ! -e $file ] && say "nothing is written, started: $(wc -l </work/started)"
rm /work/volumes
HOME=/root PADDOCK_RUNNERS=no /work/2/deploy/up
say "for root: $(stat -c '%a %u' /etc/paddock/compose.env)"
say "in a release: $(find /work/1 /work/2 -name '*.env' | wc -l)"
"#;

#[test]
fn a_second_release_starts_its_own_image_with_the_secrets_of_the_first() {
    let said = steps(UP);
    has(
        &said,
        &[
            "mode: 600 1000",
            "the secrets stay",
            "latest is the second: yes",
            "started: paddock:1.0.0 paddock:2.0.0 paddock:2.0.0 paddock:1.0.0, built: 2",
            "latest is the first: yes",
            "built: 3",
            "nothing is written, started: 5",
            "for root: 600 0",
            "in a release: 0",
        ],
    );
    let refused = said.lines().find(|line| line.starts_with("refused: ")).expect("a refusal");
    for word in ["/work/home/.config/paddock/compose.env", "docker volume rm paddock_grafana paddock_store"] {
        assert!(refused.contains(word), "{refused}");
    }
}

/// The second release has other defaults, and one file less.
const INSTALL: &str = r#"
cd /work/2
for file in deploy/compose/paddock.toml deploy/compose.yml deploy/systemd/paddock.*; do
    echo '# second' >>$file
done
rm deploy/demo/analysis.py
find . -type f ! -name SHA256SUMS | sed 's|^\./||' | sort | xargs sha256sum >SHA256SUMS
echo other >deploy/.env
/work/1/install.sh
share=/usr/local/share/paddock
cd /usr/local/lib
say "units: $(ls systemd/system/paddock.service sysusers.d/paddock.conf tmpfiles.d/paddock.conf | wc -l)"
say "below /etc: $(cd /etc && find . -path '*paddock*' -type f | sort | paste -sd' ')"
mkdir -p /etc/systemd/system
for file in /etc/logrotate.d/paddock /etc/paddock/paddock.toml /etc/systemd/system/paddock.service \
    $share/deploy/compose/paddock.toml $share/deploy/compose.yml; do echo '# mine' >>$file; done
echo mine >$share/deploy/.env
/work/2/install.sh >>/work/said
for file in logrotate.d/paddock paddock/paddock.toml systemd/system/paddock.service; do
    say "changed: $(last /etc/$file)"
done
say "new: $(last /etc/logrotate.d/paddock.new), $(last /etc/paddock/paddock.toml.new)"
say "compose: $(last $share/deploy/compose/paddock.toml), $(last $share/deploy/compose/paddock.toml.new)"
say "others: $(last $share/deploy/compose.yml), $(last $share/deploy/compose.yml.old)"
say "unit: $(last /usr/local/lib/systemd/system/paddock.service)"
say "own: $(cat $share/deploy/.env), gone: $(ls $share/deploy/demo)"
# From a machine to another one, by the sentence of the README. `ssh` comes to a place without a store.
cd /work && SANDBOX_ROOT=/work/store paddock run --engine unix:///engine.sock -l python -c 'print(1)'
cp -r store/. /var/lib/paddock/ && chown -R paddock:paddock /var/lib/paddock
cat >/usr/local/bin/ssh <<'END'
#!/bin/sh
shift
cat >/work/moved
find /var/lib/paddock -mindepth 1 -delete
exec "$@" </work/moved
END
cat >/usr/local/bin/sudo <<'END'
#!/bin/sh
[ $1 = -u ] || exec "$@"
user=$2
shift 2
exec setpriv --reuid $user --regid $user --init-groups "$@"
END
chmod 755 /usr/local/bin/ssh /usr/local/bin/sudo
sed -n '/paddock backup - --store/,/paddock restore/p' /work/2/deploy/README.md >sentence
bash -o pipefail sentence 2>&1 | sed 's/^/moved: /' >>/work/said
say "the store is for: $(stat -c %U /var/lib/paddock/* | sort -u)"
/work/2/install.sh --uninstall >>/work/said
say "left: $(find /usr/local -path '*paddock*' -type f | sort | paste -sd' ')"
say "left below /etc: $(find /etc -path '*paddock*' -type f | sort | paste -sd' ')"
"#;

#[test]
fn a_second_installation_keeps_what_was_changed_and_a_store_moves_by_the_sentence_of_the_documents() {
    let said = steps(INSTALL);
    has(
        &said,
        &[
            "units: 3",
            "below /etc: ./logrotate.d/paddock ./paddock/environment ./paddock/paddock.toml",
            "kept /etc/logrotate.d/paddock; that of this release is /etc/logrotate.d/paddock.new",
            "/usr/local/share/paddock/deploy/compose.yml was changed: it is \
             /usr/local/share/paddock/deploy/compose.yml.old now",
            "systemd uses /etc/systemd/system/paddock.service in place of \
             /usr/local/lib/systemd/system/paddock.service",
            "new: # second, # second",
            "compose: # mine, # second",
            "others: # second, # mine",
            "unit: # second",
            "own: mine, gone: sales.csv",
            "the store is for: paddock",
            "left: /usr/local/share/paddock/deploy/.env /usr/local/share/paddock/deploy/compose.yml.old \
             /usr/local/share/paddock/deploy/compose/paddock.toml",
            "left below /etc: /etc/logrotate.d/paddock /etc/paddock/environment /etc/paddock/paddock.toml \
             /etc/paddock/paddock.toml.new /etc/systemd/system/paddock.service",
        ],
    );
    assert_eq!(said.lines().filter(|line| *line == "changed: # mine").count(), 3, "{said}");
    let moved = "restored to /var/lib/paddock; start the daemon";
    assert!(said.lines().any(|line| line.starts_with("moved: ") && line.ends_with(moved)), "{said}");
}
