//! A running program as seen from outside: its probes, its histograms in a tracer, and the kernel's
//! counters of its threads.

mod program;

use packtrain::limits::TX_RING_PACKETS;
use program::{PACKTRAIN, TIMEOUT, command, finish, packtrain, said, signal, start, wait_for_line};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A run that forwards packets until a signal ends it.
const ENDLESS: [&str; 6] = [
    "forward",
    "null:source",
    "null:",
    "--json",
    "--stats-interval",
    "50ms",
];

/// Sums, counts and buckets of the histograms agree with each other and with the counters.
fn assert_batches(batches: &Value, packets: u64) {
    let number = |key: &str| batches[key].as_u64().expect(key);
    let buckets = buckets(batches);
    assert_eq!(number("sum"), packets, "{batches}");
    let counts = buckets.values().sum::<u64>();
    assert_eq!(number("count"), counts, "{batches}");
    let order = ["p50", "p90", "p99", "max"].map(number);
    assert!(order.is_sorted() && order[0] > 0, "{batches}");
    let (&least, _) = buckets.last_key_value().expect("a bucket");
    assert!(least <= order[3], "{batches}");
}

fn buckets(batches: &Value) -> BTreeMap<u64, u64> {
    let pair = |pair: &Value| (pair[0].as_u64().unwrap(), pair[1].as_u64().unwrap());
    let buckets = batches["buckets"].as_array().expect("buckets");
    buckets.iter().map(pair).collect()
}

#[test]
fn batches_have_the_packets_that_the_counters_have() {
    let document = packtrain(&["forward", "null:source,count=1000", "null:", "--json"]).json();
    let ports = &document["ports"];
    let drain = &ports["null1"]["txq00"]["batches"]["drain"];
    assert_batches(&ports["null0"]["rxq00"]["batches"]["poll"], 1000);
    assert_batches(&ports["null1"]["txq00"]["batches"]["enqueue"], 1000);
    assert_batches(drain, 1000);
    // Fifteen full bursts and the rest.
    assert_eq!(buckets(drain), BTreeMap::from([(64, 15), (40, 1)]));
    let idle = &ports["null0"]["txq00"]["batches"]["drain"];
    assert_eq!((&idle["count"], &idle["p99"]), (&0.into(), &0.into()));
    assert_eq!(idle["buckets"], Value::Array(Vec::new()));
}

#[test]
fn people_get_a_line_for_each_histogram_and_worker() {
    let ran = packtrain(&["forward", "null:source,count=1000", "null:", "-v"]);
    let lines: Vec<Vec<_>> = ran
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let drain = ["null1", "txq00", "drain", "16", "64", "64", "64", "64"];
    assert!(lines.iter().any(|line| line == &drain), "{}", ran.out);
    // No packet was sent in the other direction.
    assert!(!ran.out.contains("null0 txq00"), "{}", ran.out);
    let heading = "worker  steps  sleeps  wakeups  drained  voluntary switches  involuntary \
         switches  syscalls  CPU ms  nice";
    assert!(ran.out.contains(heading), "{}", ran.out);
}

/// The first worker of a run, as the folder of its thread below /proc.
fn worker(run: &Child) -> PathBuf {
    let tasks = format!("/proc/{}/task", run.id());
    let begin = Instant::now();
    loop {
        let found = fs::read_dir(&tasks)
            .expect("the run goes on")
            .filter_map(|task| task.ok().map(|task| task.path()))
            // A thread sets its name a moment after its start.
            .find(|task| {
                let name = fs::read_to_string(task.join("comm"));
                name.is_ok_and(|name| name == "packtrain-0\n")
            });
        if let Some(worker) = found {
            return worker;
        }
        assert!(begin.elapsed() < TIMEOUT, "no worker");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The voluntary and involuntary context switches of a thread, as the kernel counts them.
fn switches(thread: &Path) -> (u64, u64) {
    let status = fs::read_to_string(thread.join("status")).expect("the thread is there");
    let count = |key: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(key));
        value.expect(key).trim().parse().unwrap()
    };
    (
        count("voluntary_ctxt_switches:"),
        count("nonvoluntary_ctxt_switches:"),
    )
}

/// The nice value of a thread: field 19 of its `stat` (proc(5)).
fn nice(thread: &Path) -> i64 {
    let stat = fs::read_to_string(thread.join("stat")).expect("the thread is there");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let field = fields.split_whitespace().nth(16);
    field.expect("a nice value").parse().unwrap()
}

