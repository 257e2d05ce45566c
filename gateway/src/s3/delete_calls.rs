//! Calls that remove objects, one or several at once.

use fencepost_objects::{ObjectCondition, Removal};
use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::body;
use super::caller::covers;
use super::calls::{Answer, Calls};
use super::conditions;
use super::names::{Named, breaks_xml};
use super::permit::Call;
use super::refuse;

/// The most objects that one request removes, as in S3.
const MAX_DELETES: usize = 1000;

impl Calls {
    pub(super) async fn delete_object(&self, call: Call<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let (named, presented) = self.named(&call.caller, &call.input.bucket, &call.input.key).await?;
        let input = call.input;
        refuse::versions(input.version_id.as_deref())?;
        conditional(input.if_match_size, input.if_match_last_modified_time.as_ref())?;
        let mut removal = Removal::default();
        add(&mut removal, named, conditions::of_write(input.if_match, None)?);
        let deleted = self.objects.delete(presented, removal).await;
        let changed = deleted.map_err(|error| self.error(error))?;
        Ok(self.applied(DeleteObjectOutput::default(), &changed))
    }

    /// Removes all keys or none: one key that may not be removed refuses the whole request. A name that cannot exist
    /// counts as removed.
    pub(super) async fn delete_objects(&self, call: Call<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        body::arrived_whole(&call)?.map_err(|error| self.error(error))?;
        let wanted = &call.input.delete.objects;
        if wanted.is_empty() || wanted.len() > MAX_DELETES {
            return Err(s3_error!(MalformedXML, "One request removes from 1 to {MAX_DELETES} objects."));
        }
        let mut names = Vec::with_capacity(wanted.len());
        for object in wanted {
            let named = Named::new(&call.input.bucket, &object.key)?;
            covers(&self.objects, &call.caller, named.judged())?;
            names.push((named, object));
        }
        let Some((first, _)) = names.first() else { return Err(s3_error!(MalformedXML)) };
        let presented = self.presented(&call.caller, first.judged()).await?;
        // The fence is checked before everything else: a stale holder must get that refusal and no other.
        let foreseen = self.objects.foresee(first.judged(), presented.as_ref()).await;
        foreseen.map_err(|error| self.error(error))?;
        let mut removal = Removal::default();
        for (named, object) in names {
            // The answer repeats the keys, and XML cannot represent such a key.
            if breaks_xml(&object.key) {
                return Err(s3_error!(MalformedXML, "A key has a character that XML does not allow."));
            }
            refuse::versions(object.version_id.as_deref())?;
            conditional(object.size, object.last_modified_time.as_ref())?;
            let condition = match &object.e_tag {
                Some(etag) => ObjectCondition::ETag(etag.value().to_owned()),
                None => ObjectCondition::Always,
            };
            add(&mut removal, named, condition);
        }
        let deleted = self.objects.delete(presented, removal).await;
        let changed = deleted.map_err(|error| self.error(error))?;
        let quiet = call.input.delete.quiet.unwrap_or(false);
        let removed = |object: ObjectIdentifier| DeletedObject { key: Some(object.key), ..DeletedObject::default() };
        let deleted = (!quiet).then(|| call.input.delete.objects.into_iter().map(removed).collect());
        Ok(self.applied(DeleteObjectsOutput { deleted, ..DeleteObjectsOutput::default() }, &changed))
    }
}

/// Refuses conditions that only directory buckets of S3 support.
fn conditional(size: Option<i64>, modified: Option<&Timestamp>) -> S3Result<()> {
    match size.is_some() || modified.is_some() {
        true => Err(s3_error!(NotImplemented, "A delete on condition takes an ETag, neither a size nor a time.")),
        false => Ok(()),
    }
}

/// Adds a name to the removal, unless it is already in it.
fn add(removal: &mut Removal, named: Named, condition: ObjectCondition) {
    let names = match &named {
        Named::Object(_) => &mut removal.keys,
        Named::Folder(_) => &mut removal.folders,
        Named::Impossible(impossible) => {
            if !removal.judged.contains(&impossible.judged) {
                removal.judged.push(impossible.judged.clone());
            }
            return;
        }
    };
    if names.iter().all(|(known, _)| known != named.judged()) {
        names.push((named.judged().clone(), condition));
    }
}
