//! Errors in the format of the service that sends them.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A way in which AWS refuses a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A permission is missing.
    Denied,
    /// Too many calls.
    Throttled,
    /// The service has a failure.
    Internal,
    /// The named resource does not exist.
    Missing,
}

/// The gateway does not forward a call that it cannot check.
pub(super) const NOT_MODELLED: Refusal = Refusal::Internal;

impl Refusal {
    fn status(self, service: &str) -> StatusCode {
        match (self, service) {
            (
                Self::Denied,
                "s3"
                | "cloudformation"
                | "autoscaling"
                | "elasticloadbalancing"
                | "sns"
                | "scheduler"
                | "ec2"
                | "iam"
                | "monitoring",
            ) => StatusCode::FORBIDDEN,
            (Self::Missing, "s3" | "scheduler") => StatusCode::NOT_FOUND,
            (Self::Throttled, "s3") => StatusCode::SERVICE_UNAVAILABLE,
            (Self::Throttled, "scheduler") => StatusCode::TOO_MANY_REQUESTS,
            (Self::Internal, _) => StatusCode::INTERNAL_SERVER_ERROR,
            (Self::Denied | Self::Missing | Self::Throttled, _) => StatusCode::BAD_REQUEST,
        }
    }

    fn code(self, service: &str) -> &'static str {
        match (self, service) {
            (
                Self::Denied,
                "s3"
                | "cloudformation"
                | "autoscaling"
                | "elasticloadbalancing"
                | "sns"
                | "iam"
                | "monitoring",
            ) => "AccessDenied",
            (Self::Denied, "ec2") => "UnauthorizedOperation",
            (Self::Denied, _) => "AccessDeniedException",
            (Self::Throttled, "s3") => "SlowDown",
            (Self::Throttled, "cloudformation" | "autoscaling" | "elasticloadbalancing" | "sns") => {
                "Throttling"
            }
            (Self::Throttled, _) => "ThrottlingException",
            (Self::Internal, "s3") => "InternalError",
            (Self::Internal, "cloudformation" | "autoscaling" | "elasticloadbalancing" | "sns") => {
                "InternalFailure"
            }
            (Self::Internal, "kms") => "KMSInternalException",
            (Self::Internal, "events") => "InternalException",
            (Self::Internal, _) => "InternalServerError",
            (Self::Missing, "s3") => "NoSuchBucket",
            (Self::Missing, "kms") => "NotFoundException",
            (Self::Missing, "ssm") => "ParameterNotFound",
            (Self::Missing, "cloudformation" | "autoscaling") => "ValidationError",
            (Self::Missing, "elasticloadbalancing") => "TargetGroupNotFound",
            (Self::Missing, _) => "ResourceNotFoundException",
        }
    }

    /// The response in the format of `service`.
    pub(super) fn answer(self, service: &str, action: &str, message: &str) -> Response {
        let (status, code) = (self.status(service), self.code(service));
        let text = escape(message);
        match service {
            "s3" => xml(
                status,
                &format!(
                    "<Error><Code>{code}</Code><Message>{text}</Message><RequestId>gateway</RequestId></Error>"
                ),
            ),
            "ec2" => xml(
                status,
                &format!(
                    "<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors>\
                     <RequestID>gateway</RequestID></Response>"
                ),
            ),
            "cloudformation" | "autoscaling" | "elasticloadbalancing" | "sns" | "iam" | "monitoring" => xml(
                status,
                &format!(
                    "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>\
                     <RequestId>gateway</RequestId></ErrorResponse>"
                ),
            ),
            _ => {
                let mut headers = HeaderMap::new();
                headers.insert("content-type", HeaderValue::from_static("application/x-amz-json-1.1"));
                headers.insert("x-amzn-errortype", HeaderValue::from_static(code));
                let body = json!({"__type": code, "message": message, "Message": message, "action": action});
                (status, headers, body.to_string()).into_response()
            }
        }
    }
}

fn xml(status: StatusCode, body: &str) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/xml"));
    let declaration = r#"<?xml version="1.0" encoding="UTF-8"?>"#;
    (status, headers, format!("{declaration}\n{body}")).into_response()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
