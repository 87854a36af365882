//! The part of IAM that the template's policies use. The embedded AWS checks it before every call of a function.
//!
//! Reading a policy fails for everything that is not modelled (an operator, `NotAction`, a default of a policy variable), so that nothing in a
//! policy is ignored silently.

use std::collections::BTreeMap;

use serde_json::Value;

/// A policy that cannot be checked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("statement `{sid}`: {what}")]
pub struct PolicyError {
    sid: String,
    what: String,
}

/// One statement of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// Its `Sid`.
    pub sid: String,
    allow: bool,
    actions: Vec<String>,
    /// ARNs; empty in a trust policy, which concerns the role itself.
    resources: Vec<String>,
    /// `NotResource`: it concerns all resources but these.
    not_resources: Vec<String>,
    /// `service:lambda.amazonaws.com`, `aws:<arn>`, `*`; empty in an identity-based policy.
    principals: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
struct Condition {
    operator: Operator,
    key: String,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    /// This and all others without `For…` are for keys with one value: "Multivalued context keys require a condition set operator"
    /// (IAM user guide, "Single-valued vs. multivalued context keys").
    StringEquals,
    /// `ArnEquals` and `ArnLike` are the same. IAM compares the six parts of an ARN one by one, and this the whole text, which differs
    /// only for a pattern with `*` before its last part.
    Like,
    /// `ArnNotEquals`, `ArnNotLike`, `StringNotLike`.
    NotLike,
    Bool,
    Null,
    NumericLessThan,
    ForAnyValueStringEquals,
    ForAnyValueLike,
    ForAllValuesStringEquals,
    ForAllValuesLike,
}

/// A call that needs permission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `s3:PutObject`.
    pub action: String,
    /// ARN, or `*` if the action has no resource type.
    pub resource: String,
    /// Condition keys in lower case.
    pub context: BTreeMap<String, Vec<String>>,
}

/// The result of checking policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed by the statement with that `Sid`.
    Allowed(String),
    /// Denied by the statement with that `Sid`.
    Denied(String),
    /// No statement allows it.
    NotGranted,
}

/// Reads a policy document.
///
/// # Errors
/// If it contains something that this module does not model.
pub fn parse(document: &Value) -> Result<Vec<Statement>, PolicyError> {
    list(&document["Statement"]).into_iter().map(statement).collect()
}

/// Checks a request: an explicit deny wins over an allow; without either, it is not allowed.
#[must_use]
pub fn decide(statements: &[Statement], request: &Request) -> Decision {
    let mut granted = Decision::NotGranted;
    for statement in statements.iter().filter(|statement| statement.matches(request)) {
        if !statement.allow {
            return Decision::Denied(statement.sid.clone());
        }
        granted = Decision::Allowed(statement.sid.clone());
    }
    granted
}

/// Checks a request of a role with a permissions boundary: both must allow it (IAM user guide, "Permissions boundaries for IAM entities").
///
/// What a resource-based policy allows is not part of it: to the role's ARN it is bounded in the same way, to that of a session it is not
/// (IAM user guide, "Policy evaluation logic").
#[must_use]
pub fn decide_within(boundary: &[Statement], statements: &[Statement], request: &Request) -> Decision {
    match decide(boundary, request) {
        Decision::Allowed(_) => decide(statements, request),
        refused @ (Decision::Denied(_) | Decision::NotGranted) => refused,
    }
}

/// Checks a resource-based policy for `principal`, such as `service:events.amazonaws.com`.
#[must_use]
pub fn decide_for(statements: &[Statement], principal: &str, request: &Request) -> Decision {
    let theirs = statements.iter().filter(|statement| {
        statement.principals.iter().any(|named| named == "*" || named.eq_ignore_ascii_case(principal))
    });
    decide(&theirs.cloned().collect::<Vec<_>>(), request)
}

/// Whether a role's trust policy lets a service in on behalf of a resource of `account`.
#[must_use]
pub fn trusts(statements: &[Statement], service: &str, account: &str) -> bool {
    let request = Request {
        action: "sts:AssumeRole".to_owned(),
        context: BTreeMap::from([("aws:sourceaccount".to_owned(), vec![account.to_owned()])]),
        ..Request::default()
    };
    matches!(decide_for(statements, &format!("service:{service}"), &request), Decision::Allowed(_))
}

