//! CloudFormation's quotas.

use super::error::{ApiError, ApiResult};
use super::template::Template;

/// Maximum size in bytes of a template in the request itself.
pub(crate) const BODY_BYTES: usize = 51_200;
/// Maximum size in bytes of a template in S3.
pub(crate) const URL_BYTES: usize = 1_000_000;
/// Maximum number of tags of a stack.
pub(crate) const TAGS: usize = 50;

const RESOURCES: usize = 500;
const OUTPUTS: usize = 200;
const PARAMETERS: usize = 200;
const DESCRIPTION_BYTES: usize = 1_024;
const LOGICAL_ID_CHARACTERS: usize = 255;

/// Refuses a body that is too long for its source.
pub(crate) fn of_body(body: &str, from_url: bool) -> ApiResult<()> {
    let (limit, member) = if from_url { (URL_BYTES, "templateURL") } else { (BODY_BYTES, "templateBody") };
    if body.is_empty() {
        return Err(ApiError::validation(format!(
            "1 validation error detected: Value '' at '{member}' failed to satisfy constraint: Member must have length greater than or equal to 1"
        )));
    }
    if body.len() <= limit {
        return Ok(());
    }
    if from_url {
        return Err(ApiError::validation(format!("Template may not exceed {limit} bytes in size.")));
    }
    Err(ApiError::validation(format!(
        "1 validation error detected: Value at '{member}' failed to satisfy constraint: Member must have length less than or equal to {limit}"
    )))
}

/// Refuses a template that exceeds a quota.
pub(super) fn of_template(template: &Template) -> ApiResult<()> {
    let counts = [
        ("resources", template.resources.len(), RESOURCES),
        ("outputs", template.outputs.len(), OUTPUTS),
        ("parameters", template.parameters.len(), PARAMETERS),
    ];
    for (what, count, limit) in counts {
        if count > limit {
            return Err(ApiError::validation(format!(
                "Template format error: Number of {what}, {count}, is greater than maximum allowed, {limit}"
            )));
        }
    }
    if template.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES) {
        return Err(ApiError::validation(format!(
            "Template format error: 'Description' length is greater than {DESCRIPTION_BYTES}."
        )));
    }
    if let Some(id) = template.resources.keys().find(|id| id.len() > LOGICAL_ID_CHARACTERS) {
        return Err(ApiError::validation(format!(
            "Template format error: Resource name {id} is longer than {LOGICAL_ID_CHARACTERS} characters."
        )));
    }
    Ok(())
}

/// Refuses a stack name that AWS refuses.
pub(crate) fn of_name(member: &str, name: &str) -> ApiResult<()> {
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && name.len() <= 128;
    if valid {
        return Ok(());
    }
    Err(ApiError::validation(format!(
        "1 validation error detected: Value '{name}' at '{member}' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*"
    )))
}
