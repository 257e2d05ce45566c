//! Settings of the S3 front end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use hyper::Uri;
use serde::Deserialize;

use super::ConfigError;
use crate::credentials::keyring::{Keyring, LongTermKey, LongTermKeyError, Secret};
use crate::credentials::mac_keys::{MacKey, MacKeyError, MacKeys};
use crate::credentials::secret_file;
use crate::quantity::Span;
use crate::s3::options::Read;

/// The shortest and the longest limit for the lifetime of credentials. The longest is a week, as for presigned URLs.
const CREDENTIALS_TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(7 * 24 * 3600));

/// The shortest time that unfinished uploads can be kept.
const LEAST_RETENTION: Duration = Duration::from_secs(1);

/// Settings of the S3 front end.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// Address and objects of the front end, if there is one.
    pub front_end: Option<S3FrontEnd>,
    /// The URL that clients are given, if it is not the listener's own.
    pub endpoint: Option<String>,
    /// Whether clients may create and remove buckets.
    pub create_buckets: bool,
    /// Whether it may listen beyond loopback although nothing is encrypted.
    pub insecure_plaintext: bool,
    /// What the credentials of a lease may read.
    pub read: Read,
    /// How long unfinished uploads of a holder that was fenced off are kept.
    pub upload_retention: Duration,
    /// How long lease credentials last at the most.
    pub credentials_max_ttl: Duration,
    /// The keys that sign lease credentials; `None`: the gateway's own.
    pub mac_keys: Option<MacKeys>,
    /// Long-term keys, which carry no lease.
    pub keys: Vec<LongTermKey>,
}

/// An S3 front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3FrontEnd {
    /// The address of its listener.
    pub listen: String,
    /// The storage of its objects.
    pub objects: Objects,
}

/// A storage of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objects {
    /// In a directory: a bucket is a directory in it, an object a file of its own name.
    Directory(PathBuf),
}

impl FromStr for Objects {
    type Err = String;