impl Statement {
    fn matches(&self, request: &Request) -> bool {
        let action = self
            .actions
            .iter()
            .any(|pattern| like(&pattern.to_ascii_lowercase(), &request.action.to_ascii_lowercase()));
        let is_among = |patterns: &[String]| {
            patterns.iter().any(|pattern| like_in(pattern, &request.resource, &request.context))
        };
        let resource =
            (self.resources.is_empty() || is_among(&self.resources)) && !is_among(&self.not_resources);
        action && resource && self.conditions.iter().all(|condition| condition.holds(&request.context))
    }
}

impl Condition {
    fn holds(&self, context: &BTreeMap<String, Vec<String>>) -> bool {
        let given = context.get(&self.key);
        let any = |holds: &dyn Fn(&str, &str) -> bool| {
            given.is_some_and(|given| {
                given.iter().any(|given| self.values.iter().any(|value| holds(value, given)))
            })
        };
        // EventBridge documents for `events:PutRule` that `StringEquals` with two listed sources does not allow a pattern with both (EventBridge
        // user guide, "Using IAM policy conditions"). So a key with several different values fails every operator for one value, but for
        // the negated ones, of which only statements that deny make use here.
        let single = given.is_none_or(|given| given.iter().all(|value| Some(value) == given.first()));
        let equals = |value: &str, given: &str| resolved(value, context).is_some_and(|value| value == given);
        let like = |value: &str, given: &str| like_in(value, given, context);
        match self.operator {
            Operator::StringEquals => single && any(&equals),
            Operator::ForAnyValueStringEquals => any(&equals),
            // "Returns true … if there are no keys in the request" (IAM user guide, "Set operators for multivalued context keys").
            Operator::ForAllValuesStringEquals => given.is_none_or(|given| {
                given.iter().all(|given| self.values.iter().any(|value| equals(value, given)))
            }),
            Operator::ForAllValuesLike => given.is_none_or(|given| {
                given.iter().all(|given| self.values.iter().any(|value| like(value, given)))
            }),
            Operator::Like => single && any(&like),
            Operator::ForAnyValueLike => any(&like),
            // "If the key that you specify in a policy condition is not present in the request context, … negated matching … the condition
            // is true" (IAM user guide, "IAM JSON policy elements: Condition operators").
            Operator::NotLike => !any(&like),
            Operator::Bool => any(&|value, given| value.eq_ignore_ascii_case(given)),
            Operator::Null => self.values.iter().any(|value| (value == "true") == given.is_none()),
            Operator::NumericLessThan => any(
                &|value, given| matches!((value.parse::<f64>(), given.parse::<f64>()), (Ok(value), Ok(given)) if given < value),
            ),
        }
    }
}

