//! Symbolic links in `/data`: copied unchanged between containers, never followed by anything outside of
//! them.

use crate::support::{Daemon, Session};

/// The targets of these links, as the other language sees them.
async fn targets(s: &Session<'_>, names: &[&str]) -> Vec<String> {
    let code = format!(
        "for (const n of {names:?}) console.log(require('fs').readlinkSync(Buffer.from('/data/' + \
         n)).toString())"
    );
    s.typescript(&code).await.expect_success().stdout().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn every_link_is_the_same_in_the_other_container() {
    let d = Daemon::start().await;
    let s = d.session("links");
    let long = "../".repeat(1300) + "etc/passwd";
    let code = format!(
        "import os\nos.makedirs('d/e')\nopen('d/f', 'w').write('content')\nfor t, n in [('d/f', \
         'relative'),('/usr/bin/python3', 'absolute'), ('nowhere', 'dangling'), ('d', 'dir'), ('loop2', \
         'loop1'), ('loop1', 'loop2'),('self', 'self'), ('../f', 'd/e/up'), ('/etc', 'd/out'), ('{long}', \
         'long'), ('a\\nb\u{e9}', 'odd')]:\n    os.symlink(t, n)"
    );
    let ran = s.python(&code).await.expect_success();
    assert_eq!(ran.not_saved(), Vec::<String>::new());
    // They are not files: neither listed nor artifacts.
    assert_eq!((ran.files(), ran.artifacts()), (vec!["d/f".to_owned()], vec!["/mnt/data/d/f".to_owned()]));
    let names = [
        "relative", "absolute", "dangling", "dir", "loop1", "loop2", "self", "d/e/up", "d/out", "long", "odd",
    ];
    let expected = [
        "d/f",
        "/usr/bin/python3",
        "nowhere",
        "d",
        "loop2",
        "loop1",
        "self",
        "../f",
        "/etc",
        &long,
        "a",
        "b\u{e9}",
    ];
    assert_eq!(targets(&s, &names).await, expected);
    s.typescript("const fs = require('fs'); console.log(fs.readFileSync('/data/dir/e/up', 'utf8'))")
        .await
        .expect_stdout("content\n");
    // Reading changes nothing, and neither container has anything to report.
    assert_eq!(s.python("0").await.expect_success().artifacts(), Vec::<String>::new());
    d.stop().await;
}

#[tokio::test]
async fn a_link_replaces_files_and_directories_and_back() {
    let d = Daemon::start().await;
    let s = d.session("turns");
    s.python(
        "import os\nopen('x', 'w').write('file')\nos.makedirs('y/z')\nopen('y/z/f', 'w').write('deep')\n\
              os.symlink('x', 'l')",
    )
    .await
    .expect_success();
    assert_eq!(targets(&s, &["l"]).await, ["x"]);
    // A file, a tree and a link become links.
    let ran = s
        .python(
            "import os, shutil\nos.remove('x'); os.symlink('/etc/passwd', 'x')\nshutil.rmtree('y'); \
                 os.symlink('/', 'y')\nos.remove('l'); os.symlink('y', 'l')",
        )
        .await
        .expect_success();
    assert_eq!(ran.files(), Vec::<String>::new());
    assert_eq!(targets(&s, &["x", "y", "l"]).await, ["/etc/passwd", "/", "y"]);
    // And back, by the other language.
    let ran = s
        .typescript(
            "const fs = require('fs'); process.chdir('/data'); fs.rmSync('x'); fs.writeFileSync('x', \
             'again');fs.rmSync('y'); fs.mkdirSync('y'); fs.writeFileSync('y/n', 'new'); fs.rmSync('l'); \
             fs.mkdirSync('l');",
        )
        .await
        .expect_success();
    assert_eq!(ran.files(), ["x", "y/n"]);
    s.python(
        "import os\nprint(open('x').read(), open('y/n').read(), os.path.isdir('l'), os.path.islink('l'))",
    )
    .await
    .expect_stdout("again new True False\n");
    // Removed there, it is gone here.
    s.typescript("require('fs').symlinkSync('x', '/data/last')").await.expect_success();
    s.python("import os\nprint(os.readlink('last'))\nos.remove('last')").await.expect_stdout("x\n");
    s.typescript("console.log(require('fs').readdirSync('/data').join())").await.expect_stdout("l,x,y\n");
    d.stop().await;
}

#[tokio::test]
async fn nothing_goes_through_a_link() {
    let d = Daemon::start().await;
    let s = d.session("through");
    let ran = s.python("open('real', 'w').write('real')").await.expect_success();
    let link = ran.link("real");
    s.python(
        "import os\nos.remove('real')\nos.symlink('/etc/hostname', 'real')\nos.symlink('/etc', 'out')\n\
              os.symlink('out', 'chain')\nos.symlink('chain', 'chain2')\nos.symlink('/etc/made', 'file')",
    )
    .await
    .expect_success();
    // The host neither resolves it nor serves what was there before.
    assert_eq!(d.fetch(&link).await.status, 404);
    // Uploads replace the links in their way, whatever the targets.
    for name in ["out/x", "chain2/y", "file"] {
        s.upload(name, b"mine").await.expect_success();
    }
    let look = "import os\nprint([os.path.islink(n) for n in ('out', 'chain2', 'chain', 'file')], \
                open('out/x').read(), open('chain2/y').read(),open('file').read(), [n for n in ('x', 'y', \
                'made') if os.path.exists('/etc/' + n)], os.listdir('out'))";
    s.python(look).await.expect_stdout("[False, False, True, False] mine mine mine [] ['x']\n");
    s.typescript(
        "const fs = require('fs'); console.log(fs.readlinkSync('/data/chain'), \
                  fs.readFileSync('/data/chain/x', 'utf8'))",
    )
    .await
    .expect_stdout("out mine\n");
    // The store contains no link, so none is followed there either.
    assert!(!d.store.file_names().is_empty());
    d.stop().await;
}