#[test]
fn a_worker_has_the_priority_that_the_run_says() {
    let own = nice(Path::new("/proc/thread-self"));
    // The lowest nice value that this machine permits, found with nice(1); `auto` accepts any.
    let ahead = (own - 5).max(-20);
    let tried = (ahead..own).find(|nice| {
        let by = (nice - own).to_string();
        let mut shell = Command::new("nice");
        let said = shell.args(["-n", &by, "nice"]).output().expect("coreutils");
        String::from_utf8_lossy(&said.stdout).trim() == nice.to_string()
    });
    for (args, expected) in [
        (&["--priority", "nice(19)"][..], 19),
        (&["--priority", "none"], own),
        (&["--idle", "poll"], own),
        (&[], tried.unwrap_or(own)),
    ] {
        let mut run = vec!["forward", "null:", "null:", "--json"];
        run.extend(args);
        let run = start(&mut command(PACKTRAIN, &run));
        let thread = worker(&run);
        let begin = Instant::now();
        // A worker sets its priority a moment after its name.
        let mut seen = nice(&thread);
        while seen != expected && begin.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(1));
            seen = nice(&thread);
        }
        signal(&run, "INT");
        let document = finish(run).json();
        let said = &document["run"]["workers"][0]["nice"];
        assert_eq!(said, seen, "{args:?}");
        assert_eq!(seen, expected, "{args:?}");
        let setting = document["settings"]["priority"].as_str().expect("a word");
        assert_eq!(
            setting,
            if args.len() == 2 && args[0] == "--priority" {
                args[1]
            } else {
                "auto"
            }
        );
    }
}

#[test]
fn workers_are_counted_as_the_kernel_counts_them() {
    // A worker without packets: it sleeps until the end.
    let args = ["forward", "null:", "null:", "--json"];
    let idle = start(&mut command(PACKTRAIN, &args));
    let mut busy = start(&mut command(PACKTRAIN, &ENDLESS));
    wait_for_line(&mut busy, "\"interval\"");
    for (run, moves) in [(idle, false), (busy, true)] {
        let seen = switches(&worker(&run));
        signal(&run, "INT");
        let ran = finish(run);
        let document = ran.json();
        let worker = &document["run"]["workers"][0];
        let number = |key: &str| worker[key].as_u64().expect(key);
        // The counters only grow, and the worker reads them once more at its end.
        assert!(number("voluntary_switches") >= seen.0, "{seen:?} {worker}");
        assert!(
            number("involuntary_switches") >= seen.1,
            "{seen:?} {worker}"
        );
        assert!(number("wakeups") <= number("sleeps"), "{worker}");
        let seconds = worker["cpu_seconds"].as_f64().expect("seconds");
        assert!(seconds > 0.0, "{worker}");
        if moves {
            assert!(number("steps") > 0);
        }
    }
}

/// A note of a probe: its offset in the file, its semaphore, and its arguments.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct Probe {
    name: String,
    code: usize,
    semaphore: u64,
    arguments: usize,
}

/// The notes of the program's probes (`.note.stapsdt`; ELF-64, little-endian).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn probes(elf: &[u8]) -> Vec<Probe> {
    fn field<const N: usize>(bytes: &[u8], at: usize) -> u64 {
        let mut value = [0; 8];
        value[..N].copy_from_slice(&bytes[at..at + N]);
        u64::from_le_bytes(value)
    }
    // Program headers of type PT_LOAD with code: file offset, address, length in the file.
    let (table, entry, count) = (
        field::<8>(elf, 32) as usize,
        field::<2>(elf, 54) as usize,
        field::<2>(elf, 56) as usize,
    );
    let loads: Vec<_> = (0..count)
        .map(|i| table + i * entry)
        .filter(|&at| field::<4>(elf, at) == 1 && field::<4>(elf, at + 4) & 1 == 1)
        .map(|at| [8, 16, 32].map(|offset| field::<8>(elf, at + offset)))
        .collect();
    let place = |address: u64| {
        let inside = |load: &&[u64; 3]| (load[1]..load[1] + load[2]).contains(&address);
        let load = loads.iter().find(inside)?;
        Some((address - load[1] + load[0]) as usize)
    };
    let mut found = Vec::new();
    let mut at = 0;
    // Owner's length, description's length, type 3, owner "stapsdt" in eight bytes.
    while let Some(next) = elf[at..].windows(8).position(|bytes| bytes == b"stapsdt\0") {
        let owner = at + next;
        at = owner + 8;
        if owner < 12 || field::<4>(elf, owner - 12) != 8 || field::<4>(elf, owner - 4) != 3 {
            continue;
        }
        let length = field::<4>(elf, owner - 8) as usize;
        let note = &elf[at..at + length];
        let mut texts = note[24..].split(|&byte| byte == 0);
        let mut text = || String::from_utf8(texts.next().expect("a text").to_vec()).unwrap();
        let (provider, name, arguments) = (text(), text(), text());
        // The linker keeps the notes of functions that it removes.
        if let Some(code) = place(field::<8>(note, 0))
            && provider == "packtrain"
        {
            found.push(Probe {
                name,
                code,
                semaphore: field::<8>(note, 16),
                arguments: arguments.split_whitespace().count(),
            });
        }
    }
    found
}

