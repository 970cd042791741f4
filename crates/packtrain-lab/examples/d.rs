//! tmp
fn main() {
    let o = packtrain_lab::demo::Options {
        in_memory: std::env::args().count() > 1,
        ..Default::default()
    };
    let r = packtrain_lab::demo::run(
        &o,
        |w| println!("{w:?}"),
        |r| {
            println!(
                "{} {} {} {} {:.2} Gb/s wire {} frames {} sys/MB {:.1} cpu {:.0} ok {}",
                r.setting.name(),
                r.protocol,
                r.ip,
                r.direction,
                r.gbps,
                r.wire_packets,
                r.frames,
                r.syscalls_per_mb,
                r.cpu_percent,
                r.hash_ok
            )
        },
    );
    match r {
        Ok(o) => {
            for s in &o.settings {
                println!(
                    "{:?} kd {} drops {:?}",
                    s.snapshot.ledger,
                    s.kernel_drops,
                    s.snapshot.drops.nonzero().collect::<Vec<_>>()
                );
            }
        }
        Err(e) => println!("{e}"),
    }
}
