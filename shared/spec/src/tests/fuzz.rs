//! Whatever is uploaded, reading it ends, and ends with findings that a person can act on.

use proptest::prelude::*;

use super::super::{Diagnostic, parse};

const PRODUCTION: &str = include_str!("../../../../examples/production.yaml");
const KUBE_AWS: &str = include_str!("../../../../examples/from-kube-aws.yaml");

/// What holds of every answer.
fn judge(text: &[u8]) -> Result<(), TestCaseError> {
    let findings: Vec<Diagnostic> = match parse(text, None) {
        Ok(accepted) => accepted.warnings,
        Err(diagnostics) => {
            prop_assert!(!diagnostics.is_empty(), "refused without a word");
            diagnostics
        }
    };
    for pair in findings.windows(2) {
        prop_assert!(
            (pair[0].line, pair[0].column) <= (pair[1].line, pair[1].column),
            "not in the order of the text"
        );
    }
    for finding in &findings {
        prop_assert!(!finding.message.is_empty());
        prop_assert!(finding.help.as_ref().is_some_and(|help| !help.is_empty()), "no help: {finding:?}");
        prop_assert_eq!(finding.line == 0, finding.span.is_none());
        if let Some((start, end)) = finding.span {
            prop_assert!(start <= end && end <= text.len(), "span outside the text: {:?}", finding);
            let whole = std::str::from_utf8(text).unwrap_or_default();
            prop_assert!(
                whole.is_empty() || whole.get(start..end).is_some(),
                "span cuts a letter: {:?}",
                finding
            );
        }
    }
    Ok(())
}

/// Lines and words that a person, or somebody hostile, may have left there.
fn scrap() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        Just("\t".to_owned()),
        Just("&a [*a]".to_owned()),
        Just("<<: *x".to_owned()),
        Just("? [a]: b".to_owned()),
        Just("---".to_owned()),
        Just("null".to_owned()),
        Just("-1".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("[[[[".to_owned()),
        Just("{a: }".to_owned()),
        Just("!!binary x".to_owned()),
        Just("10.0.0.0/0".to_owned()),
        Just("\u{feff}é\u{2028}".to_owned()),
        Just("|\n  x".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        judge(&bytes)?;
    }

    #[test]
    fn any_text_gets_an_answer(text in "[a-z:{}\\[\\]&*!|>\"'#,?% \\-\n\t]{0,120}") {
        judge(text.as_bytes())?;
    }

    #[test]
    fn a_valid_spec_with_a_line_replaced_gets_an_answer(
        source in prop_oneof![Just(PRODUCTION), Just(KUBE_AWS)],
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), scrap(), 0_u8..5), 1..4),
    ) {
        let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
        for (index, scrap, how) in edits {
            let at = index.index(lines.len());
            let line = lines[at].clone();
            lines[at] = match how {
                0 => scrap,
                1 => format!("{line}{scrap}"),
                2 => match line.split_once(':') {
                    Some((key, _)) => format!("{key}: {scrap}"),
                    None => scrap,
                },
                3 => match line.split_once(':') {
                    Some((_, value)) => format!("{scrap}:{value}"),
                    None => scrap,
                },
                _ => String::new(),
            };
        }
        judge(lines.join("\n").as_bytes())?;
    }

    #[test]
    fn a_valid_spec_cut_anywhere_gets_an_answer(at in 0..PRODUCTION.len()) {
        judge(&PRODUCTION.as_bytes()[..at])?;
    }
}

#[test]
fn so_many_findings_are_told_and_no_more() {
    let keys: String = (0..1000).map(|number| format!("k{number}: x\n")).collect();
    let found = parse(keys.as_bytes(), None).unwrap_err();
    assert_eq!(found.len(), 201);
    let last = found.last().unwrap();
    assert_eq!(last.code, "too-many-findings");
    // Eight hundred keys, and the three that every spec must have and more that go without.
    let left_out: usize = last.message.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(left_out >= 803, "{}", last.message);
    judge(keys.as_bytes()).unwrap();
}

#[test]
fn a_pool_has_as_many_instance_types_as_auto_scaling_takes() {
    let of = |count: usize| {
        let types = vec!["m7g.large"; count].join(", ");
        let text = include_str!("../../../../examples/minimal.yaml");
        parse(format!("{text}      mixedInstances: {{instanceTypes: [{types}]}}\n").as_bytes(), None)
    };
    let told = |count| of(count).err().into_iter().flatten().any(|finding| finding.code == "too-many-types");
    assert!(!told(40));
    assert!(told(41));
}
