//! The bytes of the format, and texts that are not lease keys.

use super::*;
use proptest::prelude::*;

fn lease(resource: &str) -> LeaseKey {
    LeaseKey {
        mac_key: 7,
        resource: ResourceId::of(&Resource::new(resource).unwrap()),
        token: "2:34".parse().unwrap(),
        expires: 1_800_000_000,
    }
}

/// Format 1, as documented. A different layout needs a new format number.
#[test]
fn the_bytes_are_those_of_the_document() {
    let signed = lease("reports/daily").signed();
    let hex = data_encoding::HEXLOWER.encode(&signed);
    let (head, rest) = hex.split_at(4);
    let (resource, rest) = rest.split_at(32);
    assert_eq!(head, "0107", "format, MAC key");
    assert_eq!(resource, "0aa37d396834d8c7610fe4379990dd1f", "printf reports/daily | sha256sum | head -c 32");
    assert_eq!(rest, "00000002000000000000002200000000 6b49d200".replace(' ', ""), "generation, number, expiry");
}

#[test]
fn a_key_covers_its_own_resource_only() {
    let key = lease("reports/daily");
    assert!(key.covers(&Resource::new("reports/daily").unwrap()));
    for other in ["reports", "reports/daily/1", "reports/Daily", "daily"] {
        assert!(!key.covers(&Resource::new(other).unwrap()), "{other}");
    }
}

#[test]
fn a_key_ends_with_the_second_that_it_names() {
    let key = lease("a");
    assert!(!key.expired(Timestamp(key.expires * 1000 - 1)));
    assert!(key.expired(Timestamp(key.expires * 1000)));
    assert!(!LeaseKey { expires: u64::MAX, ..key }.expired(Timestamp(u64::MAX)));
}

#[test]
fn other_texts_are_no_lease_keys() {
    let good = text(&lease("a").signed(), &[9; MAC_BYTES]);
    assert_eq!(good.len(), 89);
    assert_eq!(read(&good).unwrap().lease, lease("a"));
    let format_2 = text(
        &{
            let mut bytes = lease("a").signed();
            bytes[0] = 2;
            bytes
        },
        &[9; MAC_BYTES],
    );
    let token_0 = text(
        &{
            let mut bytes = lease("a").signed();
            bytes[22..30].fill(0);
            bytes
        },
        &[9; MAC_BYTES],
    );
    // 87 digits hold 435 bits, three more than needed.
    let left_over = format!("{}{}", &good[..88], "B");
    let bad = [
        String::new(),
        "FP".into(),
        "AKIAIOSFODNN7EXAMPLE".into(),
        good.to_lowercase(),
        good.replacen("FP", "fp", 1),
        good.replacen("FP", "FQ", 1),
        good[2..].to_owned(),
        good[..88].to_owned(),
        format!("{good}A"),
        format!("{good}="),
        format!(" {good}"),
        format!("{}8{}", &good[..10], &good[11..]),
        format!("{}é{}", &good[..10], &good[12..]),
        left_over,
        format_2,
        token_0,
    ];
    for bad in bad {
        assert!(read(&bad).is_none(), "{bad}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        mac_key in any::<u8>(), resource in any::<[u8; 16]>(), generation in any::<u32>(), number in 1u64..,
        expires in any::<u64>(), mac in any::<[u8; MAC_BYTES]>(),
    ) {
        let token = Token::new(generation, number).unwrap();
        let lease = LeaseKey { mac_key, resource: ResourceId(resource), token, expires };
        let found = read(&text(&lease.signed(), &mac)).unwrap();
        prop_assert_eq!((found.lease, found.signed, found.mac), (lease, lease.signed(), mac));
    }

    #[test]
    fn what_is_read_has_one_text(digits in "[A-Z2-7]{87}") {
        if let Some(found) = read(&format!("FP{digits}")) {
            prop_assert_eq!(text(&found.signed, &found.mac), format!("FP{digits}"));
        }
    }
}
