//! The word that a wrong one is likely to stand for.

/// Words of other programs, and what commands and options of that meaning are called here. The
/// first one that there is where the word was written is meant.
const MEANINGS: [(&[&str], &[&str]); 22] = [
    (
        &["frames", "frame-size", "frame-sizes", "bytes", "length"],
        &["sizes", "size", "message", "count"],
    ),
    (&["packets", "number", "requests"], &["count"]),
    (
        &["time", "seconds", "duration", "runtime"],
        &["duration", "seconds", "final-duration"],
    ),
    (&["bandwidth", "bitrate", "pps", "speed"], &["rate"]),
    (
        &["parallel", "connections", "threads", "flows"],
        &["streams", "senders"],
    ),
    (&["interval", "stats"], &["stats-interval", "rate"]),
    (&["reverse", "bidir", "bidirectional"], &["direction"]),
    (&["udp", "tcp"], &["protocol"]),
    (&["buffer", "buffers", "sndbuf", "rcvbuf"], &["window"]),
    (&["rounds", "runs", "iterations"], &["repeats"]),
    (&["output", "out", "write"], &["save"]),
    (&["page", "report"], &["html"]),
    (&["cpu", "pin", "affinity"], &["cpus", "placement"]),
    (&["device", "forwarder", "via"], &["through"]),
    (&["compare", "against", "control"], &["beside", "compare"]),
    (&["timeout", "wait"], &["hold", "timeout", "settle"]),
    (&["iperf", "iperf3", "netperf", "tcp"], &["stream"]),
    (&["latency", "rtt", "echo"], &["ping"]),
    (&["pktgen", "flood", "udp"], &["blast"]),
    (&["throughput", "benchmark", "bench"], &["rfc2544"]),
    (
        &["bridge", "join", "run", "start", "connect", "copy"],
        &["forward"],
    ),
    (&["check", "diagnose", "info"], &["doctor"]),
];

/// The one of `known` that `word` is likely to stand for, if there is one: it has the same meaning,
/// letters are wrong in a third of it at most, or it is an abbreviation.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<_> = known.into_iter().collect();
    let same = MEANINGS.iter().filter(|(words, _)| words.contains(&word));
    let mut same = same.flat_map(|(_, names)| *names);
    if let Some(&meant) = same.find_map(|name| known.iter().find(|one| *one == name)) {
        return Some(meant);
    }
    let wrong = |one: &str| strsim::damerau_levenshtein(word, one);
    let is_abbreviation = |one: &str| {
        let mut letters = one.chars();
        word.len() > 2
            && one.chars().next() == word.chars().next()
            && word.chars().all(|c| letters.any(|letter| letter == c))
    };
    let is_like = |one: &&str| 3 * wrong(one) <= one.len().max(3) || is_abbreviation(one);
    let like = known.into_iter().filter(is_like);
    like.min_by_key(|one| wrong(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_one_that_is_like_it_or_means_the_same() {
        let commands = ["forward", "plan", "blast", "ping", "rfc2544"];
        let options = ["a", "sizes", "through", "json", "final-duration"];
        let experiments = ["encap-limit", "tx-dispatch", "lro-sort", "lro-flows"];
        for (word, known, found) in [
            ("fwd", &commands[..], Some("forward")),
            ("forwrad", &commands, Some("forward")),
            ("blst", &commands, Some("blast")),
            ("rfc", &commands, Some("rfc2544")),
            ("latency", &commands, Some("ping")),
            ("nothing", &commands, None),
            ("p", &commands, None),
            ("frames", &options, Some("sizes")),
            ("size", &options, Some("sizes")),
            ("jso", &options, Some("json")),
            ("duration", &options, Some("final-duration")),
            ("rate", &options, None),
            ("tx-dispach", &experiments, Some("tx-dispatch")),
            ("lro-srot", &experiments, Some("lro-sort")),
            ("mine", &experiments, None),
        ] {
            assert_eq!(nearest(word, known.iter().copied()), found, "{word}");
        }
    }
}
