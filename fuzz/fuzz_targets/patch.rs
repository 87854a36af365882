//! Any bytes, uploaded as a patch: an answer, in time.
#![no_main]

mod limit;

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use slipway_spec::patch::parse;

fuzz_target!(|bytes: &[u8]| {
    let files = BTreeMap::from([("10-fuzz.yaml".to_owned(), bytes.to_vec())]);
    if let Err(diagnostics) = limit::in_time(bytes.len(), || parse(&files)) {
        assert!(!diagnostics.is_empty(), "refused without a word");
    }
});
