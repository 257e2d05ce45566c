//! A client of the S3 front end whose requests are signed by hand, so that a test decides which bytes are sent, and
//! when.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use data_encoding::BASE64;
use fencepost_core::Timestamp;
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::sigv4::{Presigner, SigningKey, UNSIGNED, amz_date};
use md5::{Digest, Md5};

use super::parsing::{element, elements, plain};

/// A client with a key pair.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) address: SocketAddr,
    pub(crate) credentials: Credentials,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) etag: String,
    pub(crate) size: usize,
}

impl Signer {
    /// A holder of this token. Issuing the credentials claims it.
    pub(crate) fn holder(gateway: &Bucketed, resource: &str, token: &str) -> Signer {
        Signer { address: gateway.s3(), credentials: gateway.credentials(resource, token) }
    }

    /// A client with the long-term key, without a token.
    pub(crate) fn reader(gateway: &Bucketed) -> Signer {
        Signer { address: gateway.s3(), credentials: Credentials::reader() }
    }

    /// The head of a request. `target` is sent unchanged; its query must already be percent-encoded.
    pub(crate) fn head(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> String {
        self.head_without(method, target, headers, &[])
    }

    /// The same, with some headers sent but not signed. A `date` among the headers replaces the usual date header.
    pub(crate) fn head_without(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        unsigned: &[&str],
    ) -> String {
        let (date, host) = (amz_date(Timestamp::now()), self.address.to_string());
        let mut sent: Vec<(String, &str)> =
            headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), *value)).collect();
        let has = |sent: &[(String, &str)], wanted: &str| sent.iter().any(|(name, _)| name == wanted);
        if !has(&sent, "host") {
            sent.push(("host".to_owned(), host.as_str()));
        }
        if !has(&sent, "date") {
            sent.push(("x-amz-date".to_owned(), date.as_str()));
        }
        if !has(&sent, "x-amz-content-sha256") {
            sent.push(("x-amz-content-sha256".to_owned(), UNSIGNED));
        }
        let signed: Vec<(&str, &str)> = sent
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .filter(|(name, _)| !unsigned.contains(name))
            .collect();
        let authorization = SigningKey::new(&self.credentials, &date).authorization(method, target, &signed);
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        for (name, value) in &sent {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("authorization: {authorization}\r\n\r\n"));
        head
    }

    /// A presigned target, valid for this many seconds.
    pub(crate) fn presigned(&self, method: &str, path: &str, seconds: u32) -> String {
        let key = SigningKey::new(&self.credentials, &amz_date(Timestamp::now()));
        Presigner::new(key, &self.address.to_string(), seconds).target(method, path)
    }

    /// The signature of a text at this date.
    pub(crate) fn sign(&self, algorithm: &str, date: &str, text: &str) -> String {
        SigningKey::new(&self.credentials, date).sign(algorithm, text)
    }

    /// Connects and sends the head of a request with a body of this length, but no part of the body.
    pub(crate) fn begin(&self, method: &str, target: &str, headers: &[(&str, &str)], length: usize) -> Client {
        let length = length.to_string();
        let mut client = Client::connect(&self.address.to_string());
        let headers = [headers, &[("content-length", &length)]].concat();
        client.send(self.head(method, target, &headers).as_bytes()).expect("an open connection takes a head");
        client
    }

    /// Sends a request on a connection of its own. `Err`: the connection broke before the answer.
    pub(crate) fn try_request(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let length = body.len().to_string();
        let mut client = Client::try_connect(&self.address.to_string())?;
        let sized: &[(&str, &str)] = match method {
            "PUT" | "POST" => &[("content-length", &length)],
            _ => &[],
        };
        client.send(self.head(method, target, &[headers, sized].concat()).as_bytes())?;
        // A request that is refused early may find the connection closed after the answer.
        let sent = client.send(body);
        let answer = client.receive_after(method);
        if answer.is_err() {
            sent?;
        }
        answer
    }

    pub(crate) fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let answer = self.try_request(method, target, headers, body);
        answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    pub(crate) fn put(&self, name: &str, body: &[u8]) -> Answer {
        self.request("PUT", &format!("/{name}"), &[], body)
    }

    pub(crate) fn get(&self, name: &str) -> Answer {
        self.request("GET", &format!("/{name}"), &[], b"")
    }

    pub(crate) fn delete(&self, name: &str) -> Answer {
        self.request("DELETE", &format!("/{name}"), &[], b"")
    }

    /// The body of a request that removes several objects of a bucket.
    pub(crate) fn deletion(keys: &[&str]) -> String {
        let objects: String = keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
        format!("<Delete>{objects}</Delete>")
    }

    /// Removes several objects of a bucket.
    pub(crate) fn delete_all(&self, bucket: &str, keys: &[&str]) -> Answer {
        let body = Signer::deletion(keys);
        let md5 = BASE64.encode(&Md5::digest(&body));
        self.request("POST", &format!("/{bucket}?delete="), &[("content-md5", &md5)], body.as_bytes())
    }

    /// Every object of a bucket, page by page.
    pub(crate) fn list(&self, bucket: &str, page: usize) -> Vec<Entry> {
        let (mut entries, mut token) = (Vec::new(), None::<String>);
        loop {
            let next = token.map(|token| format!("continuation-token={token}&")).unwrap_or_default();
            let answer = self.request("GET", &format!("/{bucket}?{next}list-type=2&max-keys={page}"), &[], b"");
            assert_eq!(answer.status, 200, "{}", answer.text());
            let text = answer.text();
            entries.extend(elements(&text, "Contents").into_iter().map(entry));
            token = element(&text, "NextContinuationToken");
            if token.is_none() {
                return entries;
            }
        }
    }

    /// Begins a multipart upload and returns its id.
    pub(crate) fn begin_upload(&self, name: &str) -> String {
        let answer = self.request("POST", &format!("/{name}?uploads="), &[], b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        element(&answer.text(), "UploadId").expect("a new upload has an id")
    }

    pub(crate) fn put_part(&self, name: &str, upload: &str, number: u16, body: &[u8]) -> Answer {
        self.request("PUT", &format!("/{name}?partNumber={number}&uploadId={upload}"), &[], body)
    }

    /// The body of a request that completes an upload of parts with these ETags.
    pub(crate) fn completion(etags: &[String]) -> String {
        let part = |(at, etag): (usize, &String)| {
            format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", at + 1)
        };
        let parts: String = etags.iter().enumerate().map(part).collect();
        format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
    }

    /// Completes an upload of parts with these ETags. `Err`: the connection broke.
    pub(crate) fn try_complete(&self, name: &str, upload: &str, etags: &[String]) -> std::io::Result<Answer> {
        let body = Signer::completion(etags);
        self.try_request("POST", &format!("/{name}?uploadId={upload}"), &[], body.as_bytes())
    }

    pub(crate) fn complete(&self, name: &str, upload: &str, etags: &[String]) -> Answer {
        self.try_complete(name, upload, etags).unwrap_or_else(|error| panic!("completing {name}: {error}"))
    }
}

fn entry(text: &str) -> Entry {
    let member = |name: &str| element(text, name).unwrap_or_else(|| panic!("{name} in {text}"));
    Entry {
        key: plain(&member("Key")),
        etag: plain(&member("ETag")).trim_matches('"').to_owned(),
        size: member("Size").parse().expect("a size is a number"),
    }
}

/// The current time in the HTTP format, such as `Mon, 16 Nov 2026 15:29:17 GMT`.
pub(crate) fn http_date() -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(Timestamp::now().0))
}
