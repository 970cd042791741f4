//! The kernel's protocol counters of a namespace, from `/proc/thread-self/net`.

use std::fs;
use std::io;

use crate::error::LabError;
use crate::link::LinkStats;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident = $group:literal $name:literal,)*) => {
        /// Protocol counters at one moment, or a difference of two moments.
        ///
        /// Names and meanings are the kernel's (`snmp`, `snmp6`, `netstat` of `/proc/net`). A
        /// counter that the kernel does not have (IPv6 switched off) is 0. TCP counts IPv4 and
        /// IPv6 together, UDP separately.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            /// The growth since `earlier`, a snapshot of the same namespace.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }

            /// Every counter with the name that nstat(8) prints, such as `TcpExtTCPHPHits`.
            pub fn nstat(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((nstat_name(concat!($group, $name)), self.$field),)*].into_iter()
            }

            fn set(&mut self, group: &str, name: &str, value: u64) {
                match (group, name) {
                    $(($group, $name) => self.$field = value,)*
                    _ => {}
                }
            }
        }
    };
}

counters! {
    /// Segments received, in error or not. A frame that the kernel merged counts as the
    /// segments in it, a GSO frame written into a TAP as one.
    tcp_in_segs = "Tcp" "InSegs",
    /// Segments sent, without retransmissions; a GSO packet counts as the segments in it.
    tcp_out_segs = "Tcp" "OutSegs",
    /// Segments retransmitted.
    tcp_retrans_segs = "Tcp" "RetransSegs",
    /// Segments received in error, bad checksums included.
    tcp_in_errs = "Tcp" "InErrs",
    /// Segments received with a bad checksum.
    tcp_in_csum_errors = "Tcp" "InCsumErrors",
    /// Resets sent.
    tcp_out_rsts = "Tcp" "OutRsts",
    /// Segments that arrived out of order and were queued: reordering or loss on the way.
    tcp_ofo_queue = "TcpExt" "TCPOFOQueue",
    /// Retransmission timeouts.
    tcp_timeouts = "TcpExt" "TCPTimeouts",
    /// Tail loss probes sent: new data, or the last segment again, which `RetransSegs` counts, too.
    tcp_loss_probes = "TcpExt" "TCPLossProbes",
    /// Spurious retransmission timeouts.
    tcp_spurious_rtos = "TcpExt" "TCPSpuriousRTOs",
    /// Reports received of duplicate segments (DSACK, RFC 2883).
    tcp_dsack_recv = "TcpExt" "TCPDSACKRecv",
    /// Segments in those reports (Linux 5.10).
    tcp_dsack_recv_segs = "TcpExt" "TCPDSACKRecvSegs",
    /// Packets dropped because a socket's receive queue was full.
    tcp_rcv_q_drop = "TcpExt" "TCPRcvQDrop",
    /// Packets dropped because they arrived while the window was closed.
    tcp_zero_window_drop = "TcpExt" "TCPZeroWindowDrop",
    /// Packets dropped because a socket's backlog was full.
    tcp_backlog_drop = "TcpExt" "TCPBacklogDrop",
    /// Packets pruned from receive queues for lack of buffer space.
    tcp_rcv_pruned = "TcpExt" "RcvPruned",
    /// Segments that arrived in order and carried data only: the fast path of header prediction.
    tcp_hp_hits = "TcpExt" "TCPHPHits",
    /// Acknowledgements without data that did not take the fast path.
    tcp_pure_acks = "TcpExt" "TCPPureAcks",
    /// Acknowledgements of the fast path, for data that was sent.
    tcp_hp_acks = "TcpExt" "TCPHPAcks",
    /// Segments merged with the one before them in a socket's backlog (Linux 5.0).
    tcp_backlog_coalesce = "TcpExt" "TCPBacklogCoalesce",
    /// Segments merged with the one before them in a socket's receive queue.
    tcp_rcv_coalesce = "TcpExt" "TCPRcvCoalesce",
    /// Acknowledgements that the delayed ACK timer sent.
    delayed_acks = "TcpExt" "DelayedACKs",
    /// Times that the delayed ACK timer found the socket in use.
    delayed_ack_locked = "TcpExt" "DelayedACKLocked",
    /// Datagrams delivered over IPv4.
    udp_in_datagrams = "Udp" "InDatagrams",
    /// Datagrams sent over IPv4; a GSO send counts once.
    udp_out_datagrams = "Udp" "OutDatagrams",
    /// Datagrams for which no socket was open (IPv4).
    udp_no_ports = "Udp" "NoPorts",
    /// Datagrams not delivered for any other reason (IPv4).
    udp_in_errors = "Udp" "InErrors",
    /// Datagrams dropped because the socket's buffer was full (IPv4).
    udp_rcvbuf_errors = "Udp" "RcvbufErrors",
    /// Datagrams with a bad checksum (IPv4).
    udp_in_csum_errors = "Udp" "InCsumErrors",
    /// Datagrams delivered over IPv6.
    udp6_in_datagrams = "Ip6" "Udp6InDatagrams",
    /// Datagrams sent over IPv6; a GSO send counts once.
    udp6_out_datagrams = "Ip6" "Udp6OutDatagrams",
    /// Datagrams for which no socket was open (IPv6).
    udp6_no_ports = "Ip6" "Udp6NoPorts",
    /// Datagrams not delivered for any other reason (IPv6).
    udp6_in_errors = "Ip6" "Udp6InErrors",
    /// Datagrams dropped because the socket's buffer was full (IPv6).
    udp6_rcvbuf_errors = "Ip6" "Udp6RcvbufErrors",
    /// Datagrams with a bad checksum (IPv6).
    udp6_in_csum_errors = "Ip6" "Udp6InCsumErrors",
    /// IPv4 packets received; one that carries several segments counts once.
    ip_in_receives = "Ip" "InReceives",
    /// IPv4 packets delivered to a protocol.
    ip_in_delivers = "Ip" "InDelivers",
    /// IPv4 packets that this host tried to send.
    ip_out_requests = "Ip" "OutRequests",
    /// IPv4 packets with a bad header, bad header checksums included.
    ip_in_hdr_errors = "Ip" "InHdrErrors",
    /// IPv4 packets dropped although they had no error.
    ip_in_discards = "Ip" "InDiscards",
    /// IPv4 packets with a bad header checksum.
    ip_in_csum_errors = "IpExt" "InCsumErrors",
    /// IPv4 packets shorter than their header says.
    ip_in_truncated_pkts = "IpExt" "InTruncatedPkts",
    /// IPv6 packets received; one that carries several segments counts once.
    ip6_in_receives = "Ip6" "Ip6InReceives",
    /// IPv6 packets delivered to a protocol.
    ip6_in_delivers = "Ip6" "Ip6InDelivers",
    /// IPv6 packets that this host tried to send.
    ip6_out_requests = "Ip6" "Ip6OutRequests",
    /// IPv6 packets with a bad header.
    ip6_in_hdr_errors = "Ip6" "Ip6InHdrErrors",
    /// IPv6 packets shorter than their header says.
    ip6_in_truncated_pkts = "Ip6" "Ip6InTruncatedPkts",
    /// IPv6 packets dropped although they had no error.
    ip6_in_discards = "Ip6" "Ip6InDiscards",
    /// ICMP messages received.
    icmp_in_msgs = "Icmp" "InMsgs",
    /// ICMP messages sent.
    icmp_out_msgs = "Icmp" "OutMsgs",
    /// ICMPv6 messages received.
    icmp6_in_msgs = "Ip6" "Icmp6InMsgs",
    /// ICMPv6 messages sent: neighbour discovery, router solicitation and MLD are among them.
    icmp6_out_msgs = "Ip6" "Icmp6OutMsgs",
}

