//! Schemas for the API document, of types whose form on the wire is written by hand. The others derive theirs.

use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{
    ClaimedValue, ConditionSpec, Integer, MAX_CLAIM_KEYS, MAX_TTL_MS, MAX_TXN_PARTS, MAX_WAIT_MS, MIN_TTL_MS,
    OperationSpec, TextOrBase64, TokenSpec, TxnRequest, TxnResult, ValueSpec,
};
use crate::{Holder, IdempotencyKey, Issuer, Key, MAX_NAME_BYTES, Resource, Token};

/// Neither empty nor `.` or `..`, and without control characters.
macro_rules! segment {
    () => {
        concat!(
            r"([^/.\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*",
            r"|\.[^/.\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*",
            r"|\.\.[^/\x00-\x1f\x7f-\x9f]+)",
        )
    };
}

const NAME: &str = concat!("^", segment!(), "(/", segment!(), ")*$");
/// Characters that are no control characters, with spaces only inside.
const KEY: &str = r"^[^\x00-\x20\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f])?$";

/// What is not seen by itself, in a class of a pattern.
macro_rules! hidden {
    () => {
        r"\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff"
    };
}

/// The same without hidden characters.
const LABEL: &str = concat!(
    r"^[^\x00-\x20\x7f-\x9f",
    hidden!(),
    r"]([^\x00-\x1f\x7f-\x9f",
    hidden!(),
    r"]*[^\x00-\x20\x7f-\x9f",
    hidden!(),
    "])?$",
);
const TOKEN: &str = "^([1-9][0-9]{0,9}:)?[1-9][0-9]{0,19}$";
const LEASE: &str = "^[0-9a-f]{32}$";

/// A type that is found by its name in the document.
macro_rules! schema {
    ($($name:ty: $schema:expr;)*) => {
        $(
            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $name {}
        )*
    };
}

schema! {
    Key: name("A key: 1 to 1024 bytes of UTF-8 in segments between `/`.");
    Resource: name("A resource: what one fence protects. Named like a key.");
    Holder: label("Who presents a token: `name#nonce`, unique per acquisition. At most 256 bytes.");
    Issuer: label("Which lock service numbered a token: `kind:incarnation`. At most 256 bytes.");
    IdempotencyKey: label("Names one request over all its retries. At most 256 bytes.").pattern(Some(KEY));
    Token: text("A fencing token: `34`, or `2:34` in a generation above 0. At most 4294967295:18446744073709551615.")
        .pattern(Some(TOKEN));
    Integer: OneOfBuilder::new().item(whole_number()).item(decimal("The same as decimal text."))
        .description(Some("A whole number of 64 bits: a JSON integer, or text for readers that lose digits."));
    TextOrBase64: OneOfBuilder::new().item(closed(&["text"]).property("text", text("UTF-8.")))
        .item(closed(&["base64"]).property("base64", base64()));
    ValueSpec: OneOfBuilder::new().item(text("UTF-8.")).item(whole_number()).item(of::<TextOrBase64>())
        .description(Some("A value to compare with. A number stands for its decimal text."));
    TokenSpec: OneOfBuilder::new().item(of::<Token>())
        .item(ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(1_u64 << 53)))
        .item(closed(&["token"])
            .property("token", of::<Token>())
            .property("holder", optional::<Holder>())
            .property("issuer", optional::<Issuer>()))
        .description(Some("A token, alone or with who presents it."));
    TxnRequest: ObjectBuilder::new().additional_properties(nothing_else()).min_properties(Some(1))
        .property("tokens", ObjectBuilder::new()
            .description(Some("A token for each resource that is touched."))
            .property_names(Some(name("A resource.")))
            .additional_properties(Some(of::<TokenSpec>()))
            .max_properties(Some(MAX_TXN_PARTS)))
        .property("if", parts::<ConditionSpec>("All must hold before anything is done."))
        .property("then", parts::<OperationSpec>("Done in one commit, or not at all. One key takes one operation."));
    ConditionSpec: OneOfBuilder::new()
        .item(condition("exists", always_true("It has a value.")))
        .item(condition("absent", always_true("It has none.")))
        .item(condition("etag", text("Its version is this.")))
        .item(condition("equals", of::<ValueSpec>()))
        .item(condition("at_least", of::<Integer>()))
        .item(condition("at_most", of::<Integer>()))
        .description(Some("A key and what it must be. For a comparison with a number, no value counts as 0."));
    OperationSpec: OneOfBuilder::new()
        .item(operation("put", &["text"]).property("text", text("UTF-8.")).property("content_type", content_type()))
        .item(operation("put", &["base64"]).property("base64", base64()).property("content_type", content_type()))
        .item(operation("delete", &[]))
        .item(operation("add", &["by"])
            .property("by", of::<Integer>())
            .property("min", optional::<Integer>())
            .property("max", optional::<Integer>()))
        .item(operation("get", &[]))
        .description(Some("What is done to a key. For `add`, no value counts as 0."));
    TxnResult: read(ObjectBuilder::new()).required("key").property("key", of::<Key>())
        .property("etag", text("Its version now."))
        .property("absent", always_true("The key has no value now."))
        .property("value", decimal("Of `add`: the sum."))
        .property("text", text("Of `get`: the value, when it is UTF-8."))
        .property("base64", base64())
        .description(Some("What an operation left behind, or found."));
    ClaimedValue: OneOfBuilder::new()
        .item(claimed("text").property("text", text("The value, when it is UTF-8.")))
        .item(claimed("base64").property("base64", base64()))
        .item(closed(&["key", "absent"]).property("key", of::<Key>()).property("absent", always_true("It has none.")));
}

