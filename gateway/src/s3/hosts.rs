//! Checks which server a request is for. Buckets are in the path here. If a client puts the bucket in the host name
//! (virtual-hosted style), the first part of its key would be mistaken for a bucket.

use std::net::{IpAddr, Ipv6Addr};

use hyper::Uri;
use hyper::header::HOST;
use hyper::http::request::Parts;
use s3s::{S3Result, s3_error};

/// The host names of this gateway.
pub(super) struct Hosts {
    endpoint: String,
    /// The host of the endpoint.
    name: String,
    others: Others,
}

/// How requests for other host names are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// They are refused: the endpoint was configured, so they are meant for another server.
    Refused,
    /// They are accepted: the endpoint is only the listener's address, which may have names.
    Taken,
}

impl Hosts {
    pub(super) fn new(endpoint: &str, others: Others) -> Hosts {
        let uri: Option<Uri> = endpoint.parse().ok();
        let authority = uri.as_ref().and_then(Uri::authority).map_or("", |authority| authority.as_str());
        Hosts { endpoint: endpoint.to_owned(), name: without_port(authority), others }
    }

    /// Refuses a request for a virtual-hosted bucket, or for another server.
    pub(super) fn check(&self, head: &Parts) -> S3Result<()> {
        let mut found = head.headers.get_all(HOST).iter();
        let host = match (found.next(), found.next(), head.uri.authority()) {
            (None, _, None) => return Ok(()),
            (None, _, Some(authority)) => without_port(authority.as_str()),
            (Some(host), None, _) => without_port(host.to_str().unwrap_or_default()),
            (Some(_), Some(_), _) => return Err(s3_error!(InvalidRequest, "The header Host is there twice.")),
        };
        let below = |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
        let is_address = host.parse::<IpAddr>().is_ok() || is_ipv6(&host);
        let is_own = is_address || host == self.name || host == "localhost";
        let is_below = below(&self.name) || below("localhost");
        if is_own || (self.others == Others::Taken && !is_below) {
            return Ok(());
        }
        let shown: String = host.chars().take(100).flat_map(char::escape_debug).collect();
        Err(s3_error!(
            InvalidRequest,
            "`{shown}` is not this gateway's host, which is {0}. Buckets are in the path here: use path style, \
             {0}/bucket/key (boto3: Config(s3={{\"addressing_style\": \"path\"}}); other SDKs: forcePathStyle).",
            self.endpoint
        ))
    }
}

fn is_ipv6(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// A host in lower case, without the port and the trailing dot.
fn without_port(authority: &str) -> String {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.is_empty() => host,
        _ => authority,
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(hosts: &Hosts, host: &str) -> bool {
        let request = hyper::Request::builder().uri("/other/file").header(HOST, host).body(()).unwrap();
        hosts.check(&request.into_parts().0).is_ok()
    }

    #[test]
    fn b06_a_host_that_names_a_bucket_is_refused() {
        let given = Hosts::new("http://files.example:9000", Others::Refused);
        for own in
            ["files.example:9000", "FILES.example", "files.example.:1", "127.0.0.1:9000", "[::1]:9000", "localhost"]
        {
            assert!(passes(&given, own), "{own}");
        }
        for other in ["bkt.files.example:9000", "files.example.evil", "notfiles.example", "bkt.localhost:9000", ""] {
            assert!(!passes(&given, other), "{other}");
        }
        let own = Hosts::new("http://127.0.0.1:9000", Others::Taken);
        assert!(passes(&own, "storage.local:9000") && passes(&own, "[::ffff:127.0.0.1]:9000"));
        assert!(!passes(&own, "bkt.127.0.0.1:9000") && !passes(&own, "bkt.localhost"));
    }
}
