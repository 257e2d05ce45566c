//! Issuing, verification and rotation of credentials.

use super::*;
use fencepost_core::Timestamp;
use proptest::prelude::*;

/// 00 01 02 … 1f.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn key(id: u8) -> MacKey {
    // Each id gets different digits.
    MacKey::from_hex(id, &format!("{id:02x}").repeat(32)).unwrap()
}

fn resource() -> Resource {
    Resource::new("reports/daily").unwrap()
}

fn token() -> Token {
    "2:34".parse().unwrap()
}

/// Computed by another program from the description in docs/s3-credentials.md. Credentials outlive a gateway's
/// version, so this must not change.
#[test]
fn a_known_key_gives_known_credentials() {
    let keys = MacKeys::new(vec![MacKey::from_hex(7, KEY).unwrap()]).unwrap();
    let issued = keys.issue(&resource(), token(), 1_800_000_000);
    let id = concat!("FPAEDQVI35HFUDJWGHMEH6IN4ZSDOR6AAAAABAAAAAAA", "AAAABCAAAAAADLJHJAAONKOGT3O2GRIVVUP4XXY2S5UWQ");
    assert_eq!(issued.access_key_id, id);
    assert_eq!(issued.secret_access_key, "df4820ed5d204ceef3eaeb2a78b4845015282ba9295282393d628a412ab47cc4");
}

#[test]
fn what_was_issued_is_verified() {
    let keys = MacKeys::new(vec![key(1)]).unwrap();
    let issued = keys.issue(&resource(), token(), 1_800_000_000);
    let Verified { lease, secret } = keys.verify(&issued.access_key_id).unwrap();
    assert_eq!(secret, issued.secret_access_key);
    assert_eq!((lease.mac_key, lease.token, lease.expires), (1, token(), 1_800_000_000));
    assert!(lease.covers(&resource()));
    assert!(!lease.expired(Timestamp(1_799_999_999_999)));
}

#[test]
fn rotation_keeps_what_the_old_key_signed_until_the_old_key_is_gone() {
    let (before, after) = (MacKeys::new(vec![key(1)]).unwrap(), MacKeys::new(vec![key(2)]).unwrap());
    let both = MacKeys::new(vec![key(2), key(1)]).unwrap();
    assert_eq!(both.to_string(), "2, 1");
    let old = before.issue(&resource(), token(), 5);
    let new = both.issue(&resource(), token(), 5);
    assert_eq!(both.verify(&old.access_key_id).unwrap().secret, old.secret_access_key);
    assert_eq!(both.verify(&new.access_key_id).unwrap().lease.mac_key, 2);
    assert_eq!(after.verify(&new.access_key_id).unwrap().secret, new.secret_access_key);
    assert_eq!(after.verify(&old.access_key_id), Err(UnknownKey::NoSuchMacKey(1)));
}

#[test]
fn another_gateways_key_of_the_same_id_does_not_do() {
    let other = MacKeys::new(vec![MacKey::from_hex(1, KEY).unwrap()]).unwrap();
    let issued = other.issue(&resource(), token(), 5);
    assert_eq!(MacKeys::new(vec![key(1)]).unwrap().verify(&issued.access_key_id), Err(UnknownKey::WrongMac));
}

#[test]
fn keys_that_are_none() {
    assert!(matches!(MacKey::from_hex(3, "hello"), Err(MacKeyError::NotHex(3))));
    assert!(matches!(MacKey::from_hex(3, ""), Err(MacKeyError::TooShort(3, 0))));
    assert!(matches!(MacKey::from_hex(3, &KEY[2..]), Err(MacKeyError::TooShort(3, 31))));
    assert!(MacKey::from_hex(3, &format!("{}\n", KEY.to_uppercase())).is_ok());
    assert!(matches!(MacKeys::new(vec![]), Err(MacKeyError::None)));
    assert!(matches!(MacKeys::new(vec![key(1), key(2), key(1)]), Err(MacKeyError::SameId(1))));
}

#[test]
fn a_gateway_makes_its_own_key_once() {
    let data = tempfile::tempdir().unwrap();
    let first = MacKeys::own(data.path()).unwrap();
    let again = MacKeys::own(data.path()).unwrap();
    let elsewhere = MacKeys::own(tempfile::tempdir().unwrap().path()).unwrap();
    let issued = first.issue(&resource(), token(), 5);
    assert_eq!(again.verify(&issued.access_key_id).unwrap().secret, issued.secret_access_key);
    assert_eq!(elsewhere.verify(&issued.access_key_id), Err(UnknownKey::WrongMac));
    let text = std::fs::read_to_string(data.path().join(OWN_KEY_FILE)).unwrap();
    assert_eq!(text.trim_end().len(), 64);
    std::fs::write(data.path().join(OWN_KEY_FILE), "cut off").unwrap();
    assert!(MacKeys::own(data.path()).is_err(), "a damaged key is not replaced: it would end every credential");
}

#[test]
fn no_secret_is_in_debug_output() {
    let keys = MacKeys::new(vec![MacKey::from_hex(7, KEY).unwrap()]).unwrap();
    let issued = keys.issue(&resource(), token(), 5);
    let verified = keys.verify(&issued.access_key_id).unwrap();
    let shown = format!("{keys:?} {issued:?} {verified:?}");
    assert!(shown.contains(&issued.access_key_id));
    assert!(!shown.contains(&issued.secret_access_key) && !shown.contains("0d0e0f") && !shown.contains("13, 14, 15"));
}

proptest! {
    #[test]
    fn credentials_round_trip(generation in any::<u32>(), number in 1u64.., expires in any::<u64>(), id in any::<u8>()) {
        let keys = MacKeys::new(vec![key(id)]).unwrap();
        let token = Token::new(generation, number).unwrap();
        let issued = keys.issue(&resource(), token, expires);
        let Verified { lease, secret } = keys.verify(&issued.access_key_id).unwrap();
        prop_assert_eq!((lease.token, lease.expires, lease.mac_key), (token, expires, id));
        prop_assert_eq!(secret, issued.secret_access_key);
    }

    #[test]
    fn a_changed_digit_is_refused(at in 2usize..89, digit in "[A-Z2-7]") {
        let keys = MacKeys::new((0..=255).map(key).collect()).unwrap();
        let issued = keys.issue(&resource(), token(), 1_800_000_000).access_key_id;
        let changed = format!("{}{digit}{}", &issued[..at], &issued[at + 1..]);
        prop_assert_eq!(keys.verify(&changed).is_ok(), changed == issued);
    }
}
