//! Counts the instructions that a packet costs with callgrind, beside DPDK's testpmd and a program
//! in C. Between ports that never wait the count is the same in each run, but for some tenths of an
//! instruction. Between devices it depends on how many packets are there at a time.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{ensure, printed, program, read, write};
use crate::report::aligned;

const FILE: &str = "docs/performance/instructions.txt";
/// Two ports for each row.
const ROWS: [[&str; 2]; 6] = [
    ["null:source,blank", "null:"],
    ["null:source,blank,burst=32", "null:"],
    ["null:source,blank", "null:,tx=shared"],
    ["null:source", "null:"],
    ["null:source,proto=tcp", "null:"],
    ["null:source,proto=tcp,flows=16,coalesce=on", "null:"],
];
/// The row that testpmd is beside.
const BESIDE: [&str; 2] = ROWS[0];
const PROFILES: [&str; 2] = ["release", "ci"];
/// How each is built: that of `ci` as CI has it, with the features of the whole workspace.
const BUILDS: [&str; 2] = [
    "cargo build --release -p packtrain-cli --bin packtrain",
    "cargo bench --profile ci --workspace --features packtrain-offload/peers,packtrain/peers \
     --no-run --bench tap_forward",
];
/// Packets of the two runs. Their difference is free of the start.
const PACKETS: [u64; 2] = [4_000, 24_000];
/// Seconds of the two runs of testpmd.
const SECONDS: [u64; 2] = [5, 15];
/// A path between devices, which `xtask/instructions.sh` makes.
struct Devices {
    name: &'static str,
    /// The name of the path there, and two amounts of the traffic on it.
    way: &'static str,
    amounts: [&'static str; 2],
    /// The arguments of packtrain, and the peer: its name and its command.
    ours: &'static str,
    peer: (&'static str, fn() -> String),
}

const DEVICES: [Devices; 4] = [
    Devices {
        name: "tap",
        way: "tap",
        amounts: ["3200", "16000"],
        ours: "forward -q tap:{a} tap:{b} --idle halt",
        peer: ("C forwarder", || {
            format!("{}/tapfwd {{a}} {{b}} vnet 2", target())
        }),
    },
    Devices {
        name: "packet",
        way: "veth",
        amounts: ["4", "10"],
        ours: "forward -q packet:{a},coalesce=off packet:{b},coalesce=off --duration {n}s",
        peer: ("testpmd", || {
            io(["net_af_packet0,iface={a}", "net_af_packet1,iface={b}"])
        }),
    },
    Devices {
        name: "xdp",
        way: "veth",
        amounts: ["4", "10"],
        ours: "forward -q xdp:{a} xdp:{b} --duration {n}s",
        peer: ("testpmd", || {
            io(["net_af_xdp0,iface={a}", "net_af_xdp1,iface={b}"])
        }),
    },
    Devices {
        name: "vhost",
        way: "vhost",
        amounts: ["6", "14"],
        ours: "forward vhost-user:{a},server vhost-user:{b},server --duration {n}s --json",
        peer: ("testpmd", || {
            io(["net_vhost0,iface={a}", "net_vhost1,iface={b}"])
        }),
    },
];
/// Builds the forwarder in C.
const FORWARDER: &str =
    "cc -O3 -o {target}/tapfwd crates/packtrain-lab/baseline/tapfwd.c -lpthread";
/// Pairs of runs between devices.
const PAIRS: usize = 3;
/// What a row may grow by without a new figure.
const GROWTH_MAX: f64 = 1.02;

/// The counts.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Count a build of this profile only, and fail if a row has grown by more than 2 %
    #[arg(long, value_name = "PROFILE", value_parser = PROFILES)]
    check: Option<String>,
}

/// Writes the counts of both profiles, or checks those of one.
pub fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    if let Some(profile) = &arguments.check {
        return check(root, profile);
    }
    let (release, ci) = (counts(root, 0)?, counts(root, 1)?);
    let testpmd = testpmd(root)?;
    let rows = ROWS.iter().enumerate().map(|(index, ports)| {
        let beside = if *ports == BESIDE { testpmd } else { None };
        let beside = beside.map_or("-".to_owned(), cell);
        vec![
            ports.join(" "),
            cell(release[index]),
            cell(ci[index]),
            beside,
        ]
    });
    let table = aligned(&["ports", "release", "ci", "testpmd"], rows, |column| {
        column == 0
    });
    let devices = devices(root)?;
    let commit = printed(&mut program(root, "git rev-parse HEAD"))?;
    let compiler = printed(&mut program(root, "rustc --version"))?;
    let text = format!(
        "commit   the one after {commit}\n\
         compiler {compiler}\n\
         command  cargo xtask instructions\n\
         counted  instructions a packet by callgrind: {} less {} packets, in user space\n\
         testpmd  io between two net_null, which write no packet; DPDK of this machine\n\n{table}\n\
         Between devices, 64 bytes, release: medians of {PAIRS} pairs of runs, the least and the \
         most.\ntestpmd polls without end: its count has the polls that find nothing.\n\n\
         {devices}",
        PACKETS[1], PACKETS[0]
    );
    print!("{table}\n{devices}");
    write(&root.join(FILE), &text)
}

