//! Errors of the API.

/// An error of an API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// AWS' error code, as it is sent: `ValidationError`, `ChangeSetNotFound`.
    pub code: &'static str,
    /// HTTP status.
    pub http_status: u16,
    /// AWS' words.
    pub message: String,
}

/// The result of an API call.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn new(code: &'static str, http_status: u16, message: impl Into<String>) -> Self {
        Self { code, http_status, message: message.into() }
    }

    /// `ValidationError`: the request or the template is invalid.
    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new("ValidationError", 400, message)
    }

    /// Refuses a feature that this world does not model, so that no caller relies on something that is ignored.
    pub(crate) fn not_modelled(what: &str) -> Self {
        Self::validation(format!("{what} is not modelled by the simulated CloudFormation"))
    }

    pub(crate) fn already_exists(message: impl Into<String>) -> Self {
        Self::new("AlreadyExistsException", 400, message)
    }

    pub(crate) fn insufficient_capabilities(needed: &str) -> Self {
        Self::new("InsufficientCapabilitiesException", 400, format!("Requires capabilities : [{needed}]"))
    }

    pub(crate) fn change_set_not_found(name: &str) -> Self {
        Self::new("ChangeSetNotFound", 404, format!("ChangeSet [{name}] does not exist"))
    }

    pub(crate) fn invalid_change_set_status(message: impl Into<String>) -> Self {
        Self::new("InvalidChangeSetStatus", 400, message)
    }

    pub(crate) fn token_already_exists(token: &str) -> Self {
        let message = format!("The client request token {token} has already been used for this stack.");
        Self::new("TokenAlreadyExistsException", 400, message)
    }

    pub(crate) fn throttling() -> Self {
        Self::new("Throttling", 400, "Rate exceeded")
    }

    /// "The request has failed due to a temporary failure of the server."
    pub(crate) fn unavailable() -> Self {
        Self::new("ServiceUnavailable", 503, "The service is unavailable. Please try again.")
    }

    pub(crate) fn access_denied(action: &str) -> Self {
        let message =
            format!("User is not authorized to perform: {action} because no identity-based policy allows it");
        Self::new("AccessDenied", 403, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new("ConflictException", 409, message)
    }

    pub(crate) fn resource_not_found(message: impl Into<String>) -> Self {
        Self::new("ResourceNotFoundException", 404, message)
    }

    /// Elastic Load Balancing has no target group with that ARN.
    pub(crate) fn target_group_not_found() -> Self {
        Self::new("TargetGroupNotFound", 400, "One or more target groups not found")
    }

    /// Run Command does not know the machine, or does not know it now.
    pub(crate) fn invalid_instance_id(message: impl Into<String>) -> Self {
        Self::new("InvalidInstanceId", 400, message)
    }

    /// Systems Manager has no document with that name.
    pub(crate) fn invalid_document(name: &str) -> Self {
        Self::new("InvalidDocument", 400, format!("Document with name {name} does not exist."))
    }

    /// A document does not have that parameter, or the value is invalid.
    pub(crate) fn invalid_parameters(message: impl Into<String>) -> Self {
        Self::new("InvalidParameters", 400, message)
    }

    /// No machine has a command with that id.
    pub(crate) fn invocation_does_not_exist(id: &str) -> Self {
        Self::new("InvocationDoesNotExist", 400, format!("No invocation of {id} on that instance"))
    }

    pub(crate) fn invalid_command_id(id: &str) -> Self {
        Self::new("InvalidCommandId", 400, format!("{id} is not a command"))
    }

    /// The Scheduler's error for an invalid request.
    pub(crate) fn validation_exception(message: impl Into<String>) -> Self {
        Self::new("ValidationException", 400, message)
    }
}
