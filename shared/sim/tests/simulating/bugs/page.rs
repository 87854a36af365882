//! What `docs/simulation.md` says of each mistake.

use std::collections::BTreeMap;

/// The page's table: for each mistake, the number of seeds until it was first seen, and the broken promise.
pub(super) fn page() -> BTreeMap<String, (u64, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulation.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let (words, seeds, what) = (cells.next()?, cells.next()?, cells.next()?);
        Some((words.to_owned(), (seeds.parse().ok()?, what.to_owned())))
    });
    rows.collect()
}
