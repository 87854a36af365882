//! SSM's Parameter Store.

use aws_sdk_ssm::types::ParameterType;
use slipway_ports::{Parameters, PortResult, Secret, SecretParameter};

use crate::error::{code, port_error};

/// SSM's Parameter Store.
#[derive(Debug, Clone)]
pub struct SsmParameters {
    client: aws_sdk_ssm::Client,
}

impl SsmParameters {
    pub(crate) fn new(client: aws_sdk_ssm::Client) -> Self {
        Self { client }
    }
}

impl Parameters for SsmParameters {
    async fn value(&self, name: &str) -> PortResult<Option<String>> {
        // What comes of this is written into locks and templates: a SecureString is not even opened for it (P9).
        match self.client.get_parameter().name(name).with_decryption(false).send().await {
            Ok(output) => Ok(output
                .parameter
                .filter(|parameter| parameter.r#type != Some(ParameterType::SecureString))
                .and_then(|parameter| parameter.value)),
            Err(error) if matches!(code(&error), "ParameterNotFound" | "ParameterVersionNotFound") => {
                Ok(None)
            }
            Err(error) => Err(port_error("ssm:GetParameter", name, &error)),
        }
    }

    async fn secret(&self, name: &str) -> PortResult<SecretParameter> {
        match self.client.get_parameter().name(name).with_decryption(true).send().await {
            Ok(output) => {
                let Some(parameter) = output.parameter else { return Ok(SecretParameter::Missing) };
                let sealed = parameter.r#type == Some(ParameterType::SecureString);
                // Taken at once, so that it is wiped; the SDK's own copies of the answer are not.
                let value = Secret::new(parameter.value.unwrap_or_default().into_bytes());
                Ok(if sealed { SecretParameter::Secret(value) } else { SecretParameter::Plain })
            }
            Err(error) if matches!(code(&error), "ParameterNotFound" | "ParameterVersionNotFound") => {
                Ok(SecretParameter::Missing)
            }
            Err(error) => Err(port_error("ssm:GetParameter", name, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::Server;

    #[tokio::test]
    async fn a_parameter_has_a_value_or_is_not_there() {
        let server = Server::new(&[
            (200, r#"{"Parameter":{"Name":"/a","Value":"ami-1","Type":"String"}}"#),
            (400, r#"{"__type":"ParameterNotFound"}"#),
            (200, r#"{"Parameter":{"Name":"/c","Value":"sealed","Type":"SecureString"}}"#),
        ]);
        let parameters = server.aws().parameters();
        assert_eq!(parameters.value("/a").await.unwrap().as_deref(), Some("ami-1"));
        assert_eq!(parameters.value("/b").await.unwrap(), None);
        assert_eq!(
            parameters.value("/c").await.unwrap(),
            None,
            "a passphrase named as an image is not an image"
        );
    }

    #[tokio::test]
    async fn p9_a_secret_is_a_secure_string_or_none_and_is_never_printed() {
        let server = Server::new(&[
            (200, r#"{"Parameter":{"Name":"/a","Value":"hunter2","Type":"SecureString"}}"#),
            (200, r#"{"Parameter":{"Name":"/b","Value":"hunter2","Type":"String"}}"#),
            (400, r#"{"__type":"ParameterNotFound"}"#),
        ]);
        let parameters = server.aws().parameters();
        let secret = parameters.secret("/a").await.unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
        let SecretParameter::Secret(secret) = secret else { panic!("{secret:?}") };
        assert_eq!(secret.expose(), b"hunter2");
        assert!(matches!(parameters.secret("/b").await.unwrap(), SecretParameter::Plain));
        assert!(matches!(parameters.secret("/c").await.unwrap(), SecretParameter::Missing));
    }
}
