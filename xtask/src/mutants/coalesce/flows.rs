//! What happens to packets: found, held, merged, handed on.

use super::super::fault::Fault;

pub const FAULTS: &[Fault] = &[
    (
        "run.rs",
        "const ENDS: u8 = TCP_CWR | TCP_FIN | TCP_PSH;",
        "const ENDS: u8 = TCP_FIN | TCP_PSH;",
    ),
    (
        "run.rs",
        "const ENDS: u8 = TCP_CWR | TCP_FIN | TCP_PSH;",
        "const ENDS: u8 = TCP_CWR | TCP_PSH;",
    ),
    (
        "run.rs",
        "u32::from_be_bytes(array(head, transport + 4)) != state.next_seq",
        "false",
    ),
    (
        "run.rs",
        "|| is_last_datagram(shape.kind(), state.count)",
        "",
    ),
    (
        "run.rs",
        "!recent.fits(u32::from(state.payload_bytes) + u32::from(state.size))",
        "false",
    ),
    ("run.rs", "|| packet.aside() != state.aside", ""),
    (
        "run.rs",
        "(step == (count << 48).wrapping_sub(count) && !wraps)",
        "(step >> 48 == count && !wraps)",
    ),
    (
        "run.rs",
        "(step == (count << 48).wrapping_sub(count) && !wraps)",
        "(step as u16 == (count as u16).wrapping_neg() && !wraps)",
    ),
    ("run.rs", "now >> 48 < count || ", ""),
    ("run.rs", " || (now & 0xFFFF) + count > 0xFFFF", ""),
    (
        "run.rs",
        "Ids::Fixed => (step == 0).then_some(Ids::Fixed),",
        "Ids::Fixed => Some(Ids::Fixed),",
    ),
    ("run.rs", "if !has_checksum(shape, head) {", "if false {"),
    (
        "run.rs",
        "if !has_checksum(shape, head) || !state.summed {",
        "if !state.summed {",
    ),
    (
        "run.rs",
        "if !has_checksum(shape, head) || !state.summed {",
        "if !has_checksum(shape, head) {",
    ),
    ("run.rs", "if !is_of(shape, checksum) {", "if false {"),
    ("run.rs", " && [ip[10], ip[11]] != [0xFF; 2]", ""),
    ("run.rs", "            || !ipv4_is_right\n", ""),
    ("run.rs", "            || ip_end != packet.bytes()\n", ""),
    (
        "run.rs",
        "            || ip_end < header_bytes + least\n",
        "            || ip_end < header_bytes\n",
    ),
    (
        "run.rs",
        "            || !recent.fits(ip_end - header_bytes)\n",
        "",
    ),
    (
        "run.rs",
        "            || (!kind.is_tcp() && two(transport + 4) != ip_end - transport as u32)\n\
         ",
        "",
    ),
    (
        "run.rs",
        "&& !self.is_right(&packet, headers, header_bytes..ip_end)",
        "&& false",
    ),
    (
        "run.rs",
        "words += u64::from(u32::from_ne_bytes(array(head, transport + 4)));",
        "",
    ),
    (
        "run.rs",
        "            || packet.bytes() != recent.header_bytes + u32::from(state.size)\n",
        "",
    ),
    (
        "run.rs",
        "            || packet.gso().is_some()\n\
         \x20       {\n\
         \x20           return Err(packet);\n\
         \x20       }\n\
         \x20       let payload",
        "        {\n            return Err(packet);\n        }\n        let payload",
    ),
    (
        "run.rs",
        "            || packet.gso().is_some()\n            || !match",
        "            || !match",
    ),
    (
        "run.rs",
        "partial @ ChecksumState::Partial { .. } => is_of(shape, partial),",
        "ChecksumState::Partial { .. } => true,",
    ),
    ("run.rs", "=> has_checksum(shape, head),", "=> true,"),
    (
        "run.rs",
        "        state.next_seq = state.next_seq.wrapping_add(u32::from(state.size));\n",
        "",
    ),
    (
        "run.rs",
        "        state.payload_bytes = state.payload_bytes.wrapping_add(state.size);\n",
        "",
    ),
    ("run.rs", "        state.count += 1;\n", ""),
    ("run.rs", "        state.ids = ids;\n", ""),
    (
        "run.rs",
        "Ok(()) => self.core.stats.summed_bytes += u64::from(state.size),",
        "Ok(()) => {}",
    ),
    (
        "run.rs",
        "                    self.core.stats.summed_bytes += u64::from(state.size);\n\
         \x20                   self",
        "                    self",
    ),
    (
        "run.rs",
        "        self.flush_one(held, FlushReason::Refused, sink);\n",
        "",
    ),
    (
        "run.rs",
        "_ if now != shape => Err(packet),",
        "_ if false => Err(packet),",
    ),
    (
        "run.rs",
        "match entry.or_else(|| self.table.candidate(hash)) {",
        "match entry {",
    ),
    (
        "run.rs",
        "if packet.head_mut(header_bytes as usize).is_none() {",
        "if false {",
    ),
    ("run.rs", "!recent.is_first::<KIND>(head)", "false"),
    (
        "run.rs",
        "count as usize + 1 >= UDP_GSO_SEGMENTS_MAX",
        "count as usize >= UDP_GSO_SEGMENTS_MAX",
    ),
    (
        "run.rs",
        "two(&state.template, at) + two(head, at);",
        "two(&state.template, at);",
    ),
    (
        "run.rs",
        "if self.core.masks.recent().shape.kind() as u8 != KIND {",
        "if false {",
    ),
    ("run.rs", "            *count += 1;\n", ""),
    ("run.rs", "head[transport + 13] & ENDS != 0", "false"),
    (
        "run.rs",
        "ENDS: u8 = TCP_CWR | TCP_FIN | TCP_PSH;",
        "ENDS: u8 = TCP_CWR | TCP_FIN;",
    ),
    (
        "run.rs",
        "payload_bytes: ip_end - header_bytes,",
        "payload_bytes: ip_end - transport as u32,",
    ),
    ("run.rs", "ids: Ids::Undecided,", "ids: Ids::Counting,"),
    (
        "run.rs",
        "        array(head, transport + 16) != [0xFF; 2]",
        "        array(head, transport + 16) != [0; 2]",
    ),
    (
        "run.rs",
        "        array(head, transport + 6) != [0; 2]",
        "        array(head, transport + 6) != [0xFF; 2]",
    ),
    (
        "ahead.rs",
        "Some(packet) => slots[at % SLOTS] = self.first_step(packet),",
        "Some(packet) => slots[(at + 1) % SLOTS] = self.first_step(packet),",
    ),
    ("ahead.rs", "None => count = at,", "None => count = at + 1,"),
    (
        "ahead.rs",
        "count.saturating_add(3 * step)",
        "count.saturating_add(2 * step)",
    ),
    (
        "ahead.rs",
        "let (hash, entry) = (slot.hash, slot.entry);",
        "let (hash, entry) = (0, slot.entry);",
    ),
    (
        "ahead.rs",
        "let hash = parse::hash_at(shape, head, self.core.config.seed);",
        "let hash = parse::hash_at(shape, head, 0);",
    ),
    (
        "flush.rs",
        "while let Some(index) = self.oldest(&mut core.ring) {",
        "if let Some(index) = self.oldest(&mut core.ring) {",
    ),
    (
        "flush.rs",
        "            if let Some((state, packet)) = self.take(&mut core.ring, index) {\n\
         \x20               emit(core, state, packet, reason, sink);",
        "            if let Some((state, packet)) = self.take(&mut core.ring, index) {\n\
         \x20               emit(core, state, packet, FlushReason::Evict, sink);",
    ),
    (
        "flush.rs",
        "        while let Some((state, packet)) = self.take_oldest(&mut core.ring) {\n\
         \x20           emit(core, state, packet, reason, sink);",
        "        while let Some((state, packet)) = self.take_oldest(&mut core.ring) {\n\
         \x20           emit(core, state, packet, FlushReason::Timeout, sink);",
    ),
    (
        "table.rs",
        "self.sets[set as usize].tags[way as usize] = 0;",
        "",
    ),
    ("table.rs", "tag + u8::from(tag == 0)", "tag"),
    (
        "table.rs",
        "(free < WAYS).then_some(free)",
        "(free <= WAYS).then_some(free)",
    ),
    (
        "table.rs",
        "return Err(self.oldest_of(ring, set));",
        "return Err(ring.head);",
    ),
    (
        "table.rs",
        "if self.entries[ring.head as usize].packet.is_some() {",
        "if false {",
    ),
    (
        "table.rs",
        "(head + capacity - 1 - index) % capacity",
        "index",
    ),
    ("table.rs", ".max_by_key(", ".min_by_key("),
    (
        "table.rs",
        "if index == ring.tail && ring.live > 0 {",
        "if false {",
    ),
    (
        "table.rs",
        "            if ring.live as usize == self.entries.len() {\n                return",
        "            if true {\n                return",
    ),
    (
        "table.rs",
        "            if ring.linked {\n                let number",
        "            if false {\n                let number",
    ),
    ("table.rs", "            newest = at;\n", ""),
    ("table.rs", "            number += 1;\n", ""),
    ("table.rs", "            self.tail = after;\n", ""),
    (
        "table.rs",
        "            links[before as usize].after = after;",
        "",
    ),
    ("table.rs", "self.newest = before;", ""),
    ("table.rs", "links[after as usize].before = before;", ""),
    ("table.rs", ".number.wrapping_add(1)", ".number"),
    (
        "table.rs",
        "self.head = if full { self.tail } else { free };",
        "self.head = free;",
    ),
    ("table.rs", "            self.linked = false;\n", ""),
    (
        "rules.rs",
        "is_of_tunnel(config, array(head, new.shape.transport()))",
        "false",
    ),
    ("rules.rs", "of.contain(u16::from_be_bytes([s, t])) ||", ""),
    (
        "run.rs",
        "|| (!kind.is_tcp() && is_of_tunnel(&self.core.config, array(head, transport)))",
        "",
    ),
    (
        "parse.rs",
        "Err(_malformed) => return Self::of_any_flow(NotTaken::Protocol),",
        "Err(_malformed) => return Self::stranger(NotTaken::Protocol),",
    ),
    (
        "parse.rs",
        "Err(error) if is_of_no_flow(error) =>",
        "Err(error) if is_of_no_flow(error) && false =>",
    ),
    ("table.rs", "        ring.live += 1;\n", ""),
    (
        "table.rs",
        "            if tail as usize == self.entries.len() {\n                tail = 0;",
        "            if tail as usize == self.entries.len() - 1 {\n\
         \x20               tail = 0;",
    ),
    (
        "table.rs",
        "entry.slot = (at << WAY_BITS | way) as u32;",
        "",
    ),
    (
        "table.rs",
        "            packet.is_some_and(|packet| is_it(&entry.state, packet))",
        "            packet.is_some()",
    ),
    (
        "table.rs",
        "            found &= found - 1;\n",
        "            found = 0;\n",
    ),
    (
        "entry.rs",
        "(tcp && template[shape.transport() + 13] & TCP_CWR != 0)",
        "false",
    ),
    ("entry.rs", "        self.absorbed = 0;\n", ""),
    ("entry.rs", "        self.flags = 0;\n", ""),
    ("entry.rs", "        self.summed = false;\n", ""),
    ("entry.rs", "        self.aside = aside;\n", ""),
    ("entry.rs", "        self.count = 1;\n", ""),
    ("entry.rs", "        self.ids = first.ids;\n", ""),
    (
        "entry.rs",
        "        self.born = (now >> TICK) as u32;\n",
        "",
    ),
    (
        "entry.rs",
        "first.seq.wrapping_add(first.payload_bytes)",
        "first.seq.saturating_add(first.payload_bytes)",
    ),
    (
        "entry.rs",
        "new.seq.wrapping_add(new.payload_bytes)",
        "new.seq.saturating_add(new.payload_bytes)",
    ),
    (
        "entry.rs",
        "if shape.header_bytes() > TEMPLATE_BYTES\n            || ",
        "if ",
    ),
    (
        "entry.rs",
        "        headers.add_u16(!load16(template, at));\n",
        "",
    ),
    (
        "entry.rs",
        "            headers.add_u32(!load32(template, shape.transport() + 4));\n",
        "",
    ),
    (
        "entry.rs",
        "            + u32::from(self.payload_bytes)\n            + more",
        "            + u32::from(self.payload_bytes)",
    ),
    (
        "entry.rs",
        "new.payload_bytes == 0 || self.payload_bytes == 0",
        "new.payload_bytes == 0",
    ),
    (
        "entry.rs",
        "new.payload_bytes == 0 || self.payload_bytes == 0",
        "self.payload_bytes == 0",
    ),
    (
        "entry.rs",
        "self.flags |= new.flags & (TCP_FIN | TCP_PSH);",
        "self.flags |= new.flags & TCP_FIN;",
    ),
    (
        "entry.rs",
        "self.flags |= new.flags & (TCP_FIN | TCP_PSH);",
        "self.flags |= new.flags & TCP_PSH;",
    ),
    (
        "entry.rs",
        "self.flags |= new.flags & (TCP_FIN | TCP_PSH);",
        "self.flags = new.flags & (TCP_FIN | TCP_PSH);",
    ),
    (
        "entry.rs",
        "self.size = self.size.max(new.payload_bytes as u16);",
        "",
    ),
    ("entry.rs", "        self.count += 1;\n", ""),
    (
        "entry.rs",
        "        self.absorbed += u16::from(absorbed);\n",
        "",
    ),
    (
        "work.rs",
        "                self.run_queue(sink);\n                self.table.flush_all",
        "                self.table.flush_all",
    ),
    (
        "work.rs",
        "                self.table.flush_all(self.core, FlushReason::Refused, sink);\n",
        "",
    ),
    (
        "work.rs",
        "if self.core.queued == self.queue.len() {",
        "if self.core.queued + 1 == self.queue.len() {",
    ),
    ("work.rs", "if last != Some(key) {", "if last.is_none() {"),
    (
        "work.rs",
        "                self.core.window.groups += 1;\n",
        "",
    ),
    (
        "work.rs",
        "            }\n\
         \x20       }\n\
         \x20       self.table.flush_all(self.core, FlushReason::Timeout, sink);\n\
         \x20   }",
        "            }\n        }\n    }",
    ),
    (
        "work.rs",
        "        self.core.stats.sorted_windows += 1;\n",
        "",
    ),
    (
        "inner.rs",
        "self.runs = self.merges_only() && !sorting;",
        "self.runs = self.merges_only();",
    ),
    (
        "inner.rs",
        "self.runs = self.merges_only() && !sorting;",
        "self.runs = !sorting;",
    ),
    (
        "inner.rs",
        "matches!(self.config.semantics, Semantics::Reversible)\n            && ",
        "",
    ),
    (
        "inner.rs",
        "\n            && matches!(self.config.finish, Finish::Partial)",
        "",
    ),
    (
        "work.rs",
        "            self.flush_one(held, FlushReason::Refused, sink);\n\
         \x20       }\n\
         \x20       if let Class",
        "        }\n        if let Class",
    ),
    (
        "work.rs",
        "self.flush_one(held, FlushReason::Full, sink);\n                self.hold",
        "self.hold",
    ),
    (
        "work.rs",
        "                self.flush_one(held, FlushReason::Refused, sink);\n\
         \x20               self.pass(packet, NotTaken::BadChecksum, sink);",
        "                self.pass(packet, NotTaken::BadChecksum, sink);",
    ),
    (
        "work.rs",
        "            || held.aside != packet.aside()\n",
        "",
    ),
    (
        "work.rs",
        "            || !self.core.masks.agree(new.shape, held_head, head)\n",
        "",
    ),
    (
        "work.rs",
        "            Ids::Sealed\n",
        "            Ids::Undecided\n",
    ),
    (
        "work.rs",
        "                self.core.stats.summed_bytes += u64::from(new.payload_bytes);\n",
        "",
    ),
    (
        "work.rs",
        "        self.core.stats.absorbed += u64::from(absorbed);\n",
        "",
    ),
    (
        "work.rs",
        "                fields.store(new.shape, head);\n",
        "",
    ),
    (
        "work.rs",
        "                store16(head, new.shape.checksum_at(), sum);\n",
        "",
    ),
    (
        "work.rs",
        "if packet.head_mut(new.shape.header_bytes()).is_none() {",
        "if false {",
    ),
    ("work.rs", "            packet.truncate(new.ip_end);\n", ""),
    (
        "work.rs",
        "            self.core.window.evictions += 1;\n",
        "",
    ),
    (
        "work.rs",
        "        self.core.stats.summed_bytes += u64::from(payload.end - payload.start);\n\
         ",
        "",
    ),
    (
        "work.rs",
        "            self.core.stats.bad_checksums += 1;\n",
        "",
    ),
    ("work.rs", "        headers.is_valid()\n", "        true\n"),
    ("work.rs", "state.ids = ids;", ""),
    ("flush.rs", "    stats.flushes.add(reason);\n", ""),
    (
        "flush.rs",
        "        stats.merged += u64::from(state.count);\n",
        "",
    ),
    (
        "work.rs",
        "Partial { .. } => packet.sum(new.payload()).fold(),",
        "Partial { .. } => finish::payload_sum(new.transport_sum(packet.head())),",
    ),
    (
        "work.rs",
        "    if state.count > 1 {\n        let head",
        "    if false {\n        let head",
    ),
    (
        "work.rs",
        "    } else if bytes <= TEMPLATE_BYTES {",
        "    } else if bytes <= TEMPLATE_BYTES + 40 {",
    ),
    ("finish.rs", "*flags |= state.flags;", ""),
    ("finish.rs", "next.swap_bytes()", "next"),
    (
        "finish.rs",
        "finish_partial(sum, !tcp)",
        "finish_partial(sum, false)",
    ),
    ("finish.rs", ".max(TCP_GSO_SIZE_MIN)", ""),
    ("finish.rs", "    store16(ip, 10, checksum);\n", ""),
    ("finish.rs", "(lengths.ip - 40) as u16", "lengths.ip as u16"),
    ("finish.rs", "if state.ids == Ids::Fixed {", "if false {"),
    ("finish.rs", "absorbed: state.absorbed,", "absorbed: 0,"),
    (
        "finish.rs",
        "checksum::update_u16(checksum, before, lengths.ip as u16)",
        "checksum",
    ),
    (
        "finish.rs",
        "if state.shape == recent.shape\n        && ",
        "if ",
    ),
    (
        "finish.rs",
        "        && config.semantics == Semantics::Reversible\n",
        "",
    ),
    (
        "finish.rs",
        "        && config.finish == Finish::Partial\n",
        "",
    ),
    (
        "finish.rs",
        "    store16(head, transport + offset_of(shape.kind()), sum.fold());\n",
        "",
    ),
    (
        "finish.rs",
        "        Fields::of(shape, kept).store(shape, head);\n",
        "",
    ),
    ("finish.rs", "            store16(head, at, 0);\n", ""),
    ("finish.rs", "            sum.add_u16(running);\n", ""),
    (
        "finish.rs",
        "            sum.add(&head[transport..]);\n",
        "",
    ),
    ("finish.rs", "    store16(head, at, field);\n", ""),
    (
        "finish.rs",
        "*header.get_mut(4..)?.first_chunk_mut()? = (lengths.transport as u16).to_be_bytes();",
        "",
    ),
    ("finish.rs", "*flags & TCP_CWR != 0", "false"),
    (
        "finish.rs",
        "if cwr { Ecn::Cwr } else { Ecn::None }",
        "Ecn::Cwr",
    ),
    (
        "finish.rs",
        "pieces: state.count - state.absorbed,",
        "pieces: state.count,",
    ),
    (
        "finish.rs",
        ".filter(|size| payload > u32::from(size.get()))",
        "",
    ),
    ("finish.rs", "    store16(ip, 2, lengths.ip as u16);\n", ""),
    (
        "finish.rs",
        "recent.header_bytes + u32::from(state.payload_bytes)",
        "recent.header_bytes + u32::from(state.size)",
    ),
    (
        "finish.rs",
        "shape.layout(recent.vlans, ip_end)",
        "shape.layout(0, ip_end)",
    ),
    (
        "finish.rs",
        "transport + u32::from(state.payload_bytes);",
        "transport + u32::from(state.size);",
    ),
    (
        "finish.rs",
        "array(ip, 12), array(ip, 16), protocol",
        "array(ip, 12), array(ip, 12), protocol",
    ),
    (
        "finish.rs",
        "array(ip, 8), array(ip, 24), protocol",
        "array(ip, 8), array(ip, 8), protocol",
    ),
    (
        "mod.rs",
        "config.max_bytes.min(IP_LENGTH_MAX as u32)",
        "config.max_bytes",
    ),
    ("mod.rs", "config.ack_limit.max(1)", "config.ack_limit"),
    (
        "mod.rs",
        "if now.wrapping_sub(born) < age {",
        "if now.wrapping_sub(born) <= age {",
    ),
    (
        "mod.rs",
        "if now.wrapping_sub(born) < age {",
        "if now.saturating_sub(born) < age {",
    ),
    ("mod.rs", ".min(u64::from(u32::MAX / 2))", ""),
    (
        "mod.rs",
        "        work.run_queue(sink);\n        let age",
        "        let age",
    ),
    ("mod.rs", "            self.work(0).run_queue(sink);\n", ""),
    (
        "mod.rs",
        "lost += u64::from(entry.state.count);",
        "lost += 1;",
    ),
    (
        "mod.rs",
        "            lost += u64::from(queued.clear());\n",
        "",
    ),
    ("mod.rs", "        self.core.ring = Ring::default();\n", ""),
    ("mod.rs", "        self.core.queued = 0;\n", ""),
    (
        "mod.rs",
        "        parts.sets.fill(Set::EMPTY);\n        self.core.ring",
        "        self.core.ring",
    ),
    (
        "mod.rs",
        "window.evictions > window.packets / EVICTIONS_PER_PACKETS",
        "window.evictions > window.packets",
    ),
    (
        "mod.rs",
        "window.evictions > window.packets / EVICTIONS_PER_PACKETS",
        "window.evictions > 0",
    ),
    (
        "mod.rs",
        "window.groups <= self.core.config.flows / 2",
        "window.groups < self.core.config.flows * 2",
    ),
    ("mod.rs", "            self.core.window.roomy += 1;\n", ""),
    (
        "mod.rs",
        "self.core.window.roomy < ROOMY_WINDOWS",
        "self.core.window.roomy < ROOMY_WINDOWS / 2",
    ),
    (
        "mod.rs",
        "        } else {\n            self.core.window.roomy = 0;\n        }",
        "        }",
    ),
    ("mod.rs", "            roomy: window.roomy,\n", ""),
    ("mod.rs", "self.core.window.packets += count as u32;", ""),
];
