//! `docs/promises.md` names tests that exist.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

#[test]
fn every_test_that_the_promises_name_exists_where_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("docs/promises.md")).unwrap();
    let mut named = 0;
    // A paragraph names tests in backquotes, then the file or folder that they are in, in brackets.
    for item in text.split("\n- ").flat_map(|item| item.split("\n\n")) {
        let tests: Vec<&str> = item
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains('_') && !name.contains(['*', '.', '/', ' ']))
            .collect();
        let places: Vec<&str> = item
            .split(['(', ')', ',', ';', ':', ' ', '\n'])
            .filter(|word| {
                word.starts_with("shared/") || word.starts_with("tests/") || word.starts_with("cli/")
            })
            .collect();
        let sources: String = places.iter().map(|place| source(&root.join(place))).collect();
        for test in tests {
            named += 1;
            assert!(sources.contains(&format!("fn {test}(")), "no test {test} in {places:?}");
        }
    }
    assert!(named > 25, "only {named} tests are named");
}

/// The text of a file, or of every Rust file below a folder.
fn source(path: &Path) -> String {
    if path.is_file() {
        return std::fs::read_to_string(path).unwrap();
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|_| panic!("{} does not exist", path.display()));
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| source(&path))
        .collect()
}