/// The name in nstat(8) of a group and a name: IPv6's have their group in the name.
fn nstat_name(both: &'static str) -> &'static str {
    match both.strip_prefix("Ip6") {
        Some(name) => name,
        None => both,
    }
}

impl Counters {
    /// Reads the counters of the calling thread's namespace. The files are read one after the
    /// other, so under traffic their moments differ by some microseconds.
    ///
    /// # Errors
    /// [`LabError::Os`] when a file cannot be read; [`LabError::Answer`] if its form is not
    /// the known one.
    pub fn read() -> Result<Self, LabError> {
        let mut counters = Self::default();
        counters.parse_tables(&read("snmp")?)?;
        counters.parse_tables(&read("netstat")?)?;
        counters.parse_snmp6(&read("snmp6")?)?;
        Ok(counters)
    }

    /// The form of `snmp` and `netstat`: pairs of lines `Group: Name…` and `Group: value…`.
    fn parse_tables(&mut self, text: &str) -> Result<(), LabError> {
        const BAD: LabError = LabError::Answer("/proc/net/snmp or netstat");
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let (group, names) = names.split_once(':').ok_or(BAD)?;
            let (same, values) = values.split_once(':').ok_or(BAD)?;
            if group != same {
                return Err(BAD);
            }
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // Signed values exist (Tcp MaxConn is -1); this file reads none of them.
                if let Ok(value) = value.parse() {
                    self.set(group, name, value);
                }
            }
        }
        Ok(())
    }

    /// The form of `snmp6`: lines `Name value`.
    fn parse_snmp6(&mut self, text: &str) -> Result<(), LabError> {
        const BAD: LabError = LabError::Answer("/proc/net/snmp6");
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                return Err(BAD);
            };
            self.set("Ip6", name, value.parse().map_err(|_| BAD)?);
        }
        Ok(())
    }
}

/// The counters of every interface of the calling thread's namespace, from `/proc/net/dev`: name
/// and counters, in the kernel's order.
///
/// # Errors
/// [`LabError::Os`] when the file cannot be read; [`LabError::Answer`] if its form is unknown.
pub fn devices() -> Result<Vec<(String, LinkStats)>, LabError> {
    parse_devices(&read("dev")?)
}

