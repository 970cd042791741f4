//! Our offloads beside those of others, in pairs.
//!
//! `cargo bench -p packtrain-offload --features peers` prints one line for each work and peer, and
//! writes `target/bench/offload.json`. How the figures come about is in the documentation of the
//! module `loops`, which has our side; the peers are:
//!
//! - DPDK, from the system's package through pkg-config, and a few loops in plain C (`shim/`). The
//!   shim is compiled for this CPU when the bench starts, and with it what DPDK has in headers
//!   (`rte_raw_cksum`). `rte_gro` and `rte_gso` are functions of the package's prebuilt libraries,
//!   which are compiled for any CPU of the architecture;
//! - Rust crates, and two coalescers written for the bench. They and our side are compiled for this
//!   CPU as well: the bench builds itself once more and runs that; with `--as-built` it does not.
//!
//! `cargo bench -p packtrain-offload --bench offload -- --help` lists the options.

mod arguments;
#[allow(
    dead_code,
    unused_imports,
    reason = "their tests run in tests/loops.rs: a bench without a harness has none"
)]
mod loops;
#[cfg(feature = "peers")]
mod peers;

use arguments::Arguments;
use clap::Parser;
use loops::contest::{self, Contest, Row, Settings};
use loops::{Work, ours, plot};
use packtrain_measure::report::{self, Conditions};
use packtrain_measure::{clock, native, options};
use packtrain_offload::checksum::Level;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The largest footprint in a quick run: the buffers of 16 384 flows.
const QUICK_BYTES_MAX: usize = 256 << 20;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "peers")]
    if !arguments.as_built {
        match for_this_cpu() {
            Ok(code) => return code,
            Err(error) => eprintln!("offload: {error}; this build runs instead"),
        }
    }
    let done = match &arguments.rows {
        Some(rows) => redraw(&arguments, rows),
        None => run(&arguments),
    };
    options::status("offload", done)
}

#[cfg(feature = "peers")]
fn for_this_cpu() -> Result<ExitCode, String> {
    let directory = output_directory();
    let bench = native::Bench {
        name: "offload",
        package: Path::new(env!("CARGO_MANIFEST_DIR")),
        json: &directory.join("offload.json"),
    };
    bench.run_for_this_cpu(&directory)
}

/// Runs everything; false if a goal that the options ask for was missed.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let cpu = clock::last_cpu()?;
    let directory = output_directory();
    let mut conditions = Conditions::of_host();
    conditions.add("cpu", format!("{cpu}, the bench is kept on it"));
    conditions.add("ours", build());
    fs::create_dir_all(&directory)?;
    // Compilers run before the bench keeps to one CPU.
    #[cfg(feature = "peers")]
    let all = peers::Peers::find(&directory, cpu, &mut conditions)?;
    #[cfg(not(feature = "peers"))]
    conditions.add("peers", "none: --features peers");
    clock::pin(cpu)?;
    conditions.add(
        "samples",
        format!(
            "{} rounds, medians; ratio is theirs to ours; [ ] is a bootstrap interval of 95 %; \
             {:.0} ns for the clock subtracted",
            arguments.rounds,
            clock::overhead_ns()
        ),
    );
    conditions.print();
    loops::rows::print_head();
    let settings = Settings {
        rounds: arguments.rounds,
        quick: arguments.common.quick,
    };
    let mut rows: Vec<Row> = Vec::new();
    for work in Work::all() {
        if !arguments.wants(work) || (arguments.common.quick && work.footprint() > QUICK_BYTES_MAX)
        {
            continue;
        }
        #[cfg_attr(
            not(feature = "peers"),
            expect(unused_mut, reason = "peers are added to it")
        )]
        let mut contest: Contest = ours::contest(work);
        #[cfg(feature = "peers")]
        all.join(&mut contest);
        let measured = contest::run(contest, &settings);
        measured.iter().for_each(loops::rows::print_row);
        rows.extend(measured);
    }
    loops::rows::print_summary(&rows);
    let file = arguments
        .common
        .json
        .clone()
        .unwrap_or_else(|| directory.join("offload.json"));
    report::write(
        &file,
        &loops::rows::document(&conditions, arguments.rounds, &rows),
    )?;
    println!("rows: {}", file.display());
    if let Some(directory) = &arguments.plots {
        draw(directory, &rows)?;
    }
    let met = !arguments.goals.check || rows.iter().all(Row::is_met);
    let far_off = |row: &&Row| arguments.goals.check_half && !row.is_half_met();
    let far_off: Vec<&Row> = rows.iter().filter(far_off).collect();
    for row in &far_off {
        let (work, peer) = (row.work.row(), &row.peer);
        eprintln!("offload: {work}, beside {peer}: not even half the goal");
    }
    Ok(met && far_off.is_empty())
}

/// Draws the rows of a JSON document.
fn redraw(arguments: &Arguments, rows: &Path) -> Result<bool, Box<dyn Error>> {
    let directory = arguments.plots.as_ref().ok_or("--rows needs --plots")?;
    let document = serde_json::from_str(&fs::read_to_string(rows)?)?;
    draw(directory, &loops::rows::rows_of(&document)?)?;
    Ok(true)
}

/// How this executable was built.
fn build() -> String {
    format!(
        "packtrain-offload {}, built for {} ({}); checksums with {}",
        env!("CARGO_PKG_VERSION"),
        native::built_for(),
        std::env::consts::ARCH,
        Level::selected().name()
    )
}

fn draw(directory: &Path, rows: &[Row]) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    for (name, lines) in plot::charts(rows) {
        if let Some(svg) = lines.document() {
            let file = directory.join(format!("{name}.svg"));
            fs::write(&file, svg)?;
            println!("chart: {}", file.display());
        }
    }
    Ok(())
}

/// `bench` in the target directory: this executable is in `release/deps` of it.
fn output_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable.ancestors().nth(3);
    target.unwrap_or(Path::new("target")).join("bench")
}