/// Without a tracer a probe is a `nop`. One probe has an argument that is computed for a tracer
/// only, and a semaphore that counts tracers.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn the_program_has_its_probes_and_each_is_a_nop() {
    let elf = fs::read(PACKTRAIN).expect("the program");
    let nop: &[u8] = if cfg!(target_arch = "x86_64") {
        &[0x90]
    } else {
        &[0x1f, 0x20, 0x03, 0xd5]
    };
    let (mut names, mut semaphores) = (BTreeMap::new(), BTreeSet::new());
    for probe in probes(&elf) {
        assert!(elf[probe.code..].starts_with(nop), "{}", probe.name);
        let has_semaphore = probe.name == "dispatch";
        assert_eq!(probe.semaphore != 0, has_semaphore, "{}", probe.name);
        semaphores.insert(probe.semaphore);
        names.insert(probe.name, probe.arguments);
    }
    let expected = [
        ("coalesce_flush", 3),
        ("dispatch", 5),
        ("rx_poll", 3),
        ("tx_drain", 3),
        ("tx_start", 3),
    ];
    let expected = expected.map(|(name, arguments)| (name.to_owned(), arguments));
    assert_eq!(names, BTreeMap::from(expected));
    assert_eq!(
        semaphores.len(),
        2,
        "none, and one for all places of a probe"
    );
    let page = include_str!("../../../docs/seeing.md");
    for name in names.keys() {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} in docs/seeing.md"
        );
    }
}

/// bpftrace warns of probes in functions that the linker removed: their notes are still in the
/// program, without an address.
const UNLINKED: &str = "WARNING: invalid address";

/// Whether bpftrace can be used; prints why not.
fn can_trace() -> bool {
    let why = if Command::new("bpftrace").arg("--version").output().is_err() {
        "bpftrace is not installed: apt-get install bpftrace"
    } else if !rustix::process::geteuid().is_root() {
        "bpftrace needs root"
    } else {
        return true;
    };
    println!("SKIP: {why}");
    false
}

/// The histograms that bpftrace prints: `[1, 2)  5 |@@@|` below `@name:`; by name and least value.
fn histograms(text: &str) -> BTreeMap<String, BTreeMap<u64, u64>> {
    let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(map) = line.strip_prefix('@') {
            map.trim().trim_end_matches(':').clone_into(&mut name);
            // Histograms that are printed again replace the earlier ones.
            all.insert(name.clone(), BTreeMap::new());
        } else if let Some(row) = line.strip_prefix('[') {
            let (least, rest) = row.split_once(',').expect("a row");
            let (_, count) = rest.split_once([')', ']']).expect("a row");
            let count = count.split_whitespace().next().expect("a count");
            let row: (u64, u64) = (
                least.parse().expect("a number"),
                count.parse().expect("a count"),
            );
            all.entry(name.clone()).or_default().extend([row]);
        }
    }
    all
}