fn parse_devices(text: &str) -> Result<Vec<(String, LinkStats)>, LabError> {
    const BAD: LabError = LabError::Answer("/proc/net/dev");
    // Two heading lines, then `name: 8 receive columns, 8 transmit columns`.
    let rows = text.lines().skip(2).map(|line| {
        let (name, values) = line.split_once(':').ok_or(BAD)?;
        let values: Vec<u64> = values
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| BAD)?;
        let [
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            _,
            rx_frame,
            _,
            _,
            tx @ ..,
        ] = values.as_slice()
        else {
            return Err(BAD);
        };
        let [tx_bytes, tx_packets, tx_errors, tx_dropped, ..] = tx else {
            return Err(BAD);
        };
        let stats = LinkStats {
            rx_packets: *rx_packets,
            rx_bytes: *rx_bytes,
            rx_errors: *rx_errors,
            rx_dropped: *rx_dropped,
            rx_frame_errors: *rx_frame,
            tx_packets: *tx_packets,
            tx_bytes: *tx_bytes,
            tx_errors: *tx_errors,
            tx_dropped: *tx_dropped,
        };
        Ok((name.trim().to_owned(), stats))
    });
    rows.collect()
}

fn read(file: &str) -> Result<String, LabError> {
    match fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
        // Without IPv6 there is no snmp6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        result => result.map_err(LabError::from_io("read /proc/thread-self/net")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives InHdrErrors InDelivers OutRequests
Ip: 2 64 11 1 10 12
Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 -1 100 90 3 5 2 4
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: 7 1 2 8 1 0 1
";

    #[test]
    fn tables_are_read_by_name() {
        let mut counters = Counters::default();
        counters.parse_tables(SNMP).unwrap();
        counters
            .parse_tables("TcpExt: A TCPOFOQueue\nTcpExt: 1 6\n")
            .unwrap();
        counters
            .parse_snmp6("Ip6InReceives   \t 21\nUdp6InCsumErrors\t22\nIcmp6OutMsgs 23\n")
            .unwrap();
        let expected = Counters {
            ip_in_receives: 11,
            ip_in_hdr_errors: 1,
            ip_in_delivers: 10,
            ip_out_requests: 12,
            tcp_in_segs: 100,
            tcp_out_segs: 90,
            tcp_retrans_segs: 3,
            tcp_in_errs: 5,
            tcp_out_rsts: 2,
            tcp_in_csum_errors: 4,
            tcp_ofo_queue: 6,
            udp_in_datagrams: 7,
            udp_no_ports: 1,
            udp_in_errors: 2,
            udp_out_datagrams: 8,
            udp_rcvbuf_errors: 1,
            udp_in_csum_errors: 1,
            ip6_in_receives: 21,
            udp6_in_csum_errors: 22,
            icmp6_out_msgs: 23,
            ..Counters::default()
        };
        assert_eq!(counters, expected);
        let difference = expected.since(&Counters {
            tcp_in_segs: 40,
            ..Counters::default()
        });
        assert_eq!(difference.tcp_in_segs, 60);
        assert_eq!(difference.tcp_out_segs, 90);
        assert!(difference.nstat().any(|row| row == ("TcpInSegs", 60)));
    }

    #[test]
    fn unknown_forms_are_errors_not_panics() {
        let mut counters = Counters::default();
        assert!(counters.parse_tables("Ip: A\nTcp: 1\n").is_err());
        assert!(counters.parse_tables("nothing\nhere\n").is_err());
        assert!(counters.parse_snmp6("Ip6InReceives\n").is_err());
        assert!(counters.parse_snmp6("Ip6InReceives x\n").is_err());
        assert!(parse_devices("a\nb\nlo: 1 2 3\n").is_err());
        assert!(parse_devices("a\nb\nlo 1 2 3\n").is_err());
        assert_eq!(parse_devices(""), Ok(vec![]));
    }

    #[test]
    fn device_rows_are_read() {
        let text = "Inter-| Receive | Transmit\n face |bytes\n\
                    tap0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let rows = parse_devices(text).unwrap();
        let expected = LinkStats {
            rx_bytes: 1,
            rx_packets: 2,
            rx_errors: 3,
            rx_dropped: 4,
            rx_frame_errors: 6,
            tx_bytes: 9,
            tx_packets: 10,
            tx_errors: 11,
            tx_dropped: 12,
        };
        assert_eq!(rows, vec![("tap0".to_owned(), expected)]);
    }

    #[test]
    fn this_kernel_is_understood() {
        let counters = Counters::read().unwrap();
        // Every column must be found: a renamed one would always read as 0.
        let mut there = BTreeSet::new();
        for file in ["snmp", "netstat"] {
            let text = read(file).unwrap();
            let heads = text
                .lines()
                .step_by(2)
                .filter_map(|head| head.split_once(':'));
            for (group, names) in heads {
                let names = names.split_whitespace();
                there.extend(names.map(|name| format!("{group}{name}")));
            }
        }
        let ipv6 = read("snmp6").unwrap();
        let names = ipv6
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        there.extend(names.map(str::to_owned));
        for (name, _) in counters.nstat() {
            let is_off = ipv6.is_empty() && name.contains('6');
            assert!(there.contains(name) || is_off, "{name} is not in {there:?}");
        }
        assert!(devices().unwrap().iter().any(|(name, _)| name == "lo"));
    }
}
