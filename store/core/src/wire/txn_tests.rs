//! Bodies of transactions.

use super::*;

fn parse(text: &str) -> Result<TxnRequest, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn the_example_of_the_design() {
    let request = parse(
        r#"{"tokens": {"orders/123": "34", "stock/sku-7": {"token": "12", "holder": "h#1", "issuer": "etcd:1"}},
            "if":   [{"key": "orders/123", "absent": true}, {"key": "a", "etag": "\"7\""}, {"key": "n", "at_least": "1"}],
            "then": [{"put": "orders/123", "text": "…", "content_type": "text/plain"},
                     {"add": "stock/sku-7", "by": "-1", "min": "0"}, {"get": "k"}, {"delete": "d"}]}"#,
    )
    .unwrap();
    assert_eq!(request.tokens.len(), 2);
    assert_eq!(request.conditions[2].expected, Expected::AtLeast(Integer(1)));
    assert!(matches!(&request.operations[1], OperationSpec::Add { by: Integer(-1), min: Some(Integer(0)), .. }));
    let again = serde_json::to_string(&request).unwrap();
    assert_eq!(parse(&again).unwrap().operations, request.operations);
    assert_eq!(parse(&again).unwrap().conditions, request.conditions);
    assert_eq!(parse(&again).unwrap().tokens, request.tokens);
}

#[test]
fn bad_bodies_say_what_is_wrong() {
    for (body, says) in [
        (r#"{"token": {}}"#, "unknown field `token`"),
        (r#"{"tokens": {"a": "1", "a": "2"}}"#, "more than one token"),
        (r#"{"tokens": {"a": {"token": "1", "hodler": "x"}}}"#, "a token is text"),
        (r#"{"if": [{"key": "a"}]}"#, "one of exists"),
        (r#"{"if": [{"absent": true}]}"#, "needs a `key`"),
        (r#"{"if": [{"key": "a", "absent": false}]}"#, "is not a condition"),
        (r#"{"if": [{"key": "a", "absent": true, "etag": "7"}]}"#, "one of exists"),
        (r#"{"if": [{"key": "a", "at_least": "1.5"}]}"#, "a whole number"),
        (r#"{"if": [{"key": "a", "at_least": 9223372036854775808}]}"#, "a whole number"),
        (r#"{"then": [{"put": "a"}]}"#, "needs a value"),
        (r#"{"then": [{"put": "a", "text": "x", "base64": "eA=="}]}"#, "not both"),
        (r#"{"then": [{"put": "a", "text": "x", "by": 1}]}"#, "takes no `by`"),
        (r#"{"then": [{"add": "a"}]}"#, "needs `by`"),
        (r#"{"then": [{"add": "a", "by": 1, "text": "x"}]}"#, "no value"),
        (r#"{"then": [{"add": "a", "by": 1, "min": 2, "max": 1}]}"#, "no sum is possible"),
        (r#"{"then": [{"get": "a", "text": "x"}]}"#, "nothing beside the key"),
        (r#"{"then": [{"get": "a", "put": "a", "text": "x"}]}"#, "one of put"),
        (r#"{"then": [{}]}"#, "one of put"),
        (r#"{"then": [["a"]]}"#, "expected an object"),
        (r#"{"if": [["a", true]]}"#, "expected an object"),
        (r#"{"tokens": {"a": ["1"]}}"#, "a token is text"),
    ] {
        let error = parse(body).unwrap_err();
        assert!(error.contains(says), "{body}: {error}");
    }
}

#[test]
fn numbers() {
    for (text, number) in [("0", 0), ("-1", -1), ("007", 7), ("9223372036854775807", i64::MAX)] {
        assert_eq!(Integer::parse(text.as_bytes()), Some(Integer(number)), "{text}");
    }
    for text in ["", "-", "+1", " 1", "1\n", "1.0", "1e3", "9223372036854775808", "--1", "½"] {
        assert_eq!(Integer::parse(text.as_bytes()), None, "{text:?}");
    }
}
