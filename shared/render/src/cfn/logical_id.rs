//! Logical ids of things that the spec names.

use slipway_core::digest::sha256_hex;

/// The number of hex digits of the name's hash at the end of an id. 32 bits are enough for the few hundred names of a stack, and
/// [`super::Template::collisions`] reports a collision.
const HASH_DIGITS: usize = 8;

/// How many characters of the name an id contains. An id may have 255 characters.
const READABLE_CHARACTERS: usize = 64;

/// A logical id for the thing called `name`. It is alphanumeric as CloudFormation requires, readable, stable, and different for each
/// name: `public-a`, `public_a` and `publicA` look alike, so each id ends with a hash of the name.
pub(crate) fn logical_id(kind: &str, name: &str) -> String {
    let mut id = String::from(kind);
    let mut starts_word = true;
    for character in name.chars().take(READABLE_CHARACTERS) {
        if !character.is_ascii_alphanumeric() {
            starts_word = true;
        } else if starts_word {
            id.push(character.to_ascii_uppercase());
            starts_word = false;
        } else {
            id.push(character);
        }
    }
    id.push_str(&sha256_hex(name.as_bytes())[..HASH_DIGITS]);
    id
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_differ_in_punctuation_only_get_different_ids() {
        let names = ["public-a", "public_a", "public.a", "publica", "publicA", "PublicA", "public--a"];
        let ids: BTreeSet<_> = names.iter().map(|name| logical_id("Subnet", name)).collect();
        assert_eq!(ids.len(), names.len());
        assert!(ids.iter().all(|id| id.to_lowercase().starts_with("subnetpublica")), "{ids:?}");
    }

    proptest! {
        #[test]
        fn ids_are_alphanumeric_and_short_enough(name in ".{0,300}") {
            let id = logical_id("Subnet", &name);
            prop_assert!(id.chars().all(|c| c.is_ascii_alphanumeric()));
            prop_assert!(id.len() <= 255);
        }
    }
}
