//! Calls about buckets, and lists of what is in them.

use fencepost_core::Timestamp as Millis;
use fencepost_store::{Listed, Page};
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::attributes::time;
use super::caller::bucket_name;
use super::face::{Answer, Face};
use super::object_calls::listed;
use super::refuse;
use super::upload_calls::limit;
use crate::objects::tellable;

/// What a list asks for, whichever version of it.
struct Question<'q> {
    bucket: &'q str,
    prefix: &'q str,
    delimiter: Option<&'q str>,
    /// A key, not a whole name.
    after: Option<&'q str>,
    most: usize,
    encoded: bool,
}

/// Objects and groups, as an answer tells them.
struct Found {
    contents: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
    next: Option<String>,
}

impl Face {
    async fn list(&self, question: &Question<'_>) -> S3Result<Found> {
        let Question { bucket, prefix, delimiter, after, most, encoded } = *question;
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
                Listed::Object(key, object) => found.contents.push(listed(shown(key.as_str()), &object)),
                Listed::Prefix(prefix) => found.prefixes.push(CommonPrefix { prefix: Some(shown(&prefix)) }),
            }
        }
        Ok(found)
    }

    pub(super) async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let input = request.input;
        let token = input.continuation_token.as_deref().map(from_token).transpose()?;
        let question = Question {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after: token.as_deref().or(input.start_after.as_deref()).filter(|after| !after.is_empty()),
            most: limit(input.max_keys, "max-keys")?,
            encoded: encoded(input.encoding_type.as_ref())?,
        };
        let found = self.list(&question).await?;
        let count = found.contents.len() + found.prefixes.len();
        let (most, encoded) = (question.most, question.encoded);
        Ok(S3Response::new(ListObjectsV2Output {
            is_truncated: Some(found.next.is_some()),
            next_continuation_token: found.next.as_deref().map(token_of),
            contents: Some(found.contents),
            common_prefixes: Some(found.prefixes),
            key_count: i32::try_from(count).ok(),
            max_keys: i32::try_from(most).ok(),
            name: Some(input.bucket),
            prefix: input.prefix.map(|text| shown(text, encoded)),
            delimiter: input.delimiter.map(|text| shown(text, encoded)),
            continuation_token: input.continuation_token,
            start_after: input.start_after.map(|text| shown(text, encoded)),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        }))
    }

    pub(super) async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let input = request.input;
        let question = Question {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after: input.marker.as_deref().filter(|marker| !marker.is_empty()),
            most: limit(input.max_keys, "max-keys")?,
            encoded: encoded(input.encoding_type.as_ref())?,
        };
        let found = self.list(&question).await?;
        let (most, encoded) = (question.most, question.encoded);
        Ok(S3Response::new(ListObjectsOutput {
            is_truncated: Some(found.next.is_some()),
            next_marker: found.next.map(|text| shown(text, encoded)),
            contents: Some(found.contents),
            common_prefixes: Some(found.prefixes),
            max_keys: i32::try_from(most).ok(),
            name: Some(input.bucket),
            prefix: input.prefix.map(|text| shown(text, encoded)),
            marker: Some(shown(input.marker.unwrap_or_default(), encoded)),
            delimiter: input.delimiter.map(|text| shown(text, encoded)),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    pub(super) async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let found = self.objects.buckets().await.map_err(|error| self.error(error))?;
        let bucket = |found: crate::objects::layout::BucketFound| Bucket {
            name: Some(found.name),
            creation_date: Some(time(Millis(found.created_ms))),
            ..Bucket::default()
        };
        let (owner, _) = refuse::everything_is_ours();
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(found.into_iter().map(bucket).collect()),
            owner: Some(owner),
            ..ListBucketsOutput::default()
        }))
    }

    pub(super) async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.objects.need_bucket(&request.input.bucket).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(HeadBucketOutput { bucket_region: Some("us-east-1".to_owned()), ..Default::default() }))
    }

    /// `us-east-1`, which S3 tells by telling nothing.
    pub(super) async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        self.objects.need_bucket(&request.input.bucket).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    /// Never enabled, which S3 tells by telling nothing.
    pub(super) async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        self.objects.need_bucket(&request.input.bucket).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    pub(super) async fn get_bucket_acl(&self, request: S3Request<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
        self.objects.need_bucket(&request.input.bucket).await.map_err(|error| self.error(error))?;
        let (owner, grants) = refuse::everything_is_ours();
        Ok(S3Response::new(GetBucketAclOutput { owner: Some(owner), grants: Some(grants) }))
    }

    pub(super) async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        let bucket = bucket_name(&request.input.bucket)?;
        let there = || s3_error!(BucketAlreadyOwnedByYou, "The bucket is there already.");
        if self.objects.need_bucket(bucket.as_str()).await.is_ok() {
            return Err(there());
        }
        self.may_change_buckets("make")?;
        let presented = self.presented(&request, &bucket).await?;
        let made = self.objects.create_bucket(bucket.clone(), presented).await.map_err(|error| self.error(error))?;
        self.judged(made.ok_or_else(there)?);
        Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{bucket}")) }))
    }

    pub(super) async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let bucket = bucket_name(&request.input.bucket)?;
        self.may_change_buckets("remove")?;
        let presented = self.presented(&request, &bucket).await?;
        let removed = self.objects.delete_bucket(bucket, presented).await;
        self.judged(removed.map_err(|error| self.error(error))?);
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

fn shown(text: String, encoded: bool) -> String {
    if encoded { encode(&text) } else { text }
}

/// As S3 does it: everything but letters, digits and `-_.~/`.
fn encode(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
    percent_encoding::utf8_percent_encode(text, KEPT).to_string()
}

/// Where a list goes on, in a form that survives everything.
fn token_of(key: &str) -> String {
    data_encoding::BASE64URL_NOPAD.encode(key.as_bytes())
}

fn from_token(token: &str) -> S3Result<String> {
    let bytes = data_encoding::BASE64URL_NOPAD.decode(token.as_bytes()).ok();
    let key = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    key.ok_or_else(|| s3_error!(InvalidArgument, "The continuation token is not one of this gateway's."))
}
