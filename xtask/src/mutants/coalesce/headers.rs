//! What is read in headers, compared of them, and decided by them.

use super::super::fault::Fault;

pub const FAULTS: &[Fault] = &[
    (
        "rules.rs",
        "TCP_URG | TCP_PSH | TCP_RST | TCP_SYN | TCP_FIN",
        "TCP_URG | TCP_PSH | TCP_RST | TCP_SYN",
    ),
    (
        "rules.rs",
        "new.payload_bytes < u32::from(TCP_GSO_SIZE_MIN)",
        "new.payload_bytes < u32::from(TCP_GSO_SIZE_MIN) - 1",
    ),
    (
        "rules.rs",
        "if bytes > config.max_bytes {",
        "if bytes >= config.max_bytes {",
    ),
    ("rules.rs", "== [1, 1, 8, 10]", "!= [0, 0, 0, 0]"),
    (
        "rules.rs",
        "Semantics::Reversible => TCP_URG | TCP_RST | TCP_SYN | TCP_CWR,",
        "Semantics::Reversible => TCP_URG | TCP_RST | TCP_SYN,",
    ),
    (
        "rules.rs",
        "if new.seq != held.next_seq || new.payload_bytes == 0 {",
        "if new.seq != held.next_seq {",
    ),
    (
        "rules.rs",
        "> config.max_bytes {\n\
         \x20       return Verdict::Refuse(FlushReason::Full);\n\
         \x20   }\n\
         \x20   let Some(ids) = identification(config, held, new) else {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   };\n\
         \x20   let then = if new.flags",
        "> config.max_bytes + 1 {\n\
         \x20       return Verdict::Refuse(FlushReason::Full);\n\
         \x20   }\n\
         \x20   let Some(ids) = identification(config, held, new) else {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   };\n\
         \x20   let then = if new.flags",
    ),
    (
        "rules.rs",
        "usize::from(held.count) + 1 >= UDP_GSO_SEGMENTS_MAX",
        "usize::from(held.count) >= UDP_GSO_SEGMENTS_MAX",
    ),
    (
        "rules.rs",
        "first.wrapping_add(held.count)",
        "first.saturating_add(held.count)",
    ),
    (
        "rules.rs",
        "Ids::Fixed | Ids::Undecided if fixed",
        "Ids::Fixed | Ids::Counting | Ids::Undecided if fixed",
    ),
    ("rules.rs", "if held.ids == Ids::Sealed {", "if false {"),
    (
        "rules.rs",
        "if new.seq != held.next_seq || before(ack, was) {",
        "if new.seq != held.next_seq {",
    ),
    (
        "rules.rs",
        "&& window <= load16(held_head, transport + 14)",
        "&& window == load16(held_head, transport + 14)",
    ),
    (
        "rules.rs",
        "held.count >= config.ack_limit",
        "held.count > config.ack_limit",
    ),
    ("rules.rs", "(a.wrapping_sub(b) as i32) < 0", "a < b"),
    (
        "rules.rs",
        "head[transport + 14..transport + 16].copy_from_slice(&self.window);",
        "",
    ),
    (
        "rules.rs",
        "> config.max_bytes {\n\
         \x20       return Verdict::Refuse(FlushReason::Full);\n\
         \x20   }\n\
         \x20   let Some(ids) = identification(config, held, new) else {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   };\n\
         \x20   let then = if new.payload",
        "> config.max_bytes + 1 {\n\
         \x20       return Verdict::Refuse(FlushReason::Full);\n\
         \x20   }\n\
         \x20   let Some(ids) = identification(config, held, new) else {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   };\n\
         \x20   let then = if new.payload",
    ),
    ("rules.rs", "if !config.tcp {", "if false {"),
    ("rules.rs", "} else if !config.udp {", "} else if false {"),
    (
        "rules.rs",
        "} else if new.payload_bytes == 0 {\n        Start::Pass(NotTaken::Payload)",
        "} else if false {\n        Start::Pass(NotTaken::Payload)",
    ),
    (
        "rules.rs",
        "new.flags & !TCP_PSH != TCP_ACK || more != 0",
        "new.flags & !TCP_PSH != TCP_ACK",
    ),
    (
        "rules.rs",
        "new.flags & !TCP_PSH != TCP_ACK || more != 0",
        "new.flags != TCP_ACK || more != 0",
    ),
    (
        "rules.rs",
        "TCP_URG | TCP_RST | TCP_SYN | TCP_CWR,",
        "TCP_RST | TCP_SYN | TCP_CWR,",
    ),
    (
        "rules.rs",
        "TCP_URG | TCP_RST | TCP_SYN | TCP_CWR,",
        "TCP_URG | TCP_SYN | TCP_CWR,",
    ),
    (
        "rules.rs",
        "TCP_URG | TCP_RST | TCP_SYN | TCP_CWR,",
        "TCP_URG | TCP_RST | TCP_CWR,",
    ),
    (
        "rules.rs",
        "Semantics::Stream => !(TCP_ACK | TCP_PSH),",
        "Semantics::Stream => !(TCP_ACK | TCP_PSH | TCP_FIN),",
    ),
    (
        "rules.rs",
        "None => new.shape.header_bytes() - new.shape.transport() == 20,",
        "None => true,",
    ),
    (
        "rules.rs",
        "|| new.payload_bytes == 0 {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   }\n\
         \x20   if new.payload_bytes > size {",
        "|| new.payload_bytes == 0 {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   }\n\
         \x20   if new.payload_bytes > size + 1 {",
    ),
    (
        "rules.rs",
        "if new.payload_bytes == 0 {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   }\n\
         \x20   if new.payload_bytes > size {",
        "if new.payload_bytes == 0 {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   }\n\
         \x20   if new.payload_bytes > size + 1 {",
    ),
    (
        "rules.rs",
        "if new.payload_bytes == 0 {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   }\n\
         \x20   if new.payload_bytes > size {",
        "if false {\n\
         \x20       return Verdict::Refuse(FlushReason::Order);\n\
         \x20   }\n\
         \x20   if new.payload_bytes > size {",
    ),
    (
        "rules.rs",
        "> config.max_bytes || held.count >=",
        "> config.max_bytes + 1 || held.count >=",
    ),
    (
        "rules.rs",
        "let then = if new.flags & (TCP_FIN | TCP_PSH) != 0 {",
        "let then = if new.flags & TCP_FIN != 0 {",
    ),
    (
        "rules.rs",
        "let then = if new.flags & (TCP_FIN | TCP_PSH) != 0 {",
        "let then = if new.flags & TCP_PSH != 0 {",
    ),
    (
        "rules.rs",
        "} else if new.payload_bytes < size {",
        "} else if false {",
    ),
    (
        "rules.rs",
        "let then = if new.payload_bytes < size {",
        "let then = if false {",
    ),
    (
        "rules.rs",
        " && held.template[network + 6] & IPV4_DF != 0",
        "",
    ),
    ("rules.rs", " && config.fixed_id;", ";"),
    (
        "rules.rs",
        "Ids::Counting | Ids::Undecided if counted",
        "Ids::Counting | Ids::Fixed | Ids::Undecided if counted",
    ),
    (
        "rules.rs",
        "before(load32(head, at + 4), load32(held_head, at + 4))",
        "false",
    ),
    (
        "rules.rs",
        "        && new.payload_bytes == 0\n        && load32(head, new",
        "        && load32(head, new",
    ),
    (
        "rules.rs",
        "new.shape.transport() + 8) == load32(held_head, held",
        "new.shape.transport() + 8) >= load32(held_head, held",
    ),
    (
        "rules.rs",
        "head[transport + 8..transport + 12].copy_from_slice(&self.acknowledgement);",
        "",
    ),
    (
        "rules.rs",
        "head[at + 4..at + 12].copy_from_slice(&self.timestamps);",
        "",
    ),
    ("parse.rs", "if layout.fragment {", "if false {"),
    (
        "parse.rs",
        "if (layout.network | layout.transport | layout.payload) % 2 == 1 {",
        "if false {",
    ),
    ("parse.rs", "layout.source_routed || (", "("),
    (
        "parse.rs",
        "(!strict && transport - network != 40)",
        "false",
    ),
    (
        "parse.rs",
        "(!strict && transport - network != 40)",
        "(transport - network != 40)",
    ),
    ("parse.rs", "transport - network != 20 || load16", "load16"),
    (
        "header.rs",
        "IPV4_NOT_DF: u16 = 0xBFFF;",
        "IPV4_NOT_DF: u16 = 0x3FFF;",
    ),
    (
        "parse.rs",
        "load16(head, network + 6) & IPV4_NOT_DF != 0",
        "false",
    ),
    ("parse.rs", "if packet.gso().is_some() {", "if false {"),
    (
        "parse.rs",
        "if strict && self.ip_end != packet.bytes() {",
        "if false {",
    ),
    (
        "parse.rs",
        "if strict && self.ip_end != packet.bytes() {",
        "if self.ip_end != packet.bytes() {",
    ),
    ("parse.rs", "if !ipv4_header_is_right(ip) {", "if false {"),
    (
        "parse.rs",
        "if strict && [ip[10], ip[11]] == [0xFF; 2] {",
        "if false {",
    ),
    (
        "parse.rs",
        "if strict && [ip[10], ip[11]] == [0xFF; 2] {",
        "if [ip[10], ip[11]] == [0xFF; 2] {",
    ),
    (
        "parse.rs",
        "if !tcp && u32::from(self.udp_length) != self.ip_end - u32::from(self.transport) {",
        "if false {",
    ),
    ("parse.rs", "start == self.transport && offset", "offset"),
    (
        "parse.rs",
        "start == self.transport && offset == if tcp { 16 } else { 6 };",
        "start == self.transport;",
    ),
    ("parse.rs", "0xFFFF if tcp && strict", "0xFFFF if false"),
    ("parse.rs", "0xFFFF if tcp && strict", "0xFFFF if tcp"),
    (
        "parse.rs",
        "0 if !tcp && self.ipv4.is_some() =>",
        "0 if false =>",
    ),
    (
        "parse.rs",
        "0 if !tcp => Some(NotTaken::BadChecksum),",
        "0 if !tcp => None,",
    ),
    ("parse.rs", "if sa.kind() != sb.kind() {", "if false {"),
    ("parse.rs", "    addresses && array::<4>", "    array::<4>"),
    (
        "parse.rs",
        "    addresses && array::<4>(a, sa.transport()) == array::<4>(b, sb.transport())",
        "    addresses",
    ),
    (
        "parse.rs",
        "array::<32>(a, sa.network() + 8) == array::<32>(b, sb.network() + 8)",
        "array::<16>(a, sa.network() + 8) == array::<16>(b, sb.network() + 8)",
    ),
    ("parse.rs", " + (sum >> 32);", ";"),
    (
        "parse.rs",
        "    let sum = (sum & 0xFFFF) + (sum >> 16);\n    // Never",
        "    // Never",
    ),
    ("parse.rs", "if ip[0] != 0x45 || ", "if ip[0] >> 4 != 4 || "),
    ("parse.rs", "if ip[0] >> 4 != 6 {", "if false {"),
    (
        "parse.rs",
        " || u16::from_be_bytes([ip[6], ip[7]]) & IPV4_NOT_DF != 0",
        "",
    ),
    (
        "parse.rs",
        "(header >= 20).then_some",
        "(header >= 16).then_some",
    ),
    (
        "parse.rs",
        "(u32::from(u16::from_be_bytes(length)) == bytes && bytes >= 8)",
        "(bytes >= 8)",
    ),
    (
        "parse.rs",
        "flags: if tcp { ip[33] } else { 0 },",
        "flags: ip[33],",
    ),
    (
        "parse.rs",
        "flags: if tcp { ip[53] } else { 0 },",
        "flags: 0,",
    ),
    (
        "parse.rs",
        "id: u16::from_be_bytes([ip[4], ip[5]]),",
        "id: u16::from_be_bytes([ip[5], ip[4]]),",
    ),
    (
        "parse.rs",
        "u16::from_be_bytes([ip[26], ip[27]])\n",
        "u16::from_be_bytes([ip[36], ip[37]])\n",
    ),
    (
        "parse.rs",
        "u16::from_be_bytes([ip[46], ip[47]])\n",
        "u16::from_be_bytes([ip[56], ip[57]])\n",
    ),
    ("parse.rs", "addresses ^ seed, (ports", "addresses, (ports"),
    (
        "mask.rs",
        "bits[network + 6..network + 8].copy_from_slice(&IPV4_NOT_DF.to_be_bytes());",
        "",
    ),
    ("mask.rs", "bits[transport + 13] = NOT_FIRST;", ""),
    ("mask.rs", "bits[transport + 12] = 0xF0;", ""),
    ("mask.rs", "self.ignore(network + 4, 2);", ""),
    (
        "mask.rs",
        "self.ignore(network + 2, 4);",
        "self.ignore(network + 1, 5);",
    ),
    (
        "mask.rs",
        "self.ignore(network + 2, 4);",
        "self.ignore(network + 2, 2);",
    ),
    (
        "mask.rs",
        "self.ignore(network + 2, 4);",
        "self.ignore(network + 2, 6);",
    ),
    (
        "mask.rs",
        "self.ignore(network + 10, 2);",
        "self.ignore(network + 8, 4);",
    ),
    ("mask.rs", "self.ignore(network + 10, 2);", ""),
    (
        "mask.rs",
        "        self.ignore(shape.checksum_at(), 2);\n",
        "",
    ),
    (
        "mask.rs",
        "            self.ignore(transport + 4, 2);\n            return;",
        "            return;",
    ),
    ("mask.rs", "        self.ignore(transport + 4, 4);\n", ""),
    (
        "mask.rs",
        "!(TCP_FIN | TCP_PSH | TCP_CWR);",
        "!(TCP_FIN | TCP_PSH);",
    ),
    (
        "mask.rs",
        "!(TCP_FIN | TCP_PSH | TCP_CWR);",
        "!(TCP_FIN | TCP_CWR);",
    ),
    (
        "mask.rs",
        "!(TCP_FIN | TCP_PSH | TCP_CWR);",
        "!(TCP_PSH | TCP_CWR);",
    ),
    (
        "mask.rs",
        "self.bits[transport + 13] &= !(TCP_FIN | TCP_PSH | TCP_CWR);",
        "self.bits[transport + 13] = 0;",
    ),
    (
        "mask.rs",
        "if semantics == Semantics::Stream {",
        "if true {",
    ),
    (
        "mask.rs",
        "            self.ignore(transport + 8, 4);\n",
        "",
    ),
    (
        "mask.rs",
        "            self.ignore(transport + 14, 2);\n",
        "",
    ),
    (
        "mask.rs",
        "self.ignore(options + 4, 8);",
        "self.ignore(options + 4, 4);",
    ),
    (
        "mask.rs",
        "self.ignore(options + 4, 8);",
        "self.ignore(options + 2, 10);",
    ),
    (
        "mask.rs",
        "            difference |= differ(a, b, bits);\n\
         \x20       }\n\
         \x20       difference == 0",
        "            let _: (&[u8; 8], &[u8; 8], &[u8; 8]) = (a, b, bits);\n\
         \x20       }\n\
         \x20       difference == 0",
    ),
    (
        "mask.rs",
        "for ((a, b), bits) in words.zip(bits.as_chunks::<8>().0) {",
        "for ((a, b), bits) in words.zip(bits.as_chunks::<8>().0).skip(1) {",
    ),
    (
        "shape.rs",
        "self.header_bytes() - self.transport() == 32",
        "self.header_bytes() - self.transport() >= 32",
    ),
    (
        "shape.rs",
        "(self.network().saturating_sub(ETHERNET_HEADER_BYTES) / VLAN_TAG_BYTES) as u8",
        "0",
    ),
    (
        "shape.rs",
        "            fragment: false,\n            source_routed: false,",
        "            fragment: false,\n            source_routed: true,",
    ),
    (
        "mask.rs",
        "if shape.header_bytes() > compared || !common {",
        "if !common {",
    ),
    (
        "mask.rs",
        "if shape.header_bytes() > compared || !common {",
        "if shape.header_bytes() > compared {",
    ),
    (
        "mask.rs",
        "if shape.header_bytes() > compared || !common {",
        "if shape.header_bytes() > WIDE || !common {",
    ),
    (
        "mask.rs",
        "config.max_bytes.saturating_sub(headers)",
        "config.max_bytes",
    ),
    ("mask.rs", "bits[network + 4..network + 6].fill(0xFF);", ""),
    ("mask.rs", "bits[network + 2..network + 4].fill(0xFF);", ""),
    (
        "mask.rs",
        "bits[transport + 4..transport + 6].fill(0xFF);",
        "",
    ),
    ("mask.rs", "bits[addresses..network].fill(0xFF);", ""),
    ("mask.rs", "bits[network] = 0xF0;", ""),
    ("mask.rs", "bits[network + 6] = 0xFF;", ""),
    ("mask.rs", "bits[network] = 0xFF;", "bits[network] = 0xF0;"),
    ("mask.rs", "bits[network + 9] = 0xFF;", ""),
    (
        "mask.rs",
        "bytes <= self.payload_max",
        "bytes <= self.payload_max + 1",
    ),
    (
        "mask.rs",
        "        self.masks[at].build(shape, self.semantics);\n",
        "",
    ),
    (
        "wide.rs",
        "_mm_movemask_epi8(equal).cast_unsigned()",
        "_mm_movemask_epi8(equal).cast_unsigned() & 0x7FFF",
    ),
    ("wide.rs", "N.is_multiple_of(16),", "true,"),
    ("wide.rs", "for at in 0..N / 16 {", "for at in 1..N / 16 {"),
    (
        "wide.rs",
        "for at in 0..N / 16 {",
        "for at in 0..N / 16 - 1 {",
    ),
    (
        "wide.rs",
        "all = or_difference(all, &a_pieces[at], &b_pieces[at], &pieces[at]);",
        "all = or_difference(vector(&[0; 16]), &a_pieces[at], &b_pieces[at], &pieces[at]);",
    ),
    (
        "wide.rs",
        "_mm_and_si128(_mm_xor_si128(vector(a), vector(b)), vector(bits))",
        "_mm_xor_si128(vector(a), vector(b))",
    ),
    ("wide.rs", "== 0xFFFF }", "!= 0 }"),
];