fn cell(count: f64) -> String {
    format!("{count:.1}")
}

fn check(root: &Path, profile: &str) -> Result<()> {
    let published = read(&root.join(FILE))?;
    let index = PROFILES.iter().position(|one| *one == profile);
    let index = index.unwrap_or_default();
    let mut grown = Vec::new();
    for (ports, now) in ROWS.iter().zip(counts(root, index)?) {
        let before = figure(&published, &ports.join(" "), 1 + index)?;
        println!("{} {}: {now:.1}, published {before:.1}", ports[0], ports[1]);
        if now > before * GROWTH_MAX {
            grown.push(ports.join(" "));
        }
    }
    if !grown.is_empty() {
        bail!(
            "a packet costs over 2 % more than {FILE} has: {}; find why, or run \
             `cargo xtask instructions` and say in the commit what it is spent on",
            grown.join(", ")
        );
    }
    Ok(())
}

/// The table of the paths between devices. A count that fails is `-`, and its error is printed.
fn devices(root: &Path) -> Result<String> {
    ensure(&mut program(
        root,
        &FORWARDER.replace("{target}", &target()),
    ))?;
    let rows = DEVICES.iter().map(|path| {
        let ours = format!("{} {}", binary(0), path.ours);
        let (name, peer) = path.peer;
        let counts = [ours, peer()].map(|command| between(root, path, &command));
        let cells = counts.map(|count| match count {
            Ok([median, least, most]) => format!("{median:.0} ({least:.0} to {most:.0})"),
            Err(error) => {
                eprintln!("{}, {name} beside it: {error:#}", path.name);
                "-".to_owned()
            }
        });
        let [ours, theirs] = cells;
        vec![path.name.to_owned(), ours, name.to_owned(), theirs]
    });
    let names = ["path", "packtrain", "peer", "its count"];
    Ok(aligned(&names, rows, |column| column % 2 == 0))
}

/// The median, the least and the most of what a packet costs a forwarder.
fn between(root: &Path, path: &Devices, command: &str) -> Result<[f64; 3]> {
    let run = |amount: &str| {
        let line = format!("xtask/instructions.sh {} {amount} {command}", path.way);
        let text = printed(&mut program(root, &line))?;
        let numbers = text.split(' ').map(str::parse::<i64>);
        match numbers.collect::<Result<Vec<_>, _>>()?[..] {
            [count, packets] => Ok((count, packets)),
            _ => bail!("{line} printed {text}"),
        }
    };
    let mut counts = Vec::new();
    for _ in 0..PAIRS {
        let [short, long] = path.amounts;
        let (short, long) = (run(short)?, run(long)?);
        if long.1 <= short.1 {
            let (short, long) = (short.1, long.1);
            bail!(
                "a run passed {short} packets, and a longer one {long}: run it on an idle machine"
            );
        }
        counts.push((long.0 - short.0) as f64 / (long.1 - short.1) as f64);
    }
    counts.sort_by(f64::total_cmp);
    Ok([counts[PAIRS / 2], counts[0], counts[PAIRS - 1]])
}

