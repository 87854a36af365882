//! Values and their differences in one short line.

use serde_json::Value;

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
    let (before, after) = (text(before), text(after));
    let from = window(&before, &after, LONGEST);
    format!("{} → {}", cut(&before, from), cut(&after, from))
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
    if !anything || dropped.len() == before.len() {
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

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
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
    fn p3_a_long_text_that_is_new_shows_its_beginning() {
        let shown = change(None, Some(&json!("ä".repeat(100))));
        assert_eq!(shown, format!("(absent) → {}… (100 characters)", "ä".repeat(60)));
    }
}