    fn from_str(text: &str) -> Result<Objects, String> {
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Objects::Directory(path.into())),
            Some(("dir", _)) => Err("`dir:` names no directory: write dir:PATH".to_owned()),
            _ => Err(format!("`{text}` is no place for objects: write dir:PATH")),
        }
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objects::Directory(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

/// Why the settings of the S3 front end cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum S3SettingsError {
    /// An address without a storage of objects, or the reverse.
    #[error("the S3 front end needs an address and a place for objects: give {0} too, or leave both out")]
    Half(&'static str),
    /// The storage of objects is not valid.
    #[error("objects: {0}")]
    Objects(String),
    /// The endpoint is not a URL that clients could use.
    #[error("the endpoint `{0}` is not a URL without a path: write it like http://files.example:9000")]
    Endpoint(String),
    /// A MAC key is wrong.
    #[error(transparent)]
    MacKeys(#[from] MacKeyError),
    /// A long-term key is wrong.
    #[error(transparent)]
    Key(#[from] LongTermKeyError),
    /// A long-term key must name exactly one secret.
    #[error("the key `{0}` needs its secret: give either secret_access_key or secret_access_key_file")]
    NoSecret(String),
}

/// The settings of the S3 front end as flags and environment variables.
#[derive(Args, Clone, Debug, Default)]
pub struct S3Flags {
    /// Address of the S3 front end; port 0 picks a free one. Needs --objects [default: no S3 front end]
    #[arg(long, value_name = "ADDRESS", env = "FENCEPOST_S3_LISTEN")]
    pub s3_listen: Option<String>,
    /// Where the S3 front end keeps objects: dir:PATH, with a directory for each bucket. Needs --s3-listen
    #[arg(long, value_name = "dir:PATH", env = "FENCEPOST_OBJECTS")]
    pub objects: Option<Objects>,
    /// URL of the S3 front end that clients are told [default: http:// and the address it listens on]
    #[arg(long, value_name = "URL", env = "FENCEPOST_S3_ENDPOINT")]
    pub s3_endpoint: Option<String>,
    /// Let S3 clients make and remove buckets
    #[arg(
        long,
        value_name = "BOOL",
        env = "FENCEPOST_S3_CREATE_BUCKETS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub s3_create_buckets: Option<bool>,
    /// Let the S3 listener be reached from other machines without encryption; bodies and headers must be signed then
    #[arg(
        long,
        value_name = "BOOL",
        env = "FENCEPOST_S3_INSECURE_PLAINTEXT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub s3_insecure_plaintext: Option<bool>,
    /// What the credentials of a lease may read: every bucket, or what its own resource protects [default: all]
    #[arg(long, value_name = "WHAT", env = "FENCEPOST_S3_READ")]
    pub s3_read: Option<Read>,
    /// How long unfinished uploads of a holder that was fenced off are kept [default: 168h]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_S3_UPLOAD_RETENTION")]
    pub s3_upload_retention: Option<Span>,
    /// How long S3 credentials of a lease last at the most [default: 12h]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_S3_CREDENTIALS_MAX_TTL")]
    pub s3_credentials_max_ttl: Option<Span>,
}

/// `[s3]` in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileS3 {
    listen: Option<String>,
    objects: Option<String>,
    endpoint: Option<String>,
    create_buckets: Option<bool>,
    insecure_plaintext: Option<bool>,
    read: Option<Read>,
    upload_retention: Option<Span>,
    credentials_max_ttl: Option<Span>,
    mac_keys: Option<Vec<FileMacKey>>,
    #[serde(default)]
    key: Vec<FileKey>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMacKey {
    id: u8,
    key_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKey {
    access_key_id: String,
    secret_access_key: Option<Secret>,
    secret_access_key_file: Option<PathBuf>,
}

impl FileS3 {
    /// Whether the file itself holds a secret.
    pub(super) fn holds_a_secret(&self) -> bool {
        self.key.iter().any(|key| key.secret_access_key.is_some())
    }
}

impl FileKey {
    fn read(self) -> Result<LongTermKey, S3SettingsError> {
        let secret = match (self.secret_access_key, self.secret_access_key_file) {
            (Some(secret), None) => secret,
            (None, Some(path)) => {
                let text = secret_file::read(&path).map_err(MacKeyError::File)?;
                Secret::new(text.trim_ascii().to_owned())
            }
            (None, None) | (Some(_), Some(_)) => return Err(S3SettingsError::NoSecret(self.access_key_id)),
        };
        Ok(LongTermKey::new(self.access_key_id, secret)?)
    }
}

impl S3Settings {
    /// Merges flags, file and defaults. Files of secrets are read here, so that a wrong one is reported at once.
    pub(super) fn merge(flags: &S3Flags, file: FileS3) -> Result<S3Settings, ConfigError> {
        let objects = match (&flags.objects, file.objects) {
            (Some(objects), _) => Some(objects.clone()),
            (None, Some(text)) => Some(text.parse().map_err(S3SettingsError::Objects)?),
            (None, None) => None,
        };
        let front_end = match (flags.s3_listen.clone().or(file.listen), objects) {
            (Some(listen), Some(objects)) => Some(S3FrontEnd { listen, objects }),
            (None, None) => None,
            (Some(_), None) => return Err(S3SettingsError::Half("--objects (objects in [s3])").into()),
            (None, Some(_)) => return Err(S3SettingsError::Half("--s3-listen (listen in [s3])").into()),
        };
        let endpoint = flags.s3_endpoint.clone().or(file.endpoint).map(endpoint).transpose()?;
        let ttl = flags.s3_credentials_max_ttl.or(file.credentials_max_ttl);
        let credentials_max_ttl = ttl.map_or(Duration::from_secs(12 * 3600), |ttl| ttl.0);
        let (least, most) = CREDENTIALS_TTL;
        if credentials_max_ttl < least {
            return Err(ConfigError::Brief("credentials_max_ttl", Span(least)));
        }
        if credentials_max_ttl > most {
            return Err(ConfigError::Long("credentials_max_ttl", Span(most)));
        }
        let mac_keys = file.mac_keys.map(mac_keys).transpose()?;
        let keys: Vec<LongTermKey> = file.key.into_iter().map(FileKey::read).collect::<Result<_, _>>()?;
        LongTermKey::all_different(&keys).map_err(S3SettingsError::Key)?;
        let create_buckets = flags.s3_create_buckets.or(file.create_buckets).unwrap_or(false);
        let insecure_plaintext = flags.s3_insecure_plaintext.or(file.insecure_plaintext).unwrap_or(false);
        let read = flags.s3_read.or(file.read).unwrap_or_default();
        let retention = flags.s3_upload_retention.or(file.upload_retention);
        let upload_retention = retention.map_or(Duration::from_secs(7 * 24 * 3600), |retention| retention.0);
        if upload_retention < LEAST_RETENTION {
            return Err(ConfigError::Brief("upload_retention", Span(LEAST_RETENTION)));
        }
        Ok(S3Settings {
            front_end,
            endpoint,
            create_buckets,
            insecure_plaintext,
            read,
            upload_retention,
            credentials_max_ttl,
            mac_keys,
            keys,
        })
    }

    /// The keys of the front end. Without configured MAC keys, the gateway's own is made in its data directory.
    pub fn keyring(&self, data: &Path) -> Result<Keyring, MacKeyError> {
        let mac = match &self.mac_keys {
            Some(configured) => configured.clone(),
            None => MacKeys::own(data)?,
        };
        Ok(Keyring::new(mac, self.keys.clone()))
    }
}

fn mac_keys(keys: Vec<FileMacKey>) -> Result<MacKeys, S3SettingsError> {
    let keys: Result<_, _> = keys.into_iter().map(|key| MacKey::from_file(key.id, &key.key_file)).collect();
    Ok(MacKeys::new(keys?)?)
}

/// Refuses a URL with a path: clients would sign it in one way, and the gateway would interpret it in another.
fn endpoint(text: String) -> Result<String, S3SettingsError> {
    let uri: Option<Uri> = text.parse().ok();
    let usable = |uri: &Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
            && uri.path() == "/"
            && uri.query().is_none()
    };
    match uri.filter(usable) {
        Some(_) => Ok(text.trim_end_matches('/').to_owned()),
        None => Err(S3SettingsError::Endpoint(text)),
    }
}

impl fmt::Display for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listen, objects) = match &self.front_end {
            Some(S3FrontEnd { listen, objects }) => (listen.clone(), objects.to_string()),
            None => ("off".to_owned(), "off".to_owned()),
        };
        writeln!(f, "s3.listen        {listen}")?;
        writeln!(f, "s3.objects       {objects}")?;
        writeln!(f, "s3.endpoint      {}", self.endpoint.as_deref().unwrap_or("listener"))?;
        writeln!(f, "s3.create_buckets {}", self.create_buckets)?;
        writeln!(f, "s3.insecure_plaintext {}", self.insecure_plaintext)?;
        writeln!(f, "s3.read          {}", self.read)?;
        writeln!(f, "s3.upload_retention {}", Span(self.upload_retention))?;
        writeln!(f, "s3.credentials_max_ttl {}", Span(self.credentials_max_ttl))?;
        writeln!(f, "s3.mac_keys      {}", self.mac_keys.as_ref().map_or("own".to_owned(), MacKeys::to_string))?;
        writeln!(f, "s3.key           {}", LongTermKey::list(&self.keys))
    }
}
