//! A server that answers with what it was told to, so that the SDKs' own parsing is part of the tests.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::config::{Credentials, SharedCredentialsProvider};

use crate::Aws;

/// One answer: HTTP status and body.
pub(crate) type Answer = (u16, &'static str);

/// A request as it came: its first line, its headers, its body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and target.
    pub(crate) line: String,
    /// `name: value`, names in lower case.
    pub(crate) headers: Vec<String>,
    /// As text.
    pub(crate) body: String,
}

/// A server on loopback with its answers, one a request, in order.
pub(crate) struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Serves `answers`; the process's end ends it.
    pub(crate) fn new(answers: &[Answer]) -> Self {
        Self::serving(answers, 0)
    }

    /// Serves one answer that breaks off before its end.
    pub(crate) fn that_breaks_off(answer: Answer) -> Self {
        Self::serving(&[answer], 100)
    }

    /// Serves `answers`, of each of which that many bytes are missing.
    fn serving(answers: &[Answer], missing: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answers) = (Arc::clone(&requests), answers.to_vec());
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read(&mut BufReader::new(&stream));
                let is_head = request.line.starts_with("HEAD");
                seen.lock().unwrap().push(request);
                let head = format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\nx-amzn-requestid: req-1\r\netag: \"e1\"\r\nx-amz-version-id: v1\r\ncontent-length: {}\r\n\r\n",
                    body.len() + missing
                );
                stream.write_all(head.as_bytes()).unwrap();
                if !is_head {
                    stream.write_all(body.as_bytes()).unwrap();
                }
            }
        });
        Self { url, requests }
    }

    /// Clients that speak to this server alone, and try once.
    pub(crate) fn aws(&self) -> Aws {
        self.aws_in("eu-west-1")
    }

    /// The same, of another region.
    pub(crate) fn aws_in(&self, region: &'static str) -> Aws {
        self.aws_with(region, RetryConfig::disabled())
    }

    /// Clients that try again as the SDK does by itself.
    pub(crate) fn aws_that_retries(&self) -> Aws {
        self.aws_with("eu-west-1", RetryConfig::standard())
    }

    fn aws_with(&self, region: &'static str, retries: RetryConfig) -> Aws {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(&self.url)
            .http_client(http)
            .retry_config(retries)
            .build();
        Aws::new(config).unwrap()
    }

    /// What was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(reader: &mut impl BufRead) -> Request {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        let (name, value) = header.trim().split_once(':').unwrap();
        headers.push(format!("{}: {}", name.to_ascii_lowercase(), value.trim()));
    }
    let length = headers
        .iter()
        .find_map(|header| header.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Request { line: line.trim().to_owned(), headers, body: String::from_utf8(body).unwrap() }
}
