//! KMS behind the port `Keys`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_ports::{Context, DataKey, ErrorKind, Keys, PortResult, Secret};
use zeroize::Zeroizing;

use super::endpoints::Service;
use super::error::port_error;
use super::{Aws, Body, Call};

/// Data keys with the node's role: it may decrypt what was sealed for it. If `own` names a key, data keys are generated and unwrapped under this
/// one alone.
#[derive(Debug, Clone)]
pub struct NodeKeys {
    aws: Aws,
    own: Option<String>,
}

impl Aws {
    /// KMS. `own` is the ARN of the only key that is used. `None`: nothing is generated, and KMS finds the key that wrapped a data key.
    #[must_use]
    pub fn keys(&self, own: Option<String>) -> NodeKeys {
        NodeKeys { aws: self.clone(), own }
    }
}

/// The fields of an answer. The plain key is borrowed from the text, which is wiped.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer<'a> {
    plaintext: &'a str,
    #[serde(default)]
    ciphertext_blob: String,
    #[serde(default)]
    key_id: String,
}

/// A data key: plain, wrapped, and the ARN of the key that wrapped it.
struct PlainAndWrapped {
    plain: Secret,
    wrapped: String,
    key_id: String,
}

impl NodeKeys {
    async fn call(
        &self,
        operation: &'static str,
        subject: &str,
        request: &Value,
    ) -> PortResult<PlainAndWrapped> {
        let target = operation.replace("kms:", "TrentService.");
        let body = request.to_string();
        let call = Call {
            headers: vec![
                ("content-type", "application/x-amz-json-1.1".to_owned()),
                ("x-amz-target", target),
            ],
            body: Body::Bytes(body.as_bytes()),
            ..Call::new(operation, subject, Service::Kms, format!("{}/", self.aws.base(Service::Kms)))
        };
        let text = Zeroizing::new(self.aws.text(&call).await?);
        // A parser's error may quote the text.
        let unread = || port_error(operation, subject, ErrorKind::Transient, "the answer holds no key");
        let answer: Answer<'_> = serde_json::from_str(&text).map_err(|_| unread())?;
        let plain = STANDARD.decode(answer.plaintext).map_err(|_| unread())?;
        Ok(PlainAndWrapped {
            plain: Secret::new(plain),
            wrapped: answer.ciphertext_blob,
            key_id: answer.key_id,
        })
    }
}

impl Keys for NodeKeys {
    fn name(&self, arn: Option<&str>) -> String {
        arn.or(self.own.as_deref()).unwrap_or_default().to_owned()
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        const OPERATION: &str = "kms:GenerateDataKey";
        let key = self.name(arn);
        if key.is_empty() {
            let message = "no KMS key is configured on this node, so no data key can be generated";
            return Err(port_error(OPERATION, "a data key", ErrorKind::Invalid, message));
        }
        let request = json!({ "KeyId": key, "KeySpec": "AES_256", "EncryptionContext": context });
        let PlainAndWrapped { plain, wrapped, key_id } = self.call(OPERATION, &key, &request).await?;
        let wrapped = STANDARD.decode(&wrapped).unwrap_or_default();
        if wrapped.is_empty() {
            return Err(port_error(OPERATION, &key, ErrorKind::Transient, "the answer holds no wrapped key"));
        }
        // KMS answers with the ARN that an alias stands for.
        let wrapped_by = if key_id.is_empty() { key } else { key_id };
        Ok(DataKey { wrapped_by, plain, wrapped })
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        let subject = format!("the data key of {context:?}");
        let mut request = json!({ "CiphertextBlob": STANDARD.encode(wrapped), "EncryptionContext": context });
        // "AWS KMS throws an IncorrectKeyException" if another one wrapped it (Decrypt, KMS API reference).
        if let Some(own) = &self.own {
            request["KeyId"] = json!(own);
        }
        Ok(self.call("kms:Decrypt", &subject, &request).await?.plain)
    }
}
