//! SSM's Parameter Store.

use slipway_driver::ports::{Parameters, PortResult};

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
        match self.client.get_parameter().name(name).with_decryption(true).send().await {
            Ok(output) => Ok(output.parameter.and_then(|parameter| parameter.value)),
            Err(error) if matches!(code(&error), "ParameterNotFound" | "ParameterVersionNotFound") => {
                Ok(None)
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
        ]);
        let parameters = server.aws().parameters();
        assert_eq!(parameters.value("/a").await.unwrap().as_deref(), Some("ami-1"));
        assert_eq!(parameters.value("/b").await.unwrap(), None);
    }
}
