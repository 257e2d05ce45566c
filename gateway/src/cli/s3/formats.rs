//! Credentials in the forms that S3 clients read.

use clap::ValueEnum;
use fencepost_core::wire::S3CredentialsAnswer;
use fencepost_core::{Holder, Issuer, Presented};
use serde_json::{Value, json};

use crate::cli::exit::Failed;

/// The region for clients that need one; the gateway accepts any.
pub(in crate::cli) const REGION: &str = "us-east-1";

/// Variables that would make a client use other credentials, or another endpoint, than the ones it is given.
pub(in crate::cli) const AWS_UNSET: [&str; 7] = [
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Lines for `eval` in a shell: AWS_* and FENCEPOST_* variables
    Env,
    /// Everything, as one JSON object
    Json,
    /// What `credential_process` in an AWS configuration file prints; for a token that you have already
    CredentialProcess,
    /// A section `[fencepost]` for a configuration file of rclone
    Rclone,
}

/// Issued credentials, with the token and the lease behind them.
pub(super) struct Given {
    pub(super) issued: S3CredentialsAnswer,
    pub(super) presented: Presented,
    /// The lease of a lock that was acquired for them.
    pub(super) lease: Option<String>,
}

/// The variables that S3 clients read. s5cmd has its own for the endpoint. Programs with the crate object_store send
/// nothing without TLS unless that is allowed.
pub(in crate::cli) fn aws_variables(issued: &S3CredentialsAnswer) -> impl Iterator<Item = (&'static str, &str)> {
    let allow_http = issued.endpoint.starts_with("http://").then_some(("AWS_ALLOW_HTTP", "true"));
    let variables = [
        ("AWS_ACCESS_KEY_ID", issued.access_key_id.as_str()),
        ("AWS_SECRET_ACCESS_KEY", &issued.secret_access_key),
        ("AWS_ENDPOINT_URL_S3", &issued.endpoint),
        ("AWS_ENDPOINT_URL", &issued.endpoint),
        ("S3_ENDPOINT_URL", &issued.endpoint),
    ];
    variables.into_iter().chain(allow_http)
}

impl Format {
    /// The text, without its last line end.
    pub(super) fn of(self, given: &Given) -> Result<String, Failed> {
        match self {
            Format::Env => Ok(env(given)),
            Format::Json => json(given),
            Format::CredentialProcess => Ok(credential_process(&given.issued)),
            Format::Rclone => Ok(rclone(given)),
        }
    }
}

fn env(given: &Given) -> String {
    let Given { issued, presented, lease } = given;
    let token = presented.token.to_string();
    let fencepost = [
        ("FENCEPOST_RESOURCE", Some(issued.resource.as_str())),
        ("FENCEPOST_TOKEN", Some(token.as_str())),
        ("FENCEPOST_HOLDER", presented.holder.as_ref().map(Holder::as_str)),
        ("FENCEPOST_ISSUER", presented.issuer.as_ref().map(Issuer::as_str)),
        ("FENCEPOST_LEASE", lease.as_deref()),
    ];
    let known = fencepost.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let exports = aws_variables(issued).chain(known);
    let mut lines: Vec<String> = exports.map(|(name, value)| format!("export {name}={}", quoted(value))).collect();
    lines.push(format!("export AWS_REGION=\"${{AWS_REGION:-{REGION}}}\""));
    lines.push(format!("unset {}", AWS_UNSET.join(" ")));
    lines.join("\n")
}

/// Quotes a text as one word of a shell, whatever it contains.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn json(given: &Given) -> Result<String, Failed> {
    let mut answer = serde_json::to_value(&given.issued).map_err(Failed::other)?;
    let more = [
        ("holder", given.presented.holder.as_ref().map(Holder::as_str)),
        ("issuer", given.presented.issuer.as_ref().map(Issuer::as_str)),
        ("lease", given.lease.as_deref()),
    ];
    for (name, value) in more.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        answer[name] = Value::from(value);
    }
    Ok(answer.to_string())
}

