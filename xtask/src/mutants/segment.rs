//! Faults in what cuts: `segment.rs` and its folder, `fragment.rs`, the end of `checksum.rs`, and
//! the smallest size that a virtio-net header may ask for.

use super::fault::Fault;

/// The files are below `crates/packtrain-offload/src`.
pub const FAULTS: &[Fault] = &[
    // Limits.
    (
        "segment/check.rs",
        "UDP_SEGMENTS_MAX: u32 = 128;",
        "UDP_SEGMENTS_MAX: u32 = 129;",
    ),
    (
        "segment/check.rs",
        "limits::IP_LENGTH_MAX as u32 / TCP_GSO_SIZE_MIN as u32;",
        "limits::IP_LENGTH_MAX as u32 / 48;",
    ),
    (
        "segment/check.rs",
        "if segments > max {",
        "if segments > max + 1 {",
    ),
    (
        "segment/check.rs",
        "if segments > max {",
        "if segments >= max {",
    ),
    (
        "virtio_net.rs",
        "if size < TCP_GSO_SIZE_MIN =>",
        "if size <= TCP_GSO_SIZE_MIN =>",
    ),
    (
        "virtio_net.rs",
        "if size < TCP_GSO_SIZE_MIN =>",
        "if size < TCP_GSO_SIZE_MIN - 1 =>",
    ),
    // What is refused.
    ("segment.rs", "if layout.fragment {", "if false {"),
    ("segment.rs", "if end > packet_bytes || ", "if "),
    ("segment.rs", " || end < header_bytes {", " {"),
    (
        "segment.rs",
        "if ip.length(transport_bytes + largest) >",
        "if ip.length(largest) >",
    ),
    (
        "segment.rs",
        "            + u32::from(segmenter.header_bytes - segmenter.transport);",
        "            ;",
    ),
    (
        "segment.rs",
        "if outer.length(largest) > u32::from(u16::MAX) {",
        "if outer.length(largest) > u32::from(u16::MAX) + 1 {",
    ),
    (
        "segment.rs",
        "if index >= self.segments {\n\
         \x20           return Err(SegmentError::Index);\n\
         \x20       }\n\
         \x20       let bytes",
        "if index > self.segments {\n\
         \x20           return Err(SegmentError::Index);\n\
         \x20       }\n\
         \x20       let bytes",
    ),
    (
        "segment.rs",
        "if index >= self.segments {\n\
         \x20           return Err(SegmentError::Index);\n\
         \x20       }\n\
         \x20       let range",
        "if index > self.segments {\n\
         \x20           return Err(SegmentError::Index);\n\
         \x20       }\n\
         \x20       let range",
    ),
    ("segment/check.rs", "if layout.kind != network || ", "if "),
    (
        "segment/check.rs",
        " || layout.transport_kind != transport {",
        " {",
    ),
    (
        "segment/check.rs",
        "usize::from(headers[transport + 12] >> 4) * 4 == bytes",
        "usize::from(headers[transport + 12] >> 4) * 4 <= bytes",
    ),
    (
        "segment/check.rs",
        "bytes == UDP_HEADER_BYTES",
        "bytes >= UDP_HEADER_BYTES",
    ),
    (
        "segment/check.rs",
        "header.len() >= IPV6_HEADER_BYTES && ",
        "",
    ),
    ("segment/check.rs", " && header[0] >> 4 == 6", ""),
    (
        "segment/check.rs",
        "usize::from(header[0] & 0x0f) * 4 == header.len()",
        "usize::from(header[0] & 0x0f) * 4 <= header.len()",
    ),
    (
        "segment/check.rs",
        "if segments > 1 && flags & (TCP_SYN | TCP_RST) != 0 {",
        "if segments > 1 && flags & TCP_SYN != 0 {",
    ),
    (
        "segment/check.rs",
        "if segments > 1 && flags & (TCP_SYN | TCP_RST) != 0 {",
        "if segments > 1 && flags & TCP_RST != 0 {",
    ),
    (
        "segment/check.rs",
        "if segments > 1 && flags & (TCP_SYN | TCP_RST) != 0 {",
        "if flags & (TCP_SYN | TCP_RST) != 0 {",
    ),
    ("segment/check.rs", "!= datagram {", "> datagram {"),
    ("segment/check.rs", "!= datagram {", "< datagram {"),
    ("segment/plan.rs", "flags & DF == 0", "flags & DF == 1"),
    ("segment/outer.rs", "if outer.fragment {", "if false {"),
    (
        "segment/outer.rs",
        "outer.protocol == IpProtocol::GRE,",
        "true,",
    ),
    (
        "segment/outer.rs",
        "outer.transport_kind == Transport::Udp,",
        "true,",
    ),
    (
        "segment/outer.rs",
        "if outer.ip_end != inner.ip_end {",
        "if outer.ip_end < inner.ip_end {",
    ),
    (
        "segment/outer.rs",
        "if outer.ip_end != inner.ip_end {",
        "if outer.ip_end > inner.ip_end {",
    ),
    (
        "segment/outer.rs",
        "if u32::from(load(udp, 4)) != l4_bytes {",
        "if false {",
    ),
    ("segment/outer.rs", "if !gre.is_plain() {", "if false {"),
    (
        "segment/outer.rs",
        "if gre.sequence().is_some() {",
        "if false {",
    ),
    // Whose address the pseudo-header has.
    (
        "segment/check.rs",
        "(true, false) => final_destination_v4(headers, layout),",
        "(true, false) => Ok(layout.network + 16),",
    ),
    (
        "segment/check.rs",
        "(true, true) => final_destination_v6(headers, layout),",
        "(true, true) => Ok(layout.network + 24),",
    ),
    ("segment/check.rs", "0 => break,", "0 => at += 1,"),
    ("segment/check.rs", "1 => at += 1,", "1 => break,"),
    ("segment/check.rs", "LOOSE | STRICT if", "LOOSE if"),
    ("segment/check.rs", "LOOSE | STRICT if", "STRICT if"),
    (
        "segment/check.rs",
        " && usize::from(pointer) <= len =>",
        " =>",
    ),
    ("segment/check.rs", "(at + len - 4)", "(at + 3)"),
    ("segment/check.rs", "_ => at += len,", "_ => break,"),
    (
        "segment/check.rs",
        "0 | 2 if len >= 24 => at + len - 16,",
        "0 | 2 if len >= 24 => at + 8,",
    ),
    (
        "segment/check.rs",
        "0 | 2 if len >= 24 => at + len - 16,",
        "2 if len >= 24 => at + len - 16,",
    ),
    (
        "segment/check.rs",
        "4 if len >= 24 => at + 8,",
        "4 if len >= 24 => at + len - 16,",
    ),
    ("segment/check.rs", "next = IpProtocol(following);", ""),
    // Which segment has what.
    (
        "segment.rs",
        "self.sequence.wrapping_add(",
        "self.sequence.saturating_add(",
    ),
    (
        "segment.rs",
        "wrapping_add(index * u32::from(self.size))",
        "wrapping_add(index)",
    ),
    (
        "segment.rs",
        "let first_flags = if index == 0 { self.first_flags } else { 0 };",
        "let first_flags = self.first_flags;",
    ),
    (
        "segment.rs",
        "let first_flags = if index == 0 { self.first_flags } else { 0 };",
        "let first_flags = 0;",
    ),
    (
        "segment.rs",
        "if gso.ecn() != Ecn::Accurate {",
        "if gso.ecn() == Ecn::Cwr {",
    ),
    ("segment.rs", "if gso.ecn() != Ecn::Accurate {", "if true {"),
    (
        "segment.rs",
        "length(largest, TCP_FIN | TCP_PSH)",
        "length(largest, TCP_FIN)",
    ),
    (
        "segment.rs",
        "length(largest, TCP_FIN | TCP_PSH)",
        "length(largest, TCP_PSH)",
    ),
    ("segment.rs", "length(last, 0)", "length(last, TCP_PSH)"),
    ("segment.rs", "length(last, 0)", "length(last, TCP_FIN)"),
    (
        "segment.rs",
        "length(last, 0)",
        "length(last.min(largest) + 1, 0)",
    ),
    (
        "segment.rs",
        "index + 1 == self.segments)]",
        "index == self.segments)]",
    ),
    ("segment.rs", "if gso.fixed_id() {", "if false {"),
    ("segment/plan.rs", "self.counting = 0;", ""),
    (
        "segment/plan.rs",
        "self.id.wrapping_add(narrow(index) & self.counting)",
        "self.id.saturating_add(narrow(index) & self.counting)",
    ),
    (
        "segment/plan.rs",
        "self.id.wrapping_add(narrow(index) & self.counting)",
        "self.id",
    ),
    (
        "segment/outer.rs",
        "self.ip.patch(index, out, narrow(length), sum);",
        "self.ip.patch(0, out, narrow(length), sum);",
    ),
    // Length fields.
    ("segment/plan.rs", "ip.counted -= 40;", ""),
    (
        "segment/plan.rs",
        "store(out, usize::from(self.at) + 4, length);",
        "",
    ),
    (
        "segment.rs",
        "udp[4..6].copy_from_slice(&length.l4_bytes.to_be_bytes());",
        "",
    ),
    (
        "segment/outer.rs",
        "let l4_bytes = u32::from(self.between) + u32::from(inner.l4_bytes);",
        "let l4_bytes = u32::from(inner.l4_bytes);",
    ),
    (
        "segment/outer.rs",
        "Fields::UdpLength => store(out, at + 4, narrow(l4_bytes)),",
        "Fields::UdpLength => {}",
    ),
    (
        "segment/outer.rs",
        "store(out, at + 4, narrow(l4_bytes));",
        "",
    ),
    // Checksums.
    (
        "segment/plan.rs",
        "let pseudo_sum = fold(u32::from(pseudo_sum) + l4_bytes);",
        "",
    ),
    (
        "segment/plan.rs",
        "        } else {\n            l4_bytes\n        };",
        "        } else {\n            0\n        };",
    ),
    (
        "segment.rs",
        "                    + u32::from(first_flags)\n",
        "",
    ),
    ("segment.rs", "                    + (sequence >> 16)\n", ""),
    (
        "segment.rs",
        "(!fold(sum), ChecksumState::Unnecessary)",
        "(checksum::udp_field(!fold(sum)), ChecksumState::Unnecessary)",
    ),
    (
        "segment.rs",
        "(checksum::udp_field(!fold(sum)), ChecksumState::Unnecessary)",
        "(!fold(sum), ChecksumState::Unnecessary)",
    ),
    (
        "segment.rs",
        "if is_udp {\n        checksum::udp_field(field)",
        "if !is_udp {\n        checksum::udp_field(field)",
    ),
    (
        "segment/plan.rs",
        "let mut sum = checksum::sum(&header[..2]);",
        "let mut sum = checksum::Sum::new();",
    ),
    (
        "segment/plan.rs",
        "sum.add(&header[6..10]);",
        "sum.add(&header[6..8]);",
    ),
    (
        "segment/plan.rs",
        "sum.add(&header[12..]);",
        "sum.add(&header[12..20]);",
    ),
    (
        "segment/plan.rs",
        "fold(u32::from(self.sum) + self.length(l4_bytes))",
        "fold(u32::from(self.sum))",
    ),
    (
        "segment/plan.rs",
        "!fold(u32::from(sum) + u32::from(id))",
        "!fold(u32::from(sum))",
    ),
    ("segment/plan.rs", "sum.add_u16(u16::from(protocol.0));", ""),
    ("segment/plan.rs", "sum.add(&header[14..16]);", ""),
    (
        "segment/plan.rs",
        "sum.add(&header[18..]);",
        "sum.add(&header[20..]);",
    ),
    (
        "segment/plan.rs",
        "((sum & 0xFFFF) + (sum >> 16)) as u16",
        "sum as u16",
    ),
    ("segment/outer.rs", "sum.add(&ip[..4]);", ""),
    ("segment/outer.rs", "sum.add(&ip[6..]);", ""),
    (
        "segment/outer.rs",
        "+ u32::from(!inner.pseudo_sum);",
        "+ u32::from(inner.pseudo_sum);",
    ),
    ("segment/outer.rs", "sum += u32::from(inner.ip_length);", ""),
    (
        "segment/outer.rs",
        "checksum::udp_field(!fold(sum + 2 * l4_bytes))",
        "!fold(sum + 2 * l4_bytes)",
    ),
    (
        "segment/outer.rs",
        "!fold(sum + 2 * l4_bytes)",
        "!fold(sum + l4_bytes)",
    ),
    (
        "segment/outer.rs",
        "0 => Fields::UdpLength,",
        "0 => Fields::UdpLengthAndChecksum,",
    ),
    ("segment/outer.rs", "sum.add_u16(pseudo_sum);", ""),
    ("segment/outer.rs", "sum.add(tunnel);", ""),
    (
        "segment/outer.rs",
        "sum.add(&header[gre::field::CHECKSUM + 2..]);",
        "",
    ),
    (
        "checksum.rs",
        "self.odd ^= next.odd;",
        "self.odd = next.odd;",
    ),
    (
        "checksum.rs",
        "let words = if self.odd {",
        "let words = if false {",
    ),
    ("checksum.rs", "sum.add_pieces(rest);", ""),
    (
        "checksum.rs",
        "if offset == UDP_OFFSET {",
        "if offset != UDP_OFFSET {",
    ),
    ("checksum.rs", "if field == 0 {", "if false {"),
    // Fragments.
    ("fragment.rs", "if header.dont_fragment() {", "if false {"),
    (
        "fragment.rs",
        "if matches!(checksum, ChecksumState::Partial { .. }) {",
        "if false {",
    ),
    (
        "fragment.rs",
        "if mtu < IPV4_MTU_MIN as u32 {",
        "if mtu <= IPV4_MTU_MIN as u32 {",
    ),
    (
        "fragment.rs",
        "if layout.ip_end - network <= mtu {",
        "if layout.ip_end - network < mtu {",
    ),
    ("fragment.rs", "if reaches > (", "if reaches >= ("),
    ("fragment.rs", "if reaches > (", "if reaches > 8 + ("),
    (
        "fragment.rs",
        "!payload_bytes.is_multiple_of(8))",
        "!payload_bytes.is_multiple_of(4))",
    ),
    (
        "fragment.rs",
        ".map(|bytes| (mtu - (u32::from(bytes) - network)) & !7);",
        ".map(|bytes| mtu - (u32::from(bytes) - network));",
    ),
    (
        "fragment.rs",
        "(payload_bytes - made.step[0]).div_ceil(made.step[1])",
        "(payload_bytes - made.step[0]) / made.step[1]",
    ),
    ("fragment.rs", "if self.fragments == 1 {\n", "if false {\n"),
    ("fragment.rs", "out[network] = 0x40 | words as u8;", ""),
    (
        "fragment.rs",
        "(payload.start - u32::from(self.header_bytes[0])) / 8;",
        "(payload.start - u32::from(self.header_bytes[1])) / 8;",
    ),
    (
        "fragment.rs",
        "let more = if index + 1 < self.fragments {",
        "let more = if index < self.fragments {",
    ),
    (
        "fragment.rs",
        "(self.word & FRAGMENT_OFFSET_MASK) + units as u16",
        "units as u16",
    ),
    (
        "fragment.rs",
        "self.word & !FRAGMENT_OFFSET_MASK | more | offset",
        "more | offset",
    ),
    (
        "fragment.rs",
        "ip.set_total_len((bytes - network + payload.len()) as u16);",
        "",
    ),
    ("fragment.rs", "ip.fill_checksum();", ""),
    ("fragment.rs", "option.kind & 0x80 != 0", "true"),
    ("fragment.rs", "to[1] = to.len() as u8;", ""),
    ("fragment.rs", "rest.fill(OPTION_END);", ""),
    (
        "segment/mtu.rs",
        "if ip_bytes <= mtu {",
        "if ip_bytes < mtu {",
    ),
    (
        "segment/mtu.rs",
        "Some(flags) if flags & DF == 0 =>",
        "Some(_) =>",
    ),
    (
        "segment/mtu.rs",
        "ip.begin(), self.ip_bytes_max(), mtu)",
        "ip.begin(), self.payload_bytes, mtu)",
    ),
    (
        "segment/mtu.rs",
        "self.outer.as_ref().map_or(&self.ip, |outer| &outer.ip)",
        "&self.ip",
    ),
];
