//! The exit codes, which mean the same for every verb: the pages of help, and the table in docs/cli.md that is made from them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::{Place, VERBS};

/// The lines around the table.
const HEAD: &str = "| verb | 0 | 1 |\n|---|---|---|\n";

/// What the page of help says of a code.
fn meaning(help: &str, code: u8) -> Option<String> {
    let (_, codes) = help.split_once("Exit codes:\n")?;
    let codes = codes.split("\n\n").next()?;
    // A long meaning goes on in the next lines.
    let is_next =
        |line: &&str| line.starts_with("  ") && line[2..].starts_with(|digit: char| digit.is_ascii_digit());
    let mut lines = codes.lines().skip_while(|line| !line.starts_with(&format!("  {code}  ")));
    let first = lines.next()?[5..].to_owned();
    let rest = lines.take_while(|line| !is_next(line));
    Some(rest.fold(first, |text, line| format!("{text} {}", line.trim())))
}

#[test]
fn exit_codes_are_alike_for_all_verbs_and_the_page_has_them() {
    let place = Place::new();
    let whole = place.run("--help").stdout;
    let (_, listed) = whole.split_once("Commands:\n").unwrap();
    let listed: BTreeSet<&str> = listed
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("  "))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    let ours: BTreeSet<&str> = VERBS.iter().filter_map(|verb| verb.split(' ').next()).collect();
    assert_eq!(listed, ours, "VERBS lacks a verb, or has one that is gone");

    let mut table = HEAD.to_owned();
    for verb in VERBS {
        let help = place.run(&format!("{verb} --help")).stdout;
        let of = |code| meaning(&help, code);
        assert!(of(0).is_some(), "{verb} --help does not say what 0 means");
        assert!(of(2).is_some_and(|words| words.starts_with("wrong usage")), "{verb}: {:?}", of(2));
        let unread = of(3).unwrap_or_else(|| panic!("{verb} --help does not say what 3 means"));
        assert!(unread.contains("could not be") || unread.contains("refused"), "{verb}: 3 means {unread}");
        assert_eq!(of(4), None, "{verb}");
        let _ = writeln!(
            table,
            "| `{verb}` | {} | {} |",
            of(0).unwrap(),
            of(1).unwrap_or_else(|| "never".to_owned())
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let at = page.find(HEAD).expect("docs/cli.md has the head of the table");
    let end = page[at..].find("\n\n").map(|end| at + end + 1).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &page[..at], &page[end..])).unwrap();
    } else {
        assert_eq!(
            page[at..end],
            table,
            "UPDATE_DOCS=1 cargo test -p slipway --test verbs exit_codes writes it"
        );
    }
}
