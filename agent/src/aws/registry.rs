//! ECR: the password of the private registries that the node's role may read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use slipway_ports::{ErrorKind, PortResult};
use zeroize::Zeroizing;

use super::endpoints::Service;
use super::error::port_error;
use super::{Aws, Body, Call};

const OPERATION: &str = "ecr:GetAuthorizationToken";
/// The name and version of the service in `X-Amz-Target` (aws-sdk-go-v2, `service/ecr/serializers.go`).
const TARGET: &str = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken";

/// What a registry is asked for images with.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Zeroizing<String>,
    pub(crate) expires: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow)]
    authorization_data: Vec<Data<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    /// `user:password`, in base64.
    authorization_token: &'a str,
    /// Seconds since 1970, with fractions.
    expires_at: f64,
}

impl Aws {
    /// `ecr:GetAuthorizationToken`: the login of all registries of this client's region that the role may read. It lasts for twelve hours.
    pub(crate) async fn registry_login(&self) -> PortResult<Login> {
        let subject = format!("the registries of {}", self.region());
        let call = Call {
            headers: vec![
                ("content-type", "application/x-amz-json-1.1".to_owned()),
                ("x-amz-target", TARGET.to_owned()),
            ],
            body: Body::Bytes(b"{}"),
            ..Call::new(OPERATION, &subject, Service::Ecr, format!("{}/", self.base(Service::Ecr)))
        };
        let text = Zeroizing::new(self.text(&call).await?);
        // A parser's error may quote the text.
        login(&text).ok_or_else(|| {
            port_error(OPERATION, &subject, ErrorKind::Transient, "the answer holds no password")
        })
    }
}

fn login(text: &str) -> Option<Login> {
    let answer: Answer<'_> = serde_json::from_str(text).ok()?;
    let data = answer.authorization_data.first()?;
    let token = Zeroizing::new(STANDARD.decode(data.authorization_token).ok()?);
    let (user, password) = std::str::from_utf8(&token).ok()?.split_once(':')?;
    #[allow(clippy::cast_possible_truncation, reason = "a second more or less of twelve hours")]
    let expires = Timestamp::from_second(data.expires_at as i64).ok()?;
    Some(Login { user: user.to_owned(), password: Zeroizing::new(password.to_owned()), expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_and_what_is_none_is_not() {
        let text = |token: &str| {
            format!(
                r#"{{"authorizationData":[{{"authorizationToken":"{token}","expiresAt":1.7983E9,"proxyEndpoint":"https://x"}}]}}"#
            )
        };
        let read = login(&text(&STANDARD.encode("AWS:a:b"))).unwrap();
        assert_eq!((read.user.as_str(), read.password.as_str()), ("AWS", "a:b"));
        assert_eq!(read.expires.as_second(), 1_798_300_000);
        for none in [
            text("*"),
            text(&STANDARD.encode("AWS")),
            r#"{"authorizationData":[]}"#.to_owned(),
            String::new(),
        ] {
            assert!(login(&none).is_none(), "{none}");
        }
    }
}
