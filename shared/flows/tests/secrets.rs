//! What holds secrets cannot be printed or written down by accident (P9): the traits that would do it are not there.

use std::fmt::Display;
use std::marker::PhantomData;

use serde::Serialize;
use slipway_ports::{DataKey, NewAsset, Secret, Signer};

/// Of a type that has the trait, the inherent constant is found; of any other, this one.
trait Otherwise {
    const DISPLAYED: bool = false;
    const SERIALIZED: bool = false;
    const BYTES: bool = false;
}

struct Is<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized> Otherwise for Is<T> {}

impl<T: Display + ?Sized> Is<T> {
    const DISPLAYED: bool = true;
}

impl<T: Serialize + ?Sized> Is<T> {
    const SERIALIZED: bool = true;
}

impl<T: AsRef<[u8]> + ?Sized> Is<T> {
    const BYTES: bool = true;
}

#[test]
fn p9_what_holds_a_secret_has_no_text_and_no_serialization() {
    // The method finds what is there.
    const { assert!(Is::<String>::DISPLAYED && Is::<String>::SERIALIZED && Is::<String>::BYTES) };
    const { assert!(!Is::<Secret>::DISPLAYED && !Is::<Secret>::SERIALIZED && !Is::<Secret>::BYTES) };
    const { assert!(!Is::<DataKey>::DISPLAYED && !Is::<DataKey>::SERIALIZED) };
    const { assert!(!Is::<NewAsset>::DISPLAYED && !Is::<NewAsset>::SERIALIZED) };
    const { assert!(!Is::<Signer>::DISPLAYED && !Is::<Signer>::SERIALIZED) };
}

#[test]
fn p9_debug_shows_nothing_of_it() {
    let secret = || Secret::new(b"hunter2".to_vec());
    assert_eq!(format!("{:?}", secret()), "Secret(\u{2026})");
    let shown = format!(
        "{:?} {:?} {:#?}",
        DataKey { wrapped_by: "a key".to_owned(), plain: secret(), wrapped: vec![1] },
        NewAsset { private: secret(), public: None },
        Signer { certificate: "PEM".to_owned(), key: secret() },
    );
    assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    // Not even its length.
    assert_eq!(format!("{:?}", Secret::new(vec![0; 99])), format!("{:?}", secret()));
}
