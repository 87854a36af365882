//! Values and their differences in one short line.

use serde_json::Value;
use slipway_core::diff::is_intrinsic;

/// How many characters of a value are shown.
const LONGEST: usize = 60;
/// How many characters are shown before the first difference of two long values, as context.
const LEAD: usize = 20;
/// How many elements of a list are named.
const NAMED: usize = 3;

/// A value in one short line.
pub(super) fn short(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), |value| cut(&text(value), 0))
}

/// How `before` became `after`: for lists the added and removed elements, for long texts the place of the first difference.
pub(super) fn change(before: Option<&Value>, after: Option<&Value>) -> String {
    if let (Some(Value::Array(before)), Some(Value::Array(after))) = (before, after)
        && let Some(words) = elements(before, after)
    {
        return words;
    }
    let (Some(before), Some(after)) = (before, after) else {
        return format!("{} → {}", short(before), short(after));
    };
    if let Some((before, after)) = same_function(before, after) {
        return change(Some(before), Some(after));
    }
    let (before, after) = (text(before), text(after));
    if before != after && masked(&before) == masked(&after) {
        return of_digests(&before);
    }
    let from = window(&before, &after, LONGEST);
    format!("{} → {}", cut(&before, from), cut(&after, from))
}

/// The arguments of two intrinsic functions of the same name, such as the user data in `Fn::Base64`.
fn same_function<'v>(before: &'v Value, after: &'v Value) -> Option<(&'v Value, &'v Value)> {
    let argument = |value: &'v Value| {
        let keys = value.as_object().filter(|keys| is_intrinsic(keys))?;
        keys.iter().next()
    };
    let ((one, before), (other, after)) = (argument(before)?, argument(after)?);
    (one == other && one != "Ref").then_some((before, after))
}

/// Two texts differ only in digests, which tell a person nothing.
fn of_digests(before: &str) -> String {
    let what = masked(before);
    let names = what.trim_matches(|letter: char| !letter.is_alphanumeric());
    if names.is_empty() {
        "another digest".to_owned()
    } else if what.chars().count() <= LONGEST {
        format!("{what}, with another digest")
    } else {
        "only digests in it differ".to_owned()
    }
}

/// The shortest run of hexadecimal digits that is taken for a digest.
const DIGEST: usize = 32;

/// The text with `…` in the place of each digest.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut run = String::new();
    for letter in text.chars().map(Some).chain([None]) {
        if let Some(digit) = letter.filter(char::is_ascii_hexdigit) {
            run.push(digit);
            continue;
        }
        masked.push_str(if run.len() >= DIGEST { "…" } else { &run });
        run.clear();
        masked.extend(letter);
    }
    masked
}

/// The first character to show of two texts, of which `longest` characters are shown, so that their difference is visible.
pub(super) fn window(before: &str, after: &str, longest: usize) -> usize {
    let long = |text: &str| text.chars().nth(longest).is_some();
    if !long(before) && !long(after) {
        return 0;
    }
    let same = before.chars().zip(after.chars()).take_while(|(left, right)| left == right).count();
    // If they differ within the first characters, showing the beginning is best.
    if same + LEAD < longest { 0 } else { same - LEAD }
}

/// The added and removed elements, if any element stayed. A change of the order only has no such words.
fn elements(before: &[Value], after: &[Value]) -> Option<String> {
    let mut dropped: Vec<&Value> = before.iter().collect();
    let mut added = Vec::new();
    for value in after {
        match dropped.iter().position(|other| *other == value) {
            Some(place) => drop(dropped.remove(place)),
            None => added.push(value),
        }
    }
    let anything = !added.is_empty() || !dropped.is_empty();
    // A short list that has nothing of the old one is read best as a whole.
    let is_short = |list: &[Value]| Value::Array(list.to_vec()).to_string().chars().count() <= LONGEST;
    let other = !before.is_empty() && dropped.len() == before.len() && is_short(before) && is_short(after);
    if !anything || other {
        return None;
    }
    let lists = [("adds", added), ("drops", dropped)];
    let words = lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(verb, list)| {
        let names: Vec<_> = list.iter().take(NAMED).map(|value| short(Some(value))).collect();
        let more = match list.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{verb} {}{more}", names.join(", "))
    });
    Some(words.collect::<Vec<_>>().join("; "))
}

/// A value as text. What would have to be cut is described instead: half a JSON document says nothing.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Object(keys) => match tag(keys) {
            Some(tag) => tag,
            None => whole_or(value, || {
                let names: Vec<&str> = keys.keys().take(NAMED).map(String::as_str).collect();
                let more = keys.len() - names.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("settings of {}{more}", names.join(", "))
            }),
        },
        Value::Array(list) => whole_or(value, || match list.len() {
            1 => "1 entry".to_owned(),
            number => format!("{number} entries"),
        }),
    }
}

