//! No line of Rust is wider than rustfmt makes code.
//!
//! rustfmt leaves comments and strings as they are, and does not format an expression at all that contains a
//! string which is too wide.

use super::{files, read};

/// The width of rustfmt.toml.
fn width() -> usize {
    let settings: toml::Table = read("rustfmt.toml").parse().unwrap();
    usize::try_from(settings["max_width"].as_integer().unwrap()).unwrap()
}

/// What a character of Rust is part of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Code,
    /// A block comment, this deep.
    Comment(usize),
    Text,
    /// A raw string, with so many `#` at each end.
    Raw(usize),
}

/// The part that follows the first piece of `rest`, and the length of that piece in bytes. `before` is the
/// character in front of it.
fn step(part: Part, rest: &str, before: Option<char>) -> (Part, usize) {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let hashes = rest.chars().skip(1).take_while(|c| *c == '#').count();
    match part {
        Part::Code if rest.starts_with("//") => (part, rest.len()),
        Part::Code if rest.starts_with("/*") => (Part::Comment(1), 2),
        // Not the last letter of a name.
        Part::Code
            if rest.starts_with('r')
                && rest[1 + hashes..].starts_with('"')
                && !before.is_some_and(|c| c != 'b' && (c.is_alphanumeric() || c == '_')) =>
        {
            (Part::Raw(hashes), hashes + 2)
        }
        Part::Code if rest.starts_with('"') => (Part::Text, 1),
        // A character; otherwise it is a lifetime.
        Part::Code if rest.starts_with("'\\") => (part, rest[3..].find('\'').map_or(1, |end| end + 4)),
        Part::Code if rest.starts_with('\'') && rest.chars().nth(2) == Some('\'') => {
            (part, rest.chars().take(3).map(char::len_utf8).sum())
        }
        Part::Text if rest.starts_with('\\') => (part, rest.chars().take(2).map(char::len_utf8).sum()),
        Part::Text if rest.starts_with('"') => (Part::Code, 1),
        Part::Raw(wanted) if rest.starts_with('"') && hashes >= wanted => (Part::Code, 1 + wanted),
        Part::Comment(1) if rest.starts_with("*/") => (Part::Code, 2),
        Part::Comment(depth) if rest.starts_with("*/") => (Part::Comment(depth - 1), 2),
        Part::Comment(depth) if rest.starts_with("/*") => (Part::Comment(depth + 1), 2),
        Part::Code | Part::Comment(_) | Part::Text | Part::Raw(_) => (part, first),
    }
}

/// Each line of a file, and whether a part of it is in a raw string: there, a line is data as it stands.
fn lines(text: &str) -> Vec<(&str, bool)> {
    let is_raw = |part| matches!(part, Part::Raw(_));
    let (mut part, mut all) = (Part::Code, Vec::new());
    for line in text.lines() {
        let (mut at, mut has_raw) = (0, is_raw(part));
        while at < line.len() {
            let (next, length) = step(part, &line[at..], line[..at].chars().next_back());
            part = next;
            has_raw |= is_raw(part);
            at += length;
        }
        all.push((line, has_raw));
    }
    all
}

/// Whether a line that is too wide must stay so: a row of a table in documentation, one word without a space,
/// or data.
fn is_exempt(line: &str, is_raw: bool) -> bool {
    let text = line.trim_start();
    let comment = text.trim_start_matches(['/', '!']).trim_start();
    let is_row = text.starts_with("//") && comment.starts_with('|');
    is_row || is_raw || !comment.contains(' ')
}

/// The lines of these files that are too wide, each with its place.
fn wide(files: impl Iterator<Item = String>) -> Vec<String> {
    let width = width();
    let mut wide = Vec::new();
    for file in files {
        let text = read(&file);
        let numbered = lines(&text).into_iter().zip(1..);
        let over = numbered.filter(|((line, raw), _)| line.chars().count() > width && !is_exempt(line, *raw));
        wide.extend(over.map(|((line, _), number)| format!("{file}:{number}: {}", line.trim_start())));
    }
    wide
}

fn sources() -> Vec<String> {
    let sources = files(&["bench", "src", "tests"], ".rs");
    assert!(sources.len() > 300, "{} files were found", sources.len());
    sources
}

#[test]
fn no_line_is_wider_than_rustfmt_makes_code() {
    let wide = wide(sources().into_iter());
    assert!(wide.is_empty(), "{} lines are too wide: {wide:#?}", wide.len());
}

#[test]
fn only_data_and_tables_may_be_wide() {
    let text = "let a = \"x\"; // \"\nlet b = r#\"raw \" one\nraw two\"#; let c = '\"';\nlet d = \"not raw\n\
                r\"; let e: &'a str = br\"x\";\n/* r#\" /* */ */ let f = '\\'';\nlet bar\"\"";
    let raw: Vec<bool> = lines(text).into_iter().map(|(_, is_raw)| is_raw).collect();
    assert_eq!(raw, [false, true, true, false, true, false, false]);
    let long = "x ".repeat(60);
    for (line, is_raw, exempt) in [
        (format!("    //! | {long} |"), false, true),
        (format!("/// | {long} |"), false, true),
        (format!("    // {long}"), false, false),
        (format!("    \"{long}\","), false, false),
        (long.clone(), true, true),
        (format!("    // https://{}", "x".repeat(120)), false, true),
        (format!("    a | {long}"), false, false),
    ] {
        assert_eq!(is_exempt(&line, is_raw), exempt, "{line}");
    }
}
