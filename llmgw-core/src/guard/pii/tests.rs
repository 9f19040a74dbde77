use super::*;

fn all(kind: PiiKind, text: &str) -> Vec<String> {
    let (find, longest) = finder(kind).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(range) = find(text.as_bytes(), at..text.len()) {
        assert!(range.len() <= longest, "{text}");
        assert!(may_have(kind, text.as_bytes()), "{text}");
        found.push(text.get(range.clone()).unwrap().to_owned());
        at = range.end;
    }
    found
}

fn none(kind: PiiKind, texts: &[&str]) {
    for text in texts {
        assert!(all(kind, text).is_empty(), "{text}: {:?}", all(kind, text));
    }
}

#[test]
fn cards_are_known_by_issuer_length_and_check_digit() {
    for (text, card) in [
        ("pay 4111111111111111 now", "4111111111111111"),
        ("4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("x 5500-0000-0000-0004.", "5500-0000-0000-0004"),
        ("3782 822463 10005", "3782 822463 10005"),
        ("id 12 4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("(6011000990139424)", "6011000990139424"),
        ("ä4111111111111111 4222222222222", "4222222222222"),
        ("2223003122003222", "2223003122003222"),
    ] {
        assert_eq!(all(PiiKind::Card, text), [card], "{text}");
    }
    none(
        PiiKind::Card,
        &[
            "4111111111111112",
            "41111111111111111",
            "411111111111111",
            "4111 1111 11111111",
            "4111 1111-1111 1111",
            "a4111111111111111",
            "4111111111111111b",
            "0.4111111111111111",
            "1764593482000000000",
            "1234567890123452",
            "0000000000000000",
            "4111",
            "4111 ",
        ],
    );
    let two = "4111111111111111 4111 1111 1111 1111";
    assert_eq!(all(PiiKind::Card, two).len(), 2);
}

#[test]
fn social_security_numbers_are_those_that_are_given_out() {
    assert_eq!(all(PiiKind::Ssn, "it is 123-45-6789."), ["123-45-6789"]);
    none(
        PiiKind::Ssn,
        &[
            "000-45-6789",
            "666-45-6789",
            "923-45-6789",
            "123-00-6789",
            "123-45-0000",
        ],
    );
    none(
        PiiKind::Ssn,
        &[
            "123456789",
            "1123-45-6789",
            "123-45-67890",
            "9-123-45-6789",
            "123-45-6789-1",
            "123-45-678",
        ],
    );
}

#[test]
fn phones_are_international_or_in_three_groups() {
    for (text, phone) in [
        ("call +49 30 901820 now", "+49 30 901820"),
        ("+1 (415) 555-2671", "+1 (415) 555-2671"),
        ("(415) 555-2671", "(415) 555-2671"),
        ("415.555.2671", "415.555.2671"),
        ("+4930901820,", "+4930901820"),
    ] {
        assert_eq!(all(PiiKind::Phone, text), [phone], "{text}");
    }
    none(
        PiiKind::Phone,
        &[
            "+1",
            "+12345",
            "415-555-267",
            "115-555-2671",
            "415 555.2671",
            "2026-12-01",
            "+1234567890123456",
            "a+4930901820",
        ],
    );
}

#[test]
fn bank_accounts_have_the_length_of_their_country_and_pass_mod_97() {
    for (text, iban) in [
        ("to DE89370400440532013000.", "DE89370400440532013000"),
        ("DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 00"),
        ("GB82 WEST 1234 5698 7654 32", "GB82 WEST 1234 5698 7654 32"),
        ("NO9386011117947", "NO9386011117947"),
        (
            "MT84MALT011000012345MTLCAST001S",
            "MT84MALT011000012345MTLCAST001S",
        ),
    ] {
        assert_eq!(all(PiiKind::Iban, text), [iban], "{text}");
    }
    none(
        PiiKind::Iban,
        &[
            "DE88370400440532013000",
            "DE8937040044053201300",
            "DE893704004405320130000",
            "de89370400440532013000",
            "XDE89370400440532013000",
            "DE89 37040 044 0532 0130 00",
            "ZZ89370400440532013000",
        ],
    );
}

#[test]
fn addresses_of_mail_and_networks_are_found_whole() {
    assert_eq!(
        all(PiiKind::Email, "write to a.b+c@mail.example.com."),
        ["a.b+c@mail.example.com"]
    );
    assert_eq!(all(PiiKind::Email, "<x@y.zz>,q@r.st").len(), 2);
    none(
        PiiKind::Email,
        &[
            "@user", "a@b", "a@b.c", "a@.com", "a@b..com", "a@b.c0m", "@",
        ],
    );
    let long = format!("{}@x.com", "a".repeat(65));
    none(PiiKind::Email, &[&long]);
    assert_eq!(all(PiiKind::Ipv4, "from 192.168.0.1."), ["192.168.0.1"]);
    assert_eq!(
        all(PiiKind::Ipv4, "10.0.0.1:80 8.8.8.8"),
        ["10.0.0.1", "8.8.8.8"]
    );
    none(
        PiiKind::Ipv4,
        &[
            "1.2.3",
            "1.2.3.4.5",
            "256.1.1.1",
            "v1.2.3.4",
            "1.2.3.4a",
            "01.2.3.4",
        ],
    );
    assert_eq!(all(PiiKind::Ipv6, "[2001:db8::1]:80"), ["2001:db8::1"]);
    assert_eq!(
        all(PiiKind::Ipv6, "::ffff:192.0.2.128."),
        ["::ffff:192.0.2.128"]
    );
    none(
        PiiKind::Ipv6,
        &[
            "std::vector",
            "12:30:45",
            "a::b",
            "::1",
            "2001:db8::1g",
            "::",
            ":",
        ],
    );
}