/// A figure of the file: that of the row that begins with `ports`.
fn figure(text: &str, ports: &str, column: usize) -> Result<f64> {
    let row = text
        .lines()
        .find_map(|line| line.strip_prefix(ports)?.strip_prefix("  "));
    let cell = row.and_then(|row| row.split_whitespace().nth(column - 1));
    let figure = cell.and_then(|cell| cell.parse().ok());
    figure
        .with_context(|| format!("{FILE} has no figure for {ports}; run cargo xtask instructions"))
}

/// For each row, of a build of [`PROFILES`]. Rows are counted side by side, which changes none.
fn counts(root: &Path, index: usize) -> Result<Vec<f64>> {
    ensure(&mut program(root, BUILDS[index]))?;
    let binary = binary(index);
    let count = |[a, b]: [&str; 2]| {
        let run = |packets: u64| {
            let line = format!("{binary} forward -q {a},count={packets} {b}");
            counted(&mut callgrind(root, &line), None).map(|(count, _)| count)
        };
        let [short, long] = PACKETS;
        Ok((run(long)? - run(short)?) as f64 / (long - short) as f64)
    };
    thread::scope(|scope| {
        let rows = ROWS.map(|ports| scope.spawn(move || count(ports)));
        let rows = rows.into_iter().map(|row| match row.join() {
            Ok(count) => count,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        rows.collect()
    })
}

/// The folder of builds.
fn target() -> String {
    env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned())
}

/// The program in a build of [`PROFILES`].
fn binary(index: usize) -> String {
    format!("{}/{}/packtrain", target(), PROFILES[index])
}

fn callgrind(root: &Path, line: &str) -> Command {
    program(
        root,
        &format!(
            "valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file=/dev/null {line}"
        ),
    )
}

/// The instructions of a run, and what it printed. It ends by itself, or when its input does, after
/// `time`.
fn counted(command: &mut Command, time: Option<Duration>) -> Result<(u64, String)> {
    let streams = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = streams
        .spawn()
        .context("cannot start valgrind; is it installed?")?;
    let input = child.stdin.take();
    thread::spawn(move || {
        thread::sleep(time.unwrap_or_default());
        drop(input);
    });
    let output = child.wait_with_output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}: {text}", output.status);
    }
    let count = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    Ok((
        count.with_context(|| format!("callgrind counted nothing: {text}"))?,
        text,
    ))
}

/// testpmd that forwards between two devices.
fn io([a, b]: [&str; 2]) -> String {
    format!(
        "dpdk-testpmd -l 0,1 --no-pci --no-huge --no-telemetry -m 256 --file-prefix=instructions \
         --vdev={a} --vdev={b} -- --nb-cores=1 --total-num-mbufs=16384 --no-mlockall \
         --forward-mode=io --burst=64 --auto-start"
    )
}

/// `None` if it is not installed.
fn testpmd(root: &Path) -> Result<Option<f64>> {
    if Command::new("dpdk-testpmd")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("testpmd: not installed (dpdk-dev): without its column");
        return Ok(None);
    }
    let line = io(["net_null0", "net_null1"]);
    let run = |seconds| {
        let time = Some(Duration::from_secs(seconds));
        let (count, text) = counted(&mut callgrind(root, &line), time)?;
        let packets = text.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once("RX-packets: ")?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        });
        Ok::<_, anyhow::Error>((count, packets.context("testpmd received nothing")?))
    };
    let [short, long] = [run(SECONDS[0])?, run(SECONDS[1])?];
    Ok(Some((long.0 - short.0) as f64 / (long.1 - short.1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_that_of_its_row_and_column() {
        let text = "commit  x\n\nports    release     ci  testpmd\n\
                    null: a,b    12.5   20.0        -\n\
                    null: a    1.0    2.0    3\n";
        assert_eq!(figure(text, "null: a", 1).ok(), Some(1.0));
        assert_eq!(figure(text, "null: a,b", 2).ok(), Some(20.0));
        assert!(figure(text, "null: c", 1).is_err());
    }
}
