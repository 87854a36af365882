//! Any bytes, uploaded as a `cluster.yaml`: an answer, in time, with findings that say where and what to do.
#![no_main]

mod limit;

use libfuzzer_sys::fuzz_target;
use slipway_core::diagnostic::Severity;
use slipway_spec::{Expected, parse};

fuzz_target!(|bytes: &[u8]| {
    let expected = Expected { name: "production", region: Some("eu-west-1") };
    let diagnostics = match limit::in_time(bytes.len(), || parse(bytes, Some(&expected))) {
        Ok(accepted) => {
            assert!(accepted.warnings.iter().all(|warning| warning.severity == Severity::Warning));
            accepted.warnings
        }
        Err(diagnostics) => {
            assert!(diagnostics.iter().any(|finding| finding.severity == Severity::Error), "refused without a word");
            diagnostics
        }
    };
    for finding in &diagnostics {
        assert!(finding.help.as_ref().is_some_and(|help| !help.is_empty()), "no cure: {finding:?}");
        if let (Some((start, end)), Ok(text)) = (finding.span, std::str::from_utf8(bytes)) {
            assert!(text.get(start..end).is_some(), "a span outside the text: {finding:?}");
        }
    }
});
