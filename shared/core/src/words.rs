//! Moments and counts, as people read them.

use std::fmt::Display;

use jiff::Timestamp;

/// To the second: nobody reads more of it.
#[must_use]
pub fn moment(at: Timestamp) -> String {
    jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", at).unwrap_or_else(|_| at.to_string())
}

/// `1 stack`, `3 stacks`.
#[must_use]
pub fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_to_the_second_and_one_thing_is_no_plural() {
        let at: Timestamp = "2027-11-17T01:20:15.603980561Z".parse().unwrap();
        assert_eq!(moment(at), "2027-11-17T01:20:15Z");
        assert_eq!(
            (count(0_usize, "finding"), count(1_u32, "finding")),
            ("0 findings".to_owned(), "1 finding".to_owned())
        );
    }
}
