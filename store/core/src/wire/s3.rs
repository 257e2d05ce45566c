//! `/v1/s3/credentials`: a lease's credentials for the S3 front end.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Resource, Token};

/// Body of `POST /v1/s3/credentials`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct S3CredentialsRequest {
    /// What may be written with them: the resource whose lock the token is of.
    pub resource: Resource,
    /// How many seconds they last; as long as the gateway allows if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = super::schema::ttl_s))]
    pub ttl_s: Option<u64>,
}

/// Answer of `POST /v1/s3/credentials`. Shown without its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct S3CredentialsAnswer {
    /// Carries resource, token and expiry, signed by the gateway.
    pub access_key_id: String,
    /// Signs requests.
    pub secret_access_key: String,
    /// When they end by the gateway's clock, RFC 3339. Get new ones for the same token before.
    pub expiration: String,
    /// The URL of the S3 front end.
    pub endpoint: String,
    /// What may be written with them.
    pub resource: Resource,
    /// The token that goes with every write.
    pub token: Token,
}

impl fmt::Debug for S3CredentialsAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3CredentialsAnswer")
            .field("access_key_id", &self.access_key_id)
            .field("expiration", &self.expiration)
            .field("endpoint", &self.endpoint)
            .field("resource", &self.resource)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let body: S3CredentialsRequest =
            serde_json::from_str(r#"{"resource": "reports/daily", "ttl_s": 3600}"#).unwrap();
        assert_eq!((body.resource.as_str(), body.ttl_s), ("reports/daily", Some(3600)));
        assert_eq!(
            serde_json::to_string(&S3CredentialsRequest { ttl_s: None, ..body }).unwrap(),
            r#"{"resource":"reports/daily"}"#
        );
        for bad in
            [r#"{}"#, r#"{"resource": "a", "ttl": 1}"#, r#"{"resource": "a//b"}"#, r#"{"resource": "a", "ttl_s": -1}"#]
        {
            assert!(serde_json::from_str::<S3CredentialsRequest>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let answer = S3CredentialsAnswer {
            access_key_id: "FPA".into(),
            secret_access_key: "hidden".into(),
            expiration: "2026-01-01T00:00:00.000Z".into(),
            endpoint: "http://127.0.0.1:1".into(),
            resource: Resource::new("a").unwrap(),
            token: "34".parse().unwrap(),
        };
        let shown = format!("{answer:?}");
        assert!(shown.contains("FPA") && !shown.contains("hidden"), "{shown}");
    }
}