fn statement(value: &Value) -> Result<Statement, PolicyError> {
    let sid = value["Sid"].as_str().unwrap_or_default().to_owned();
    let refuse = |what: String| PolicyError { sid: sid.clone(), what };
    let known = ["Sid", "Effect", "Action", "Resource", "NotResource", "Principal", "Condition"];
    if let Some(key) = value.as_object().and_then(|map| map.keys().find(|key| !known.contains(&key.as_str())))
    {
        return Err(refuse(format!("`{key}` is not modelled")));
    }
    let allow = match value["Effect"].as_str() {
        Some("Allow") => true,
        Some("Deny") => false,
        Some(_) | None => return Err(refuse("`Effect` is neither Allow nor Deny".to_owned())),
    };
    let strings = |value: &Value| -> Result<Vec<String>, PolicyError> {
        list(value)
            .into_iter()
            .map(|value| {
                let text = value
                    .as_str()
                    .map(str::to_owned)
                    .or_else(|| value.as_bool().map(|value| value.to_string()));
                match text {
                    Some(text) if variables(&text).is_none() => {
                        Err(refuse(format!("`{text}` has a policy variable that is not modelled")))
                    }
                    Some(text) => Ok(text),
                    None => Err(refuse(format!("{value} is not text: an intrinsic left unresolved?"))),
                }
            })
            .collect()
    };
    let mut conditions = Vec::new();
    for (operator, keys) in value["Condition"].as_object().into_iter().flatten() {
        let known = match operator.as_str() {
            "StringEquals" => Operator::StringEquals,
            "StringLike" | "ArnEquals" | "ArnLike" => Operator::Like,
            "ArnNotEquals" | "ArnNotLike" | "StringNotLike" => Operator::NotLike,
            "Bool" => Operator::Bool,
            "Null" => Operator::Null,
            "NumericLessThan" => Operator::NumericLessThan,
            "ForAnyValue:StringEquals" => Operator::ForAnyValueStringEquals,
            "ForAnyValue:StringLike" => Operator::ForAnyValueLike,
            "ForAllValues:StringEquals" => Operator::ForAllValuesStringEquals,
            "ForAllValues:StringLike" => Operator::ForAllValuesLike,
            other => return Err(refuse(format!("condition operator `{other}` is not modelled"))),
        };
        for (key, values) in keys.as_object().into_iter().flatten() {
            let values = strings(values)?;
            if known == Operator::NotLike && has_variables(&values) {
                return Err(refuse(format!("a policy variable in `{operator}` is not modelled")));
            }
            conditions.push(Condition { operator: known, key: key.to_ascii_lowercase(), values });
        }
    }
    let mut principals = Vec::new();
    match &value["Principal"] {
        Value::Null => {}
        Value::Object(kinds) => {
            for (kind, names) in kinds {
                principals.extend(
                    strings(names)?.iter().map(|name| format!("{}:{name}", kind.to_ascii_lowercase())),
                );
            }
        }
        all @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            principals.extend(strings(all)?)
        }
    }
    let (actions, resources) = (strings(&value["Action"])?, strings(&value["Resource"])?);
    let not_resources = strings(&value["NotResource"])?;
    if !resources.is_empty() && !not_resources.is_empty() {
        return Err(refuse("it has `Resource` and `NotResource`".to_owned()));
    }
    if has_variables(&actions) || has_variables(&principals) {
        return Err(refuse("policy variables are for `Resource` and `Condition`".to_owned()));
    }
    // "This portion of the ARN appears after the fifth colon" ("IAM policy elements: Variables and tags", IAM user guide).
    let early = |arn: &&String| arn.splitn(6, ':').take(5).any(|part| part.contains("${"));
    if let Some(arn) = resources.iter().chain(&not_resources).find(early) {
        return Err(refuse(format!("`{arn}` has a policy variable before its fifth colon")));
    }
    Ok(Statement { allow, actions, resources, not_resources, principals, conditions, sid: sid.clone() })
}

/// A part of a text with policy variables.
enum Part<'t> {
    Text(&'t str),
    /// `${*}`, `${?}` or `${$}`: the character itself ("Special characters", in "IAM policy elements: Variables and tags", IAM user guide).
    Literal(char),
    /// The key of the request's context, in lower case: "Condition key names are not case-sensitive" (IAM user guide).
    Variable(String),
}

/// The parts of a text; `None` if it has a variable with a default, or one that does not end.
fn variables(text: &str) -> Option<Vec<Part<'_>>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (key, after) = after.split_once('}')?;
        let is_key = key.contains(':')
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":/-_.".contains(&byte));
        let part = match key {
            "*" => Part::Literal('*'),
            "?" => Part::Literal('?'),
            "$" => Part::Literal('$'),
            _ if is_key => Part::Variable(key.to_ascii_lowercase()),
            _ => return None,
        };
        parts.extend([Part::Text(before), part]);
        rest = after;
    }
    parts.push(Part::Text(rest));
    Some(parts)
}

fn has_variables(texts: &[String]) -> bool {
    let is_variable = |part: &Part<'_>| matches!(part, Part::Variable(_));
    texts.iter().any(|text| variables(text).is_none_or(|parts| parts.iter().any(is_variable)))
}

/// `text` with the values of its variables. `None`: the request has no value for one, so that nothing matches ("Policy variables with no
/// value", IAM user guide).
fn resolved(text: &str, context: &BTreeMap<String, Vec<String>>) -> Option<String> {
    Some(pieces(text, context)?.into_iter().map(|(character, _)| character).collect())
}

