#!/bin/sh
# Installs paddock from an unpacked release, without a network.
#   sudo ./install.sh [--prefix DIR]   the default prefix is /usr/local; DESTDIR is in front of every path, for packages
#   sudo ./install.sh --uninstall      removes what it installed; the configuration, the store and the user stay
# A file below /etc that exists is never overwritten.
set -eu
cd "$(dirname "$0")"

prefix=/usr/local
destdir=${DESTDIR-}
uninstall=
say() { printf '%s\n' "$*"; }
die() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -ge 2 ] || die '--prefix needs a directory'; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) uninstall=1 ;;
        --help | -h) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit ;;
        *) die "$1 is unknown: it takes --prefix DIR and --uninstall" ;;
    esac
    shift
done
case $prefix in /*) ;; *) die "--prefix is $prefix: it must be an absolute path" ;; esac
[ -n "$destdir" ] || [ "$(id -u)" = 0 ] ||
    die "it writes to $prefix and /etc, so run it as root: sudo ./install.sh (or set DESTDIR)"

bin=$destdir$prefix/bin
share=$destdir$prefix/share
etc=$destdir/etc
if [ "$prefix" = /usr ]; then lib=$destdir/usr/lib; else lib=$etc; fi # where systemd looks
unit=$lib/systemd/system/paddock.service
sysusers=$lib/sysusers.d/paddock.conf
tmpfiles=$lib/tmpfiles.d/paddock.conf
logrotate=$etc/logrotate.d/paddock
bash=$share/bash-completion/completions/paddock
zsh=$share/zsh/site-functions/_paddock
fish=$share/fish/vendor_completions.d/paddock.fish
systemd=
[ -n "$destdir" ] || [ ! -d /run/systemd/system ] || systemd=1

if [ -n "$uninstall" ]; then
    [ -z "$systemd" ] || systemctl disable --now paddock 2>/dev/null || true
    rm -f "$bin/paddock" "$unit" "$sysusers" "$tmpfiles" "$logrotate" "$bash" "$zsh" "$fish"
    rm -f "$share"/man/man1/paddock.1 "$share"/man/man1/paddock-*.1
    rm -rf "$share/paddock" "$share/doc/paddock"
    [ -z "$systemd" ] || systemctl daemon-reload
    say "removed paddock from $destdir$prefix"
    say 'These stay: /etc/paddock, the files in /var/lib/paddock, the user paddock, and images and volumes of the engine.'
    exit
fi

[ -f SHA256SUMS ] || die 'SHA256SUMS is missing: run it in the folder of an unpacked release'
sha256sum --quiet -c SHA256SUMS >&2 || die 'a file differs from SHA256SUMS: download and unpack the release again'
machine=$(uname -m)
version=$(bin/paddock --version 2>/dev/null) ||
    die "bin/paddock does not run on this machine ($machine, $(uname -s)): download the release for it"

put() { # MODE FROM TO
    install -D -m "$1" "$2" "$3"
}
keep() { # MODE FROM TO: unless it is there
    if [ -e "$3" ]; then say "kept $3"; else put "$@"; say "wrote $3"; fi
}
put 755 bin/paddock "$bin/paddock"
put 644 completions/paddock.bash "$bash"
put 644 completions/_paddock "$zsh"
put 644 completions/paddock.fish "$fish"
for page in man/*.1; do put 644 "$page" "$share/man/man1/${page##*/}"; done
rm -rf "$share/paddock" "$share/doc/paddock"
mkdir -p "$share/paddock" "$share/doc/paddock"
cp -R runner-images deploy LICENSE "$share/paddock/"
cp -R README.md LICENSE THIRD-PARTY.txt sbom.cdx.json config.example.toml docs "$share/doc/paddock/"
put 644 deploy/systemd/paddock.sysusers "$sysusers"
put 644 deploy/systemd/paddock.tmpfiles "$tmpfiles"
put 644 deploy/systemd/paddock.logrotate "$logrotate"
mkdir -p "${unit%/*}"
sed "s|^ExecStart=/usr/local/|ExecStart=$prefix/|" deploy/systemd/paddock.service >"$unit"
chmod 644 "$unit"
say "installed $version into $destdir$prefix"

# The user, and its directories ------------------------------------------------------------------------------------
if [ -z "$destdir" ]; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers "$sysusers"
    else
        getent group docker >/dev/null || groupadd --system docker
        getent group paddock >/dev/null || groupadd --system paddock
        getent passwd paddock >/dev/null || useradd --system --gid paddock --groups docker --home-dir /var/lib/paddock \
            --no-create-home --shell /usr/sbin/nologin paddock
    fi
    install -d -m 750 -o root -g paddock /etc/paddock /var/log/paddock
    chown paddock /var/log/paddock
    install -d -m 700 -o paddock -g paddock /var/lib/paddock
fi
keep 644 deploy/systemd/paddock.toml "$etc/paddock/paddock.toml"
if [ -e "$etc/paddock/environment" ]; then
    say "kept $etc/paddock/environment"
elif [ -z "$destdir" ]; then # a package must not contain a secret
    (umask 077 && printf 'MCP_API_TOKEN=%s\n' "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >/etc/paddock/environment)
    say 'wrote /etc/paddock/environment, with a new token'
fi

# What to type next ------------------------------------------------------------------------------------------------
[ -z "$destdir" ] || exit 0
say ''
say 'Next:'
command -v docker >/dev/null || say '  install a Docker Engine (Debian: apt-get install docker.io), or name one in engine.host'
say "  $prefix/share/paddock/deploy/images          # builds the runner images, once, and after each update"
if [ -n "$systemd" ]; then
    systemctl daemon-reload
    say '  systemctl enable --now paddock              # after an update: systemctl restart paddock'
else
    say '  this machine does not run systemd: start the daemon in your own way, as the user paddock:'
    say "  (set -a; . /etc/paddock/environment; exec setpriv --reuid paddock --regid paddock --init-groups \\"
    say "      $prefix/bin/paddock serve --config /etc/paddock/paddock.toml)"
fi
say '  cat /etc/paddock/environment                # the token, for the page at http://127.0.0.1:8080/'
say "  $prefix/bin/paddock doctor --config /etc/paddock/paddock.toml   # is this host good enough?"
