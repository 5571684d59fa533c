#!/bin/sh
# Installs paddock from an unpacked release, without a network.
#   sudo ./install.sh [--prefix DIR]   the default prefix is /usr/local; DESTDIR is in front of every path, for packages
#   sudo ./install.sh --uninstall      removes what it installed; the configuration, the store and the user stay
# A file below /etc that exists is never overwritten: the new one is written beside it, with .new at its end. Elsewhere only
# files of a release are replaced and removed, as its SHA256SUMS lists them, and none is lost that somebody has changed.
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
        --help | -h) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit ;;
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
lib=$destdir$prefix/lib # below /usr and /usr/local systemd finds it, elsewhere by its path
unit=$lib/systemd/system/paddock.service
sysusers=$lib/sysusers.d/paddock.conf
tmpfiles=$lib/tmpfiles.d/paddock.conf
logrotate=$etc/logrotate.d/paddock
bash=$share/bash-completion/completions/paddock
zsh=$share/zsh/site-functions/_paddock
fish=$share/fish/vendor_completions.d/paddock.fish
list=$share/paddock/SHA256SUMS # what is installed
compose=deploy/compose/paddock.toml # of these files the only one that is meant to be changed
systemd=
[ -n "$destdir" ] || [ ! -d /run/systemd/system ] || systemd=1

place() { # FILE: where it goes, if it is one of those that keep their names
    case $1 in
        deploy/* | runner-images/* | LICENSE) say "$share/paddock/$1" ;;
        README.md | THIRD-PARTY.txt | sbom.cdx.json | config.example.toml | docs/*) say "$share/doc/paddock/$1" ;;
    esac
}
is() { # FILE SUM
    [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]
}
drop() { # LIST: removes its files, unless they were changed or this release has them
    while read -r sum file; do
        to=$(place "$file")
        [ -z "$to" ] || { [ -z "$uninstall" ] && [ -e "$file" ]; } || ! is "$to" "$sum" || rm -f "$to"
    done <"$1"
    [ -z "$uninstall" ] || rm -f "$1"
    find "$share/paddock" "$share/doc/paddock" -depth -type d -empty -exec rmdir {} \; 2>/dev/null || true
}

if [ -n "$uninstall" ]; then
    [ -z "$systemd" ] || systemctl disable --now paddock 2>/dev/null || true
    rm -f "$bin/paddock" "$unit" "$sysusers" "$tmpfiles" "$bash" "$zsh" "$fish" "$share/doc/paddock/LICENSE"
    rm -f "$share"/man/man1/paddock.1 "$share"/man/man1/paddock-*.1
    rm -f "$share/paddock/$compose.new" "$logrotate.new"
    if [ -f "$list" ]; then
        sum=$(sed -n 's|  deploy/systemd/paddock.logrotate$||p' "$list")
        if is "$logrotate" "$sum"; then rm -f "$logrotate"; fi
        drop "$list"
    fi
    [ -z "$systemd" ] || systemctl daemon-reload
    say "removed paddock from $destdir$prefix"
    say 'These stay: /etc/paddock, the files in /var/lib/paddock, the user paddock, and images and volumes of the engine.'
    find "$share/paddock" "$share/doc/paddock" "$logrotate" -type f 2>/dev/null |
        sed 's/$/ stays: it was changed, or is not of the release/' || true
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
keep() { # MODE FROM TO: beside it, if another one is there
    if [ ! -e "$3" ]; then put "$@"; say "wrote $3"
    elif cmp -s "$2" "$3"; then say "kept $3"
    else put "$1" "$2" "$3.new"; say "kept $3; that of this release is $3.new"; fi
}
put 755 bin/paddock "$bin/paddock"
put 644 completions/paddock.bash "$bash"
put 644 completions/_paddock "$zsh"
put 644 completions/paddock.fish "$fish"
for page in man/*.1; do put 644 "$page" "$share/man/man1/${page##*/}"; done
while read -r sum file; do
    to=$(place "$file")
    [ -n "$to" ] || continue
    mode=644
    [ ! -x "$file" ] || mode=755
    if [ -e "$to" ] && ! is "$to" "$sum" && ! grep -qsxF "$(sha256sum <"$to" | cut -d' ' -f1)  $file" "$list"; then
        if [ "$file" = "$compose" ]; then keep $mode "$file" "$to" && continue; fi
        mv "$to" "$to.old"
        say "$to was changed: it is $to.old now"
    fi
    put $mode "$file" "$to"
done <SHA256SUMS
put 644 LICENSE "$share/doc/paddock/LICENSE"
[ ! -f "$list" ] || drop "$list"
put 644 SHA256SUMS "$list"
put 644 deploy/systemd/paddock.sysusers "$sysusers"
put 644 deploy/systemd/paddock.tmpfiles "$tmpfiles"
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
keep 644 deploy/systemd/paddock.logrotate "$logrotate"
keep 644 deploy/systemd/paddock.toml "$etc/paddock/paddock.toml"
if [ -e /etc/systemd/system/paddock.service ] && [ -z "$destdir" ]; then
    say "systemd uses /etc/systemd/system/paddock.service in place of $unit"
fi
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
    case $prefix in /usr | /usr/local) name=paddock ;; *) name=$unit ;; esac
    say "  systemctl enable --now $name              # after an update: systemctl restart paddock"
else
    say '  this machine does not run systemd: start the daemon in your own way, as the user paddock:'
    say "  (set -a; . /etc/paddock/environment; exec setpriv --reuid paddock --regid paddock --init-groups \\"
    say "      $prefix/bin/paddock serve --config /etc/paddock/paddock.toml)"
fi
say '  cat /etc/paddock/environment                # the token, for the page at http://127.0.0.1:8080/'
say "  $prefix/bin/paddock doctor --config /etc/paddock/paddock.toml   # is this host good enough?"