/// The characters of `text`, each with whether it may be a wildcard: those of a variable's value are not ("wildcards", same page).
fn pieces(text: &str, context: &BTreeMap<String, Vec<String>>) -> Option<Vec<(char, bool)>> {
    let mut pieces = Vec::new();
    for part in variables(text)? {
        match part {
            Part::Text(text) => pieces.extend(text.chars().map(|character| (character, true))),
            Part::Literal(character) => pieces.push((character, false)),
            Part::Variable(key) => match context.get(&key).map(Vec::as_slice) {
                Some([value]) => pieces.extend(value.chars().map(|character| (character, false))),
                Some(_) | None => return None,
            },
        }
    }
    Some(pieces)
}

/// [`like`], with the values of the pattern's policy variables.
fn like_in(pattern: &str, text: &str, context: &BTreeMap<String, Vec<String>>) -> bool {
    pieces(pattern, context).is_some_and(|pattern| matches_pieces(&pattern, text))
}

/// IAM accepts a single value for a list of one.
fn list(value: &Value) -> Vec<&Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().collect(),
        one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => vec![one],
    }
}

/// `*` matches any text, `?` any character.
#[must_use]
pub fn like(pattern: &str, text: &str) -> bool {
    let pattern: Vec<(char, bool)> = pattern.chars().map(|character| (character, true)).collect();
    matches_pieces(&pattern, text)
}

