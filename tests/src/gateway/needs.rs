//! What a call to AWS needs to be allowed: the action, the resource and the condition keys of each permission.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::ACCOUNT;
use crate::iam::Request;

pub(super) fn need(action: &str, resource: String) -> Request {
    Request { action: action.to_owned(), resource, context: BTreeMap::new() }
}

pub(super) fn add(request: &mut Request, key: &str, value: &str) {
    request.context.entry(key.to_ascii_lowercase()).or_default().push(value.to_owned());
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The region of the call's signature, which the ARNs of its resources contain.
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
}

impl Scope<'_> {
    pub(super) fn arn(&self, service: &str, rest: &str) -> String {
        format!("arn:aws:{service}:{}:{ACCOUNT}:{rest}", self.region)
    }
}
