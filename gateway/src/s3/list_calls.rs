//! Calls about buckets, and listings of their contents.

use fencepost_core::{Key, Timestamp as Millis};
use fencepost_objects::layout::BucketFound;
use fencepost_objects::{Listed, Object as Stored, Page, tellable};
use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use super::attributes::time;
use super::caller::{bucket_name, covers};
use super::calls::{Answer, Calls};
use super::names::breaks_xml;
use super::object_calls::{listed, version};
use super::permit::Call;
use super::refuse;
use super::upload_calls::limit;

/// The region of every bucket.
const REGION: &str = "us-east-1";

/// The most buckets that one listing may request, as in S3.
const MAX_BUCKETS: i32 = 10_000;

/// The parameters of a listing, in any version.
struct Question<'q> {
    bucket: &'q str,
    prefix: &'q str,
    delimiter: Option<&'q str>,
    /// A key without the bucket.
    after: Option<&'q str>,
    most: usize,
    encoded: bool,
    /// Whether each entry names its owner.
    owned: bool,
}

/// The objects and common prefixes of an answer.
struct Found {
    contents: Vec<(String, Stored)>,
    prefixes: Vec<CommonPrefix>,
    next: Option<String>,
}

impl Calls {
    async fn list(&self, question: &Question<'_>) -> S3Result<Found> {
        let Question { bucket, prefix, delimiter, after, most, encoded, .. } = *question;
        self.objects.need_bucket(bucket).await.map_err(|error| self.error(error))?;
        for asked in [Some(prefix), delimiter, after].into_iter().flatten() {
            if !tellable(asked) && !encoded {
                return Err(s3_error!(
                    InvalidArgument,
                    "A question with characters that XML does not allow needs encoding-type=url."
                ));
            }
        }
        let whole = |key: &str| format!("{bucket}/{key}");
        let Page { entries, next } = match most {
            0 => Page { entries: Vec::new(), next: None },
            _ => {
                let (prefix, after) = (whole(prefix), after.map(whole));
                let listed = self.objects.list(&prefix, delimiter, after.as_deref(), most).await;
                listed.map_err(|error| self.error(error))?
            }
        };
        let own = |name: &str| name.get(bucket.len() + 1..).unwrap_or_default().to_owned();
        let shown = |name: &str| shown(own(name), encoded);
        let mut found = Found { contents: Vec::new(), prefixes: Vec::new(), next: next.as_deref().map(own) };
        for entry in entries {
            match entry {
                Listed::Object(name, object) => found.contents.push((shown(&name), *object)),
                Listed::Prefix(prefix) => found.prefixes.push(CommonPrefix { prefix: Some(shown(&prefix)) }),
            }
        }
        Ok(found)
    }

    async fn list_entries(
        &self,
        question: &Question<'_>,
    ) -> S3Result<(Vec<Object>, Vec<CommonPrefix>, Option<String>)> {
        let Found { contents, prefixes, next } = self.list(question).await?;
        let owner = || question.owned.then(refuse::owner);
        let contents = contents.into_iter().map(|(key, object)| listed(key, &object, owner())).collect();
        Ok((contents, prefixes, next))
    }

    pub(super) async fn list_objects_v2(&self, call: Call<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = call.input;
        let token = input.continuation_token.as_deref().map(from_token).transpose()?;
        let question = Question {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after: token.as_deref().or(input.start_after.as_deref()).filter(|after| !after.is_empty()),
            most: limit(input.max_keys, "max-keys")?,
            encoded: encoded(input.encoding_type.as_ref())?,
            owned: input.fetch_owner.unwrap_or(false),
        };
        let (contents, prefixes, next) = self.list_entries(&question).await?;
        let count = contents.len() + prefixes.len();
        let (most, encoded) = (question.most, question.encoded);
        Ok(S3Response::new(ListObjectsV2Output {
            is_truncated: Some(next.is_some()),
            next_continuation_token: next.as_deref().map(token_of),
            contents: Some(contents),
            common_prefixes: Some(prefixes),
            key_count: i32::try_from(count).ok(),
            max_keys: i32::try_from(most).ok(),
            name: Some(input.bucket),
            prefix: input.prefix.map(|text| shown(text, encoded)),
            delimiter: not_empty(input.delimiter).map(|text| shown(text, encoded)),
            continuation_token: input.continuation_token,
            start_after: input.start_after.map(|text| shown(text, encoded)),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        }))
    }

