//! The page of `docs/` that is made from the types.

mod reference;

/// `docs/cluster-yaml.md`: every key with its type, default, meaning and constraints.
#[must_use]
pub fn cluster_yaml() -> String {
    reference::page(super::schema::root())
}

/// Text as a cell of a Markdown table.
#[must_use]
pub fn table_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