/// Lines of standard output as they arrive.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let out = BufReader::new(child.stdout.take().expect("standard output is captured"));
    thread::spawn(move || {
        for line in out.lines() {
            if sender.send(line.expect("output is UTF-8")).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The fourth argument of `dispatch` is the thread that sends. It agrees with the counters and with
/// `--dispatch`.
#[test]
fn the_tracer_sees_which_thread_sends() {
    const SCRIPT: &str = "usdt:*:packtrain:dispatch /arg2 == 1/ { @left[arg3] = count(); \
                          @packets[arg3] = sum(arg0); @depth[arg3] = max(arg4); }";
    if !can_trace() {
        return;
    }
    for (dispatch, left, other) in [("direct", "0", "deferred"), ("deferred", "1", "direct")] {
        let mut args = ENDLESS.to_vec();
        args[2] = "null:tx=shared";
        args.extend(["--dispatch", dispatch]);
        let mut run = start(&mut command(PACKTRAIN, &args));
        wait_for_line(&mut run, "\"interval\"");
        let pid = run.id().to_string();
        let mut tracer = start(&mut command("bpftrace", &["-p", &pid, "-e", SCRIPT]));
        let said = said(&mut tracer, UNLINKED);
        let out = lines(&mut tracer);
        let begin = Instant::now();
        let mut seen = String::new();
        // bpftrace prints everything at its end. It attaches some time after this line.
        while !seen.contains("Attaching") {
            assert!(begin.elapsed() < TIMEOUT, "{seen:?}");
            if let Ok(line) = out.recv_timeout(Duration::from_millis(200)) {
                seen.push_str(&line);
            }
        }
        let mut asked = Duration::ZERO;
        while !seen.contains("@left[") {
            if begin.elapsed() > TIMEOUT {
                signal(&tracer, "KILL");
                signal(&run, "KILL");
                panic!("nothing was traced: {seen:?} {said:?}");
            }
            if let Ok(line) = out.recv_timeout(Duration::from_millis(200)) {
                seen.push_str(&line);
                seen.push('\n');
            } else if begin.elapsed() > asked {
                // It prints on SIGUSR1, and misses a signal that arrives while it prints.
                signal(&tracer, "USR1");
                asked = begin.elapsed() + Duration::from_secs(1);
            }
        }
        ended(&mut tracer, &run, &out, &mut seen);
        signal(&run, "INT");
        let document = finish(run).json();
        let queue = &document["ports"]["null1"]["txq00"];
        let number = |key: &str| queue[key].as_u64().expect(key);
        assert_eq!(number(other), 0, "{queue}");
        let traced = |map: &str| {
            let last = seen.rmatch_indices(&format!("@{map}[{left}]: ")).next();
            let (at, key) = last.unwrap_or_else(|| panic!("{map}: {seen}"));
            let count = seen[at + key.len()..].split_whitespace().next();
            count.expect("a count").parse::<u64>().expect("a number")
        };
        // The tracer was attached for a shorter time than the program counted.
        assert!(traced("left") <= number(dispatch), "{queue} {seen}");
        assert!(traced("packets") <= number("packets"), "{queue} {seen}");
        assert!(traced("packets") >= traced("left"), "{seen}");
        // A batch that is sent at once bypasses the ring. A deferred one is in the ring, after
        // those that the TX worker has not drained yet.
        let depth = traced("depth");
        let most = TX_RING_PACKETS as u64;
        let expected = if dispatch == "direct" {
            0..=0
        } else {
            1..=most
        };
        assert!(expected.contains(&depth), "{dispatch}: {depth} {seen}");
        let wrong = format!("[{}]", if left == "0" { "1" } else { "0" });
        assert!(!seen.contains(&wrong), "{dispatch}: {seen}");
    }
}

/// Ends bpftrace, which prints everything once more at its end.
fn ended(tracer: &mut Child, run: &Child, out: &Receiver<String>, seen: &mut String) -> ExitStatus {
    // It misses a signal that arrives while it prints. A second one would end it before it has
    // printed everything; the end of the process that it traces does not.
    while let Ok(line) = out.recv_timeout(Duration::from_millis(200)) {
        seen.push_str(&line);
        seen.push('\n');
    }
    let begin = Instant::now();
    signal(tracer, "INT");
    let mut is_missed = false;
    let status = loop {
        if !is_missed && begin.elapsed() > Duration::from_secs(5) {
            signal(run, "INT");
            is_missed = true;
        }
        thread::sleep(Duration::from_millis(20));
        if let Some(status) = tracer.try_wait().expect("a child is waited for") {
            break status;
        }
        if begin.elapsed() > TIMEOUT {
            signal(tracer, "KILL");
            signal(run, "KILL");
            panic!("bpftrace does not end: {seen:?}");
        }
    };
    seen.extend(out.iter().map(|line| line + "\n"));
    status
}

/// The histograms that bpftrace draws of a process that already runs, by a script with `histograms`
/// of them, and the counters of the run at its end.
fn trace_of(args: &[&str], script: &[&str], maps: usize) -> (String, Value) {
    let mut run = start(&mut command(PACKTRAIN, args));
    wait_for_line(&mut run, "\"interval\"");
    let pid = run.id().to_string();
    let tracer = [&["-p", &pid], script].concat();
    let mut tracer = start(&mut command("bpftrace", &tracer));
    let said = said(&mut tracer, UNLINKED);
    let out = lines(&mut tracer);
    let begin = Instant::now();
    let mut seen = String::new();
    // It prints on SIGUSR1, which would end it before it is ready.
    let complete = |seen: &str| {
        let found = histograms(seen);
        found.len() == maps && found.values().all(|rows| !rows.is_empty())
    };
    while !complete(&seen) {
        if begin.elapsed() > TIMEOUT {
            signal(&tracer, "KILL");
            signal(&run, "KILL");
            panic!("nothing was traced: {seen:?} {said:?}");
        }
        if let Ok(line) = out.recv_timeout(Duration::from_millis(200)) {
            seen.push_str(&line);
            seen.push('\n');
        } else if seen.contains("Attaching") {
            signal(&tracer, "USR1");
        }
    }
    let status = ended(&mut tracer, &run, &out, &mut seen);
    signal(&run, "INT");
    let document = finish(run).json();
    assert!(status.success(), "{status}: {seen}");
    (seen, document)
}

/// docs/batches.bt agrees with the counters of the program.
#[test]
fn the_tracer_sees_the_batches_of_a_live_process() {
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/batches.bt");
    if !can_trace() {
        return;
    }
    let (seen, document) = trace_of(&ENDLESS, &[SCRIPT], 3);
    let traced = histograms(&seen);
    let queue = &document["ports"]["null1"]["txq00"];
    let drain = &queue["batches"]["drain"];
    let poll = &document["ports"]["null0"]["rxq00"]["batches"]["poll"];
    // The tracer was attached for a shorter time than the program counted. Here a queue starts to
    // send once for each time that it gives packets to its device.
    for (name, counted) in [("start", drain), ("process", poll), ("drain", drain)] {
        let events = traced[name].values().sum::<u64>();
        let count = counted["count"].as_u64().expect("a count");
        assert!(
            0 < events && events <= count,
            "{name}: {events} of {count}: {seen}"
        );
        // A source that always has packets delivers full bursts of 64.
        assert_eq!(counted["p50"], 64);
    }
    // No size has a greater count than in the program.
    for (name, counted) in [("process", poll), ("drain", drain)] {
        let counted = buckets(counted);
        for (&least, &count) in &traced[name] {
            // A bucket may begin below the row that has its sizes.
            let below = counted.range(..=least).next_back();
            let from = below.map_or(least, |(&least, _)| least);
            let all: u64 = counted
                .range(from..least + 10)
                .map(|(_, count)| count)
                .sum();
            assert!(
                count <= all,
                "{name}: {count} of {all} from {least} on: {seen}"
            );
        }
    }
    let keys = |name: &str| traced[name].keys().copied().collect::<Vec<_>>();
    assert_eq!(
        (keys("start"), keys("process"), keys("drain")),
        (vec![10], vec![60], vec![60]),
        "{seen}"
    );
}

/// The same for polls and merged packets.
#[test]
fn the_tracer_sees_polls_and_merged_packets_of_a_live_process() {
    const SCRIPT: &str = "usdt:*:packtrain:rx_poll /arg2 == 0 && arg1 == 0/ \
                          { @poll = lhist(arg0, 0, 100, 1); } \
                          usdt:*:packtrain:coalesce_flush /arg2 == 0 && arg1 == 0/ \
                          { @coalesce = lhist(arg0, 0, 100, 1); }";
    if !can_trace() {
        return;
    }
    let mut args = ENDLESS;
    (args[1], args[2]) = ("null:source,coalesce=on", "sim:");
    let (seen, document) = trace_of(&args, &["-e", SCRIPT], 2);
    let traced = histograms(&seen);
    let batches = &document["ports"]["null0"]["rxq00"]["batches"];
    for name in ["poll", "coalesce"] {
        let number = |key: &str| batches[name][key].as_u64().expect(key);
        // The tracer was attached for a shorter time than the program counted.
        let events = traced[name].values().sum::<u64>();
        let packets: u64 = traced[name].iter().map(|(size, count)| size * count).sum();
        assert!(0 < events && events <= number("count"), "{name}: {seen}");
        assert!(packets <= number("sum"), "{name}: {packets}: {seen}");
        // No row has a greater count than the buckets of the program that it covers.
        let counted = buckets(&batches[name]);
        let mut seen_of = BTreeMap::new();
        for (size, count) in &traced[name] {
            let (&least, _) = counted.range(..=size).next_back().expect("a bucket");
            *seen_of.entry(least).or_insert(0) += count;
        }
        for (least, count) in seen_of {
            let all = counted[&least];
            assert!(
                count <= all,
                "{name}: {count} of {all} from {least} on: {seen}"
            );
        }
        let (&most, _) = traced[name].last_key_value().expect("a row");
        assert!(1 < most && most <= number("max"), "{name}: {seen}");
    }
}