    pub(super) async fn list_objects(&self, call: Call<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = call.input;
        let question = Question {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after: input.marker.as_deref().filter(|marker| !marker.is_empty()),
            most: limit(input.max_keys, "max-keys")?,
            encoded: encoded(input.encoding_type.as_ref())?,
            owned: true,
        };
        let (contents, prefixes, next) = self.list_entries(&question).await?;
        let (most, encoded) = (question.most, question.encoded);
        Ok(S3Response::new(ListObjectsOutput {
            is_truncated: Some(next.is_some()),
            next_marker: next.map(|text| shown(text, encoded)),
            contents: Some(contents),
            common_prefixes: Some(prefixes),
            max_keys: i32::try_from(most).ok(),
            name: Some(input.bucket),
            prefix: input.prefix.map(|text| as_sent(text, encoded)),
            marker: Some(shown(input.marker.unwrap_or_default(), encoded)),
            delimiter: not_empty(input.delimiter).map(|text| shown(text, encoded)),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    /// Lists versions: every object has exactly one, `null`.
    pub(super) async fn list_object_versions(
        &self,
        call: Call<ListObjectVersionsInput>,
    ) -> Answer<ListObjectVersionsOutput> {
        let input = call.input;
        let question = Question {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after: input.key_marker.as_deref().filter(|marker| !marker.is_empty()),
            most: limit(input.max_keys, "max-keys")?,
            encoded: encoded(input.encoding_type.as_ref())?,
            owned: true,
        };
        let Found { contents, prefixes, next } = self.list(&question).await?;
        let (most, encoded) = (question.most, question.encoded);
        let versions = contents.into_iter().map(|(key, object)| version(key, &object, Some(refuse::owner())));
        Ok(S3Response::new(ListObjectVersionsOutput {
            is_truncated: Some(next.is_some()),
            next_version_id_marker: next.as_ref().map(|_| refuse::ONLY_VERSION.to_owned()),
            next_key_marker: next.map(|text| shown(text, encoded)),
            versions: Some(versions.collect()),
            common_prefixes: Some(prefixes),
            max_keys: i32::try_from(most).ok(),
            name: Some(input.bucket),
            prefix: input.prefix.map(|text| as_sent(text, encoded)),
            key_marker: Some(shown(input.key_marker.unwrap_or_default(), encoded)),
            version_id_marker: input.version_id_marker,
            delimiter: not_empty(input.delimiter).map(|text| shown(text, encoded)),
            encoding_type: input.encoding_type,
            ..ListObjectVersionsOutput::default()
        }))
    }

    pub(super) async fn list_buckets(&self, call: Call<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let input = call.input;
        let most = match input.max_buckets {
            None => usize::MAX,
            Some(most @ 1..=MAX_BUCKETS) => usize::try_from(most).unwrap_or(usize::MAX),
            Some(most) => return Err(s3_error!(InvalidArgument, "max-buckets is 1 to {MAX_BUCKETS}, not {most}.")),
        };
        let after = input.continuation_token.as_deref().map(from_token).transpose()?;
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let mut found = self.objects.buckets().await.map_err(|error| self.error(error))?;
        found.retain(|bucket| {
            bucket.name.starts_with(prefix) && after.as_ref().is_none_or(|after| bucket.name > *after)
        });
        let more = found.len() > most;
        found.truncate(most);
        let next = more.then(|| found.last().map(|last| token_of(&last.name))).flatten();
        let bucket = |found: BucketFound| Bucket {
            name: Some(found.name),
            creation_date: Some(time(Millis(found.created_ms))),
            ..Bucket::default()
        };
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(found.into_iter().map(bucket).collect()),
            owner: Some(refuse::owner()),
            continuation_token: next,
            prefix: input.prefix,
        }))
    }

    pub(super) async fn head_bucket(&self, call: Call<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.objects.need_bucket(&call.input.bucket).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(REGION.to_owned()), ..Default::default() }))
    }

    /// Always `us-east-1`, which S3 expresses by an empty answer.
    pub(super) async fn get_bucket_location(
        &self,
        call: Call<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        self.objects.need_bucket(&call.input.bucket).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    /// Versioning is never enabled, which S3 expresses by an empty answer.
    pub(super) async fn get_bucket_versioning(
        &self,
        call: Call<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.objects.need_bucket(&call.input.bucket).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    pub(super) async fn get_bucket_acl(&self, call: Call<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
        self.objects.need_bucket(&call.input.bucket).await.map_err(|error| self.error(error))?;
        let (owner, grants) = refuse::everything_is_ours();
        Ok(S3Response::new(GetBucketAclOutput { owner: Some(owner), grants: Some(grants) }))
    }

    pub(super) async fn create_bucket(&self, call: Call<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let bucket = bucket_name(&call.input.bucket)?;
        if self.objects.need_bucket(bucket.as_str()).await.is_ok() {
            return self.bucket_is_there(&call, &bucket).await;
        }
        self.may_change_buckets("make")?;
        if [".-", "-."].iter().any(|pair| bucket.as_str().contains(pair)) {
            return Err(s3_error!(InvalidBucketName, "In the name of a bucket no hyphen stands beside a dot."));
        }
        let presented = self.presented(&call.caller, &bucket).await?;
        let made = self.objects.create_bucket(bucket.clone(), presented).await.map_err(|error| self.error(error))?;
        match made {
            Some(changed) => self.judged(&changed),
            None => return self.bucket_is_there(&call, &bucket).await,
        }
        Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{bucket}")) }))
    }

    /// Answers the creation of an existing bucket: 200 as in `us-east-1`, which is the region here, or 409 if another
    /// region is named. Nothing changes, so every caller may ask. Only a stale holder of the bucket's own resource is
    /// refused.
    async fn bucket_is_there(&self, call: &Call<CreateBucketInput>, bucket: &Key) -> Answer<CreateBucketOutput> {
        if call.caller.lease().is_some() && covers(&self.objects, &call.caller, bucket).is_ok() {
            let presented = self.presented(&call.caller, bucket).await?;
            let foreseen = self.objects.foresee(bucket, presented.as_ref()).await;
            foreseen.map_err(|error| self.error(error))?;
        }
        let settings = call.input.create_bucket_configuration.as_ref();
        let region = settings.and_then(|settings| settings.location_constraint.as_ref());
        match region.map(BucketLocationConstraint::as_str) {
            None | Some("" | REGION) => {
                Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{bucket}")) }))
            }
            Some(_) => Err(s3_error!(BucketAlreadyOwnedByYou, "The bucket is there already.")),
        }
    }

    pub(super) async fn delete_bucket(&self, call: Call<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let bucket = bucket_name(&call.input.bucket)?;
        self.may_change_buckets("remove")?;
        let presented = self.presented(&call.caller, &bucket).await?;
        let removed = self.objects.delete_bucket(bucket, presented).await;
        self.judged(&removed.map_err(|error| self.error(error))?);
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    fn may_change_buckets(&self, what: &str) -> S3Result<()> {
        match self.create_buckets {
            true => Ok(()),
            false => Err(s3_error!(
                AccessDenied,
                "Clients may not {what} buckets here. Make a directory beside the others, or start the gateway with \
                 --s3-create-buckets."
            )),
        }
    }
}

fn encoded(kind: Option<&EncodingType>) -> S3Result<bool> {
    match kind.map(EncodingType::as_str) {
        None => Ok(false),
        Some("url") => Ok(true),
        Some(other) => Err(s3_error!(InvalidArgument, "The encoding type is `url` or none, not `{other}`.")),
    }
}

/// S3 omits an empty delimiter from its answers.
fn not_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// The prefix in version 1 of the listing and in the listing of versions. Clients do not decode it there, so it is
/// encoded only if XML cannot represent it.
fn as_sent(text: String, encoded: bool) -> String {
    let encoded = encoded && breaks_xml(&text);
    shown(text, encoded)
}

fn shown(text: String, encoded: bool) -> String {
    if encoded { encode(&text) } else { text }
}

/// Percent-encodes everything but letters, digits and `-_.~/`, as S3 does.
fn encode(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
    percent_encoding::utf8_percent_encode(text, KEPT).to_string()
}

/// The continuation token of a key, in URL-safe characters.
fn token_of(key: &str) -> String {
    data_encoding::BASE64URL_NOPAD.encode(key.as_bytes())
}

fn from_token(token: &str) -> S3Result<String> {
    let bytes = data_encoding::BASE64URL_NOPAD.decode(token.as_bytes()).ok();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| s3_error!(InvalidArgument, "The continuation token is not one of this gateway's."))
}