fn name(description: &str) -> ObjectBuilder {
    text(description).min_length(Some(1)).max_length(Some(MAX_NAME_BYTES)).pattern(Some(NAME))
}

fn label(description: &str) -> ObjectBuilder {
    text(description).min_length(Some(1)).max_length(Some(256)).pattern(Some(LABEL))
}

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn base64() -> ObjectBuilder {
    text("Standard alphabet, padded.")
        .pattern(Some("^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"))
        .content_encoding("base64")
}

fn content_type() -> ObjectBuilder {
    text("Its media type.").max_length(Some(255)).pattern(Some(r"^[\x20-\x7e]*$"))
}

fn decimal(description: &str) -> ObjectBuilder {
    text(description).pattern(Some("^-?[0-9]+$"))
}

fn whole_number() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(i64::MIN)).maximum(Some(i64::MAX))
}

fn always_true(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Boolean).description(Some(description)).enum_values(Some([true]))
}

/// A reference to a type's schema.
fn of<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

/// The same, or null, which means that it is left out.
fn optional<T: ToSchema>() -> OneOfBuilder {
    OneOfBuilder::new().item(ObjectBuilder::new().schema_type(Type::Null)).item(of::<T>())
}

fn nothing_else() -> Option<AdditionalProperties<Schema>> {
    Some(AdditionalProperties::FreeForm(false))
}

/// An object that has these members, and no others than those it names.
fn closed(required: &[&str]) -> ObjectBuilder {
    let object = ObjectBuilder::new().schema_type(Type::Object).additional_properties(nothing_else());
    required.iter().fold(object, |object, member| object.required(*member))
}

fn condition(member: &str, schema: impl Into<RefOr<Schema>>) -> ObjectBuilder {
    closed(&["key", member]).property("key", of::<Key>()).property(member, schema)
}

fn operation(verb: &str, required: &[&str]) -> ObjectBuilder {
    closed(&[&[verb], required].concat()).property(verb, of::<Key>())
}

fn parts<T: ToSchema>(description: &str) -> ArrayBuilder {
    ArrayBuilder::new().items(of::<T>()).max_items(Some(MAX_TXN_PARTS)).description(Some(description))
}

/// What is told about a value that was read.
fn read(object: ObjectBuilder) -> ObjectBuilder {
    object.property("token", optional::<Token>()).property(
        "content_type",
        OneOfBuilder::new().item(ObjectBuilder::new().schema_type(Type::Null)).item(text("Its media type.")),
    )
}

fn claimed(value: &str) -> ObjectBuilder {
    let object = read(closed(&["key", "etag", "token", "content_type", value]));
    object.property("key", of::<Key>()).property("etag", text("Its version."))
}

pub(super) fn ttl_ms() -> ObjectBuilder {
    milliseconds("How long the lease lasts unless it is renewed.", MIN_TTL_MS, MAX_TTL_MS)
}

pub(super) fn wait_ms() -> ObjectBuilder {
    milliseconds("How long to wait for the lock; not at all if absent.", 0, MAX_WAIT_MS)
}

fn milliseconds(description: &str, least: u64, most: u64) -> ObjectBuilder {
    let number = ObjectBuilder::new().schema_type(Type::Integer).description(Some(description));
    number.minimum(Some(least)).maximum(Some(most))
}

pub(super) fn ttl_s() -> OneOfBuilder {
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    OneOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .item(seconds)
        .description(Some("How many seconds they last; as long as the gateway allows if absent."))
}

pub(super) fn lease() -> ObjectBuilder {
    text("Needed to renew and release; known to the holder only.").pattern(Some(LEASE))
}

pub(super) fn reason() -> ObjectBuilder {
    text("Why; for the audit log.").min_length(Some(1)).max_length(Some(1024)).pattern(Some(r"\S"))
}

pub(super) fn generation() -> ObjectBuilder {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(u32::MAX));
    number.description(Some("A generation. In requests: the one that ends."))
}

pub(super) fn claim_keys() -> OneOfBuilder {
    let keys = ArrayBuilder::new().items(of::<Key>()).max_items(Some(MAX_CLAIM_KEYS));
    OneOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .item(keys)
        .description(Some("The keys to read in the same instant; the key named like the resource if absent."))
}
