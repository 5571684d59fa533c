#!/bin/sh
# tools.sh FOLDER: copies curl, git and ssh of this host into FOLDER with all libraries that they need. FOLDER becomes
# /opt/tools of an image, whose own C library may be another. It also builds a static program from connect.c.
set -eu
cd "$1"
mkdir bin lib real
core=$(/usr/bin/git --exec-path)
loader=$(ldd /usr/bin/git | sed -n 's|^[[:space:]]*\(/[^ ]*/ld-[^ ]*\) .*|\1|p')
cp "$loader" lib/
for program in /usr/bin/curl /usr/bin/ssh /usr/bin/git "$core/git-remote-http"; do
    name=${program##*/}
    cp -L "$program" real/
    ldd "$program" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p' | while read -r library; do cp -L "$library" lib/; done
    cat >"bin/$name" <<END
#!/bin/sh
exec /opt/tools/lib/${loader##*/} --library-path /opt/tools/lib --argv0 $name /opt/tools/real/$name "\$@"
END
done
cp bin/git-remote-http bin/git-remote-https
chmod 755 bin/*
gcc -O1 -Wall -Werror -static -o bin/connect-static connect.c