fn credential_process(issued: &S3CredentialsAnswer) -> String {
    let S3CredentialsAnswer { access_key_id, secret_access_key, expiration, .. } = issued;
    json!({
        "Version": 1,
        "AccessKeyId": access_key_id,
        "SecretAccessKey": secret_access_key,
        "Expiration": expiration,
    })
    .to_string()
}

fn rclone(given: &Given) -> String {
    let Given { issued, presented, lease } = given;
    let S3CredentialsAnswer { access_key_id, secret_access_key, expiration, endpoint, resource, .. } = issued;
    let lease = lease.as_ref().map(|lease| format!("# lease {lease}\n")).unwrap_or_default();
    format!(
        "# token {} of {resource}, until {expiration}\n{lease}\
         [fencepost]\n\
         type = s3\n\
         provider = Other\n\
         access_key_id = {access_key_id}\n\
         secret_access_key = {secret_access_key}\n\
         endpoint = {endpoint}\n\
         region = {REGION}\n\
         force_path_style = true\n\
         no_check_bucket = true",
        presented.token
    )
}

#[cfg(test)]
mod tests {
    use fencepost_core::Resource;

    use super::*;

    fn given(lease: Option<&str>) -> Given {
        let token = "34".parse().unwrap();
        Given {
            issued: S3CredentialsAnswer {
                access_key_id: "FPID".into(),
                secret_access_key: "5ecret".into(),
                expiration: "2026-11-16T15:00:00.000Z".into(),
                endpoint: "http://127.0.0.1:9000".into(),
                resource: Resource::new("it's; $(reboot)").unwrap(),
                token,
            },
            presented: Presented { token, holder: Some(Holder::new("a#1").unwrap()), issuer: None },
            lease: lease.map(str::to_owned),
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        let lines = Format::Env.of(&given(Some("bGVhc2U"))).ok().unwrap();
        let script = format!(
            "{lines}\nprintf '%s\\n' \"$AWS_ACCESS_KEY_ID\" \"$FENCEPOST_RESOURCE\" \"$FENCEPOST_LEASE\" \"$AWS_REGION\" \"${{AWS_PROFILE-unset}}\""
        );
        let run = |region: Option<&str>| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-euc", &script]).env("AWS_PROFILE", "other").env_remove("AWS_REGION");
            shell.envs(region.map(|region| ("AWS_REGION", region)));
            String::from_utf8(shell.output().unwrap().stdout).unwrap()
        };
        assert_eq!(run(None), "FPID\nit's; $(reboot)\nbGVhc2U\nus-east-1\nunset\n");
        assert!(run(Some("eu-west-1")).contains("\neu-west-1\n"), "a region of the caller's own stays");
    }

    #[test]
    fn json_has_what_is_known() {
        let text = |lease| Format::Json.of(&given(lease)).ok().unwrap();
        let with: Value = serde_json::from_str(&text(Some("l"))).unwrap();
        assert_eq!((&with["holder"], &with["lease"], &with["token"]), (&"a#1".into(), &"l".into(), &"34".into()));
        let without: Value = serde_json::from_str(&text(None)).unwrap();
        assert!(without.get("lease").is_none() && without.get("issuer").is_none(), "{without}");
    }

    #[test]
    fn the_formats_of_others() {
        let process: Value = serde_json::from_str(&Format::CredentialProcess.of(&given(None)).ok().unwrap()).unwrap();
        let wanted = json!({"Version": 1, "AccessKeyId": "FPID", "SecretAccessKey": "5ecret", "Expiration": "2026-11-16T15:00:00.000Z"});
        assert_eq!(process, wanted, "and no session token");
        let rclone = Format::Rclone.of(&given(None)).ok().unwrap();
        assert!(
            rclone.contains("\n[fencepost]\ntype = s3\n") && rclone.contains("\nendpoint = http://127.0.0.1:9000\n")
        );
    }
}
