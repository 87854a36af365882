//! tmp
pub fn replacement(_t: &str, _p: &str) -> super::Replacement {
    super::Replacement::Never
}
