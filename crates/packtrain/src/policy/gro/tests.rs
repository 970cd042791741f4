use super::*;
use packtrain_offload::coalesce::Semantics;
use packtrain_offload::offload::LinkType;
use proptest::prelude::*;

#[test]
fn the_text_of_a_flush_is_what_is_parsed() {
    for (text, flush) in [
        ("off", Flush::Off),
        ("usecs(1)", Flush::Usecs(1)),
        ("usecs(10000)", Flush::Usecs(USECS_MAX)),
        ("packets(1)", Flush::Packets(1)),
        ("packets(65536)", Flush::Packets(65_536)),
    ] {
        assert_eq!(text.parse(), Ok(flush));
        assert_eq!(flush.to_string(), text);
    }
    assert_eq!(Flush::default(), Flush::Off);
}

#[test]
fn what_is_wrong_with_a_flush_is_said_in_one_line() {
    for (text, why) in [
        ("sometimes", "'sometimes' is not known"),
        ("off(1)", "'off(1)' has arguments, but 'off' takes none"),
        ("usecs", "'usecs' lacks the arguments of 'usecs'"),
        (
            "usecs(0)",
            "'usecs(0)' has '0' for n, which is a number from 1 to 10000",
        ),
        (
            "usecs(10001)",
            "'usecs(10001)' has '10001' for n, which is a number from 1 to 10000",
        ),
        (
            "packets(65537)",
            "'packets(65537)' has '65537' for n, which is a number from 1 to 65536",
        ),
        ("packets(8", "'packets(8' does not end with its parenthesis"),
    ] {
        let error = text.parse::<Flush>().unwrap_err().to_string();
        assert_eq!(error, format!("gro-flush {why}; write {TAKES}"));
    }
}

/// Settings are limits of the coalescer; what is not set stays.
#[test]
fn limits_that_are_not_set_stay() {
    for semantics in [Semantics::Reversible, Semantics::Stream] {
        let usual = Config::new(semantics, LinkType::Ethernet, 77);
        assert_eq!(Gro::default().limit(usual), usual);
        let set = Gro {
            flows: Some(8),
            bytes: Some(9000),
            packets: Some(64),
            ack_limit: Some(3),
            ..Gro::default()
        };
        let mut expected = usual;
        (expected.flows, expected.max_bytes) = (8, 9000);
        (expected.queue, expected.ack_limit) = (64, 3);
        assert_eq!(set.limit(usual), expected);
    }
}

proptest! {
    /// A longer time or more packets never make a flush less due, and `off` is never due.
    #[test]
    fn a_flush_that_is_due_stays_due(
        n in PACKETS,
        usecs in 1..=USECS_MAX,
        held in any::<u32>(),
        packets in any::<u64>(),
        more in any::<u32>(),
    ) {
        let (held, more) = (Duration::from_nanos(held.into()), u64::from(more));
        let later = held + Duration::from_nanos(more);
        for flush in [Flush::Usecs(usecs), Flush::Packets(n)] {
            prop_assert!(!flush.is_due(held, packets)
                || flush.is_due(later, packets.saturating_add(more)));
        }
        prop_assert_eq!(Flush::Packets(n).is_due(held, packets), packets >= u64::from(n));
        let is_old = held.as_micros() >= usecs.into();
        prop_assert_eq!(Flush::Usecs(usecs).is_due(held, packets), is_old);
        prop_assert!(!Flush::Off.is_due(held, packets));
    }
}
