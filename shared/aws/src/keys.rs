//! KMS: data keys under an encryption context.

use aws_sdk_kms::primitives::Blob;
use aws_sdk_kms::types::DataKeySpec;
use slipway_ports::{Context, DataKey, ErrorKind, Keys, PortError, PortResult, Secret};

use crate::error::port_error;

/// KMS.
#[derive(Debug, Clone)]
pub struct KmsKeys {
    client: aws_sdk_kms::Client,
    own: String,
}

impl KmsKeys {
    pub(crate) fn new(client: aws_sdk_kms::Client, own: String) -> Self {
        Self { client, own }
    }
}

/// The plain text of an answer, moved into a [`Secret`] without a copy being left behind.
fn secret(operation: &'static str, subject: &str, plain: Option<Blob>) -> PortResult<Secret> {
    plain.map(|plain| Secret::new(plain.into_inner())).ok_or_else(|| PortError {
        kind: ErrorKind::Transient,
        operation,
        subject: subject.to_owned(),
        message: "the answer holds no key".to_owned(),
    })
}

impl Keys for KmsKeys {
    fn name(&self, arn: Option<&str>) -> String {
        arn.unwrap_or(&self.own).to_owned()
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        const OPERATION: &str = "kms:GenerateDataKey";
        let key = arn.unwrap_or(&self.own);
        let output = self
            .client
            .generate_data_key()
            .key_id(key)
            .key_spec(DataKeySpec::Aes256)
            .set_encryption_context(Some(context.clone().into_iter().collect()))
            .send()
            .await
            .map_err(|error| port_error(OPERATION, key, &error))?;
        let wrapped = output.ciphertext_blob.map(Blob::into_inner).unwrap_or_default();
        let plain = secret(OPERATION, key, output.plaintext)?;
        Ok(DataKey { wrapped_by: key.to_owned(), plain, wrapped })
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        const OPERATION: &str = "kms:Decrypt";
        // The wrapped key names the key that wrapped it, Slipway's or a cluster's own; IAM says which may be used.
        let subject = format!("the data key of {context:?}");
        let output = self
            .client
            .decrypt()
            .ciphertext_blob(Blob::new(wrapped))
            .set_encryption_context(Some(context.clone().into_iter().collect()))
            .send()
            .await
            .map_err(|error| port_error(OPERATION, subject.clone(), &error))?;
        secret(OPERATION, &subject, output.plaintext)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::Server;

    fn context() -> Context {
        [("cluster", "a"), ("role", "etcd-0")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[tokio::test]
    async fn a_data_key_is_made_under_its_context_by_the_key_that_the_cluster_names() {
        let answer = r#"{"CiphertextBlob":"d3JhcHBlZA==","Plaintext":"cGxhaW4=","KeyId":"k"}"#;
        let server = Server::new(&[(200, answer), (200, answer)]);
        let keys = server.aws().keys("arn:own");
        let key = keys.generate(None, &context()).await.unwrap();
        assert_eq!(
            (key.plain.expose(), key.wrapped.as_slice()),
            (b"plain".as_slice(), b"wrapped".as_slice())
        );
        keys.generate(Some("arn:theirs"), &context()).await.unwrap();

        let requests = server.requests();
        assert!(requests[0].body.contains(r#""KeyId":"arn:own""#), "{}", requests[0].body);
        assert!(requests[0].body.contains("AES_256"), "{}", requests[0].body);
        assert!(requests[0].body.contains(r#""cluster":"a""#), "{}", requests[0].body);
        assert!(requests[0].body.contains(r#""role":"etcd-0""#), "{}", requests[0].body);
        assert!(requests[1].body.contains(r#""KeyId":"arn:theirs""#), "{}", requests[1].body);
    }

    #[tokio::test]
    async fn what_kms_refuses_says_what_to_do_about_it() {
        let server = Server::new(&[
            (400, r#"{"__type":"AccessDeniedException","message":"not authorized"}"#),
            (400, r#"{"__type":"InvalidCiphertextException"}"#),
            (400, r#"{"__type":"NotFoundException","message":"no such key"}"#),
            (400, r#"{"__type":"ThrottlingException","message":"slow down"}"#),
            (400, r#"{"__type":"DisabledException","message":"is disabled"}"#),
        ]);
        let keys = server.aws().keys("arn:own");
        let denied = keys.generate(None, &context()).await.unwrap_err();
        assert_eq!(denied.kind, ErrorKind::Denied);
        assert_eq!(denied.subject, "arn:own");
        // Another context than the one that it was made under.
        assert_eq!(keys.unwrap(b"w", &context()).await.unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(keys.generate(None, &context()).await.unwrap_err().kind, ErrorKind::Missing);
        assert_eq!(keys.generate(None, &context()).await.unwrap_err().kind, ErrorKind::Transient);
        assert_eq!(keys.generate(None, &context()).await.unwrap_err().kind, ErrorKind::Denied);
    }

    #[tokio::test]
    async fn p9_a_key_is_never_printed() {
        let server = Server::new(&[(200, r#"{"Plaintext":"cGxhaW4=","KeyId":"k"}"#)]);
        let key = server.aws().keys("arn:own").unwrap(b"w", &context()).await.unwrap();
        assert_eq!(key.expose(), b"plain");
        assert_eq!(format!("{key:?}"), "Secret(…)");
    }
}