fn matches_pieces(pattern: &[(char, bool)], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to continue if the text after the last `*` does not match: the `*` then takes one more character.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(('*', true)) => {
                star = Some((p, t));
                p += 1;
            }
            Some(&(c, wild)) if (wild && c == '?') || c == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&piece| piece == ('*', true))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn request(action: &str, resource: &str, context: &[(&str, &str)]) -> Request {
        Request {
            action: action.to_owned(),
            resource: resource.to_owned(),
            context: context
                .iter()
                .map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()]))
                .collect(),
        }
    }

    #[test]
    fn wildcards_match_as_in_iam() {
        assert!(like("arn:aws:s3:::b/clusters/*", "arn:aws:s3:::b/clusters/a/cluster.yaml"));
        assert!(like("a*b*c", "axxbyybzzc"));
        assert!(like("a?c*", "abc"));
        assert!(!like("a?c", "ac"));
        assert!(!like("*-network/*", "prod-etcd/1"));
        assert!(!like("", "a"));
    }

    #[test]
    fn a_denial_wins_and_conditions_bind() {
        let policy = parse(&json!({"Statement": [
            {"Sid": "Put", "Effect": "Allow", "Action": "s3:Put*", "Resource": ["arn:aws:s3:::b/*"]},
            {"Sid": "Tls", "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*",
             "Condition": {"Bool": {"aws:SecureTransport": "false"}}},
            {"Sid": "Key", "Effect": "Allow", "Action": "kms:Decrypt", "Resource": "k",
             "Condition": {"Null": {"kms:EncryptionContext:cluster": "false"}}},
        ]}))
        .unwrap();
        let put = request("s3:PutObject", "arn:aws:s3:::b/k", &[("aws:securetransport", "true")]);
        assert_eq!(decide(&policy, &put), Decision::Allowed("Put".to_owned()));
        let plain = request("s3:PutObject", "arn:aws:s3:::b/k", &[("aws:securetransport", "false")]);
        assert_eq!(decide(&policy, &plain), Decision::Denied("Tls".to_owned()));
        assert_eq!(decide(&policy, &request("s3:PutObject", "arn:aws:s3:::c/k", &[])), Decision::NotGranted);
        assert_eq!(decide(&policy, &request("kms:Decrypt", "k", &[])), Decision::NotGranted);
        let context = [("kms:encryptioncontext:cluster", "prod")];
        assert_eq!(
            decide(&policy, &request("kms:Decrypt", "k", &context)),
            Decision::Allowed("Key".to_owned())
        );
    }

    #[test]
    fn a_boundary_grants_nothing_and_bounds_everything() {
        let one = |action: &str| {
            parse(
                &json!({"Statement": {"Sid": action, "Effect": "Allow", "Action": action, "Resource": "*"}}),
            )
            .unwrap()
        };
        let asked = request("s3:GetObject", "arn:aws:s3:::b/k", &[]);
        assert_eq!(decide_within(&one("s3:*"), &one("kms:*"), &asked), Decision::NotGranted);
        assert_eq!(decide_within(&one("kms:*"), &one("s3:*"), &asked), Decision::NotGranted);
        assert_eq!(
            decide_within(&one("s3:*"), &one("s3:Get*"), &asked),
            Decision::Allowed("s3:Get*".to_owned())
        );
    }

    #[test]
    fn a_negated_condition_holds_without_its_key() {
        let policy = parse(&json!({"Statement": {
            "Sid": "No", "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*",
            "Condition": {"ArnNotEquals": {"aws:PrincipalArn": ["arn:a", "arn:b"]}},
        }}))
        .unwrap();
        let decided = |given: &[(&str, &str)]| decide(&policy, &request("s3:PutObject", "k", given));
        assert_eq!(decided(&[]), Decision::Denied("No".to_owned()));
        assert_eq!(decided(&[("aws:principalarn", "arn:c")]), Decision::Denied("No".to_owned()));
        assert_eq!(decided(&[("aws:principalarn", "arn:b")]), Decision::NotGranted);
    }

    #[test]
    fn what_is_not_modelled_is_refused() {
        for statement in [
            json!({"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"}),
            json!({"Effect": "Allow", "Action": "s3:*", "Resource": "*", "Condition": {"IpAddress": {"a": "b"}}}),
            json!({"Effect": "Allow", "Action": "s3:*", "Resource": {"Ref": "Bucket"}}),
            json!({"Effect": "Maybe", "Action": "s3:*", "Resource": "*"}),
            json!({"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/${aws:userid"}),
            json!({"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/${aws:userid, 'x'}"}),
            json!({"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::b/${**}"}),
            json!({"Effect": "Allow", "Action": "s3:*", "Resource": "${ec2:SourceInstanceARN}"}),
            json!({"Effect": "Allow", "Action": "${aws:userid}", "Resource": "*"}),
            json!({"Effect": "Deny", "Action": "s3:*", "Resource": "*",
                "Condition": {"StringNotLike": {"aws:userid": "${aws:userid}"}}}),
            json!({"Effect": "Deny", "Action": "s3:*", "Resource": "a", "NotResource": "b"}),
        ] {
            assert!(parse(&json!({"Statement": statement})).is_err(), "{statement}");
        }
    }

    #[test]
    fn a_policy_variable_is_the_requests_own_value_and_no_pattern() {
        let policy = parse(&json!({"Statement": [
            {"Sid": "Own", "Effect": "Allow", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/*/${aws:UserID}/*"},
            {"Sid": "Self", "Effect": "Allow", "Action": "ec2:AttachVolume", "Resource": "*",
             "Condition": {"ArnLike": {"ec2:SourceInstanceARN": "arn:aws:ec2:*:*:instance/${ec2:InstanceID}"}}},
            {"Sid": "Same", "Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "*",
             "Condition": {"StringEquals": {"a:b": "${c:d}"}}},
            {"Sid": "Else", "Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject",
             "NotResource": "arn:aws:s3:::b/*/${aws:userid}/*"},
        ]}))
        .unwrap();
        let put = |key: &str, who: &[(&str, &str)]| {
            decide(&policy, &request("s3:PutObject", &format!("arn:aws:s3:::b/{key}"), who))
        };
        let me = [("aws:userid", "AROA1:i-1")];
        assert_eq!(put("a/AROA1:i-1/x", &me), Decision::Allowed("Own".to_owned()));
        assert_eq!(put("a/AROA1:i-12/x", &me), Decision::NotGranted);
        assert_eq!(put("a/AROA1:i-2/x", &me), Decision::NotGranted);
        assert_eq!(
            put("a/AROA1:i-1/x", &[]),
            Decision::NotGranted,
            "without the key the statement matches nothing"
        );
        assert_eq!(put("a/x/x", &[("aws:userid", "*")]), Decision::NotGranted, "a value is not a pattern");
        assert_eq!(put("a/*/x", &[("aws:userid", "*")]), Decision::Allowed("Own".to_owned()));
        let attach = |target: &str| {
            let from = ("ec2:sourceinstancearn", "arn:aws:ec2:eu-west-1:1:instance/i-1");
            decide(&policy, &request("ec2:AttachVolume", "*", &[from, ("ec2:instanceid", target)]))
        };
        assert_eq!(attach("i-1"), Decision::Allowed("Self".to_owned()));
        assert_eq!(attach("i-2"), Decision::NotGranted);
        let same = |context: &[(&str, &str)]| decide(&policy, &request("ec2:CreateTags", "*", context));
        assert_eq!(same(&[("a:b", "x"), ("c:d", "x")]), Decision::Allowed("Same".to_owned()));
        assert_eq!(same(&[("a:b", "x"), ("c:d", "*")]), Decision::NotGranted);
        let delete = |key: &str, who: &[(&str, &str)]| {
            decide(&policy, &request("s3:DeleteObject", &format!("arn:aws:s3:::b/{key}"), who))
        };
        assert_eq!(delete("a/AROA1:i-1/x", &me), Decision::NotGranted);
        assert_eq!(delete("a/AROA1:i-2/x", &me), Decision::Denied("Else".to_owned()));
        assert_eq!(delete("a/AROA1:i-1/x", &[]), Decision::Denied("Else".to_owned()));
    }

    #[test]
    fn a_special_character_in_braces_is_no_wildcard() {
        let policy = parse(&json!({"Statement": {
            "Sid": "Plain", "Effect": "Allow", "Action": "cloudformation:CreateChangeSet", "Resource": "*",
            "Condition": {"StringNotLike": {"cloudformation:TemplateUrl": ["*${?}*", "*${*}", "${$}*"]}},
        }}))
        .unwrap();
        let allowed = |url: &str| {
            let context = [("cloudformation:templateurl", url)];
            decide(&policy, &request("cloudformation:CreateChangeSet", "*", &context)) != Decision::NotGranted
        };
        assert!(allowed("https://b/a") && allowed("https://b/$*a"));
        assert!(!allowed("https://b/a?b") && !allowed("https://b/*") && !allowed("$"));
    }

    #[test]
    fn all_values_of_a_call_must_be_among_those_of_a_set_condition() {
        let document = json!({ "Statement": [{
            "Effect": "Allow", "Action": "route53:*", "Resource": "*",
            "Condition": { "ForAllValues:StringEquals": { "route53:ChangeResourceRecordSetsActions": ["UPSERT"] } },
        }] });
        let statements = parse(&document).unwrap();
        let asked = |given: &[(&str, &str)]| {
            let mut asked = request("route53:ChangeResourceRecordSets", "*", &[]);
            for (key, value) in given {
                asked.context.entry((*key).to_owned()).or_default().push((*value).to_owned());
            }
            decide(&statements, &asked)
        };
        let key = "route53:changeresourcerecordsetsactions";
        assert!(matches!(asked(&[(key, "UPSERT")]), Decision::Allowed(_)));
        assert_eq!(asked(&[(key, "UPSERT"), (key, "DELETE")]), Decision::NotGranted);
        assert!(matches!(asked(&[(key, "UPSERT"), (key, "UPSERT")]), Decision::Allowed(_)));
        assert!(matches!(asked(&[]), Decision::Allowed(_)), "a call without any");
    }

    #[test]
    fn a_key_with_several_values_needs_a_set_operator() {
        let allowed = |condition: Value, types: &[&str]| {
            let statements = parse(&json!({ "Statement": [{
                "Effect": "Allow", "Action": "events:PutEvents", "Resource": "*", "Condition": condition,
            }] }))
            .unwrap();
            let mut asked = request("events:PutEvents", "*", &[]);
            if !types.is_empty() {
                let types = types.iter().map(|kind| (*kind).to_owned()).collect();
                asked.context.insert("events:detail-type".to_owned(), types);
            }
            matches!(decide(&statements, &asked), Decision::Allowed(_))
        };
        let plain = json!({ "StringEquals": { "events:detail-type": ["A", "B"] } });
        assert!(allowed(plain.clone(), &["A"]) && allowed(plain.clone(), &["B", "B"]));
        assert!(!allowed(plain, &["A", "B"]));
        assert!(!allowed(json!({ "StringLike": { "events:detail-type": "*" } }), &["A", "B"]));
        assert!(allowed(json!({ "ForAnyValue:StringLike": { "events:detail-type": "A*" } }), &["A", "B"]));
        let set = json!({
            "ForAllValues:StringEquals": { "events:detail-type": ["A", "B"] },
            "Null": { "events:detail-type": "false" },
        });
        assert!(allowed(set.clone(), &["A", "B"]) && allowed(set.clone(), &["A"]));
        assert!(!allowed(set.clone(), &["A", "C"]) && !allowed(set, &[]));
    }
}
