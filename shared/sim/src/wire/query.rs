//! The query protocol's parameters: a form, in which structures and lists are names with dots.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::world::{ApiError, ApiResult};

/// The parameters of a call. Each is taken once. A parameter that nobody took is not modelled, and the call is refused.
#[derive(Debug)]
pub(super) struct Query {
    values: BTreeMap<String, String>,
    taken: RefCell<BTreeSet<String>>,
}

impl Query {
    pub(super) fn parse(body: &str) -> Self {
        let pairs = body.split('&').filter(|pair| !pair.is_empty());
        let values = pairs
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decoded(key), decoded(value))
            })
            .collect();
        Self { values, taken: RefCell::default() }
    }

    /// A parameter; `None` if it is absent. An empty string counts as absent, because an empty list is sent in that way.
    pub(super) fn take(&self, key: &str) -> Option<&str> {
        self.taken.borrow_mut().insert(key.to_owned());
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn required(&self, key: &str) -> ApiResult<&str> {
        self.take(key).ok_or_else(|| {
            ApiError::validation(format!(
                "1 validation error detected: Value null at '{key}' failed to satisfy constraint: Member must not be null"
            ))
        })
    }

    /// Whether a flag is set.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.take(key) == Some("true")
    }

    /// A flag that this world supports only as `false`.
    pub(super) fn never(&self, key: &str) -> ApiResult<()> {
        if self.flag(key) { Err(ApiError::not_modelled(&format!("{key}=true"))) } else { Ok(()) }
    }

    /// A list of strings; `None` if it is absent.
    pub(super) fn list(&self, key: &str) -> Option<Vec<&str>> {
        if self.values.contains_key(key) {
            self.take(key);
            return Some(Vec::new());
        }
        let items: Vec<&str> = (1..).map_while(|index| self.take(&format!("{key}.member.{index}"))).collect();
        (!items.is_empty()).then_some(items)
    }

    /// A list of structures: the prefixes of their members.
    pub(super) fn structures(&self, key: &str) -> Option<Vec<String>> {
        if self.values.contains_key(key) {
            self.take(key);
            return Some(Vec::new());
        }
        let prefixes: Vec<String> = (1..)
            .map(|index| format!("{key}.member.{index}."))
            .take_while(|prefix| self.values.keys().any(|name| name.starts_with(prefix.as_str())))
            .collect();
        (!prefixes.is_empty()).then_some(prefixes)
    }

    /// The position at which a page of a list begins, from the token of an earlier answer.
    pub(super) fn page(&self) -> ApiResult<usize> {
        match self.take("NextToken") {
            None => Ok(0),
            Some(token) => token
                .strip_prefix(PAGE)
                .and_then(|place| place.parse().ok())
                .ok_or_else(|| ApiError::validation("Invalid NextToken")),
        }
    }

    /// Refuses the call if it has parameters that nobody took.
    pub(super) fn finish(&self) -> ApiResult<()> {
        let taken = self.taken.borrow();
        match self.values.keys().find(|key| !taken.contains(*key)) {
            None => Ok(()),
            Some(key) => Err(ApiError::not_modelled(&format!("The parameter {key}"))),
        }
    }
}

const PAGE: &str = "slipway-page-";

/// The token that [`Query::page`] reads.
pub(super) fn page_token(place: usize) -> String {
    format!("{PAGE}{place}")
}

/// Undoes form encoding.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, following)) = rest.split_first() {
        rest = following;
        let hex =
            || std::str::from_utf8(following.get(..2)?).ok().and_then(|two| u8::from_str_radix(two, 16).ok());
        match first {
            b'+' => bytes.push(b' '),
            b'%' => match hex() {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &following[2..];
                }
                None => bytes.push(b'%'),
            },
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_form_is_read_and_what_nobody_takes_is_refused() {
        let query = Query::parse(
            "StackName=a%2Fb+c&Tags.member.1.Key=k&Tags.member.1.Value=&Capabilities.member.1=X&Parameters=&Odd=1",
        );
        assert_eq!(query.required("StackName").unwrap(), "a/b c");
        assert_eq!(query.structures("Tags").unwrap(), ["Tags.member.1."]);
        assert_eq!(query.take("Tags.member.1.Key"), Some("k"));
        assert_eq!(query.take("Tags.member.1.Value"), None);
        assert_eq!(query.list("Capabilities").unwrap(), ["X"]);
        assert_eq!(query.structures("Parameters"), Some(Vec::new()));
        assert_eq!(query.structures("None"), None);
        assert!(query.finish().unwrap_err().message.contains("The parameter Odd is not modelled"));
        assert_eq!(decoded("%E2%9C%93%zz"), "✓%zz");
    }
}