/// `key=value` of a tag of AWS.
fn tag(keys: &serde_json::Map<String, Value>) -> Option<String> {
    let text = |key: &str| keys.get(key)?.as_str();
    let known = keys.keys().all(|key| matches!(key.as_str(), "Key" | "Value" | "PropagateAtLaunch"));
    known.then(|| Some(format!("{}={}", text("Key")?, text("Value")?))).flatten()
}

fn whole_or(value: &Value, described: impl FnOnce() -> String) -> String {
    let whole = value.to_string();
    if whole.chars().count() <= LONGEST { whole } else { described() }
}

/// `text` from its character `from`, truncated.
fn cut(text: &str, from: usize) -> String {
    let length = text.chars().count();
    if length <= LONGEST {
        return text.to_owned();
    }
    let shown: String = text.chars().skip(from).take(LONGEST).collect();
    let (before, after) = (if from > 0 { "…" } else { "" }, if from + LONGEST < length { "…" } else { "" });
    format!("{before}{shown}{after} ({length} characters)")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(before: &Value, after: &Value) -> String {
        change(Some(before), Some(after))
    }

    #[test]
    fn p3_of_a_list_the_plan_names_what_came_and_went() {
        let three = json!(["https://etcd-0.c.etcd.internal:2379", "https://etcd-1.c.etcd.internal:2379"]);
        let four = json!(["https://etcd-1.c.etcd.internal:2379", "https://etcd-2.c.etcd.internal:2379"]);
        assert_eq!(
            words(&three, &four),
            "adds https://etcd-2.c.etcd.internal:2379; drops https://etcd-0.c.etcd.internal:2379"
        );
        assert_eq!(words(&json!([1]), &json!([1, 1, 2, 3, 4])), "adds 1, 2, 3 and 1 more");
        assert_eq!(words(&json!([1, 2]), &json!([2, 1])), "[1,2] → [2,1]");
        assert_eq!(words(&json!([1]), &json!([2])), "[1] → [2]");
    }

    #[test]
    fn p3_of_two_long_texts_the_plan_shows_where_they_part() {
        let text = |end: &str| json!(format!("{}{end}", "x".repeat(500)));
        let shown = words(&text("AGENT=1"), &text("AGENT=2"));
        let (before, after) = shown.split_once(" → ").unwrap();
        assert!(before.starts_with("…xx") && before.ends_with("AGENT=1 (507 characters)"), "{before}");
        assert!(after.ends_with("AGENT=2 (507 characters)"), "{after}");
        assert_eq!(words(&json!("short"), &json!(1)), "short → 1");
        assert_eq!(change(None, Some(&json!(true))), "(absent) → true");
    }

    #[test]
    fn p3_no_digest_and_no_half_of_a_document_is_shown() {
        let (one, other) = ("a1".repeat(32), "b2".repeat(32));
        assert_eq!(words(&json!(one), &json!(other)), "another digest");
        let image = |digest: &str| json!(format!("registry.k8s.io/pause:3.10@sha256:{digest}"));
        assert_eq!(
            words(&image(&one), &image(&other)),
            "registry.k8s.io/pause:3.10@sha256:…, with another digest"
        );
        let script = |digest: &str| json!({"Fn::Base64": format!("{}{digest}", "#!/bin/sh\n".repeat(20))});
        assert_eq!(words(&script(&one), &script(&other)), "only digests in it differ");
        let rules =
            |count: usize| json!({"rules": vec![json!({"level": "Metadata"}); count], "kind": "Policy"});
        assert_eq!(change(None, Some(&rules(9))), "(absent) → settings of kind, rules");
        let tag = |value: &str| json!([{"Key": "team", "Value": value, "PropagateAtLaunch": true}]);
        assert_eq!(words(&json!([]), &tag("a")), "adds team=a");
        let tags = |value: &str| json!([{"Key": "x".repeat(30), "Value": value}, {"Key": "y".repeat(30), "Value": value}]);
        let shown = words(&tags("1"), &tags("2"));
        assert!(shown.starts_with("adds xxx") && shown.contains("=2; drops xxx"), "{shown}");
    }

    #[test]
    fn p3_a_long_text_that_is_new_shows_its_beginning() {
        let shown = change(None, Some(&json!("ä".repeat(100))));
        assert_eq!(shown, format!("(absent) → {}… (100 characters)", "ä".repeat(60)));
    }
}
