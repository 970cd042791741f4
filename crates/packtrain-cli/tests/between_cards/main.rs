//! `packtrain forward` between two cards in a guest, whose other ends are TAPs and sockets of this
//! host: what arrives, what is counted, and what happens when a link or a card goes.
//!
//! The folder `PACKTRAIN_GUEST`, or `target/guest`, has the kernel, its modules and BusyBox:
//! `.ci/run tests` puts them there.

mod bench;
#[allow(dead_code, reason = "its `main` is that of a program")]
#[path = "../../../packtrain/examples/card.rs"]
mod card;
mod frames;
mod kernels;
mod links;
mod peers;
#[path = "../program/mod.rs"]
mod program;
mod queues;

use kernels::{Bench, exchange_through_two_cards};
use links::{cards_are_unplugged_and_reset_under_load, links_go_down_and_up_under_load};
use peers::odd_frames_pass_and_the_kernels_drivers_are_reached;
use queues::flows_are_spread_over_the_queues_of_a_virtio_card;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == peers::EXAMPLE
    {
        return match peers::example(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    packtrain_lab::tests![
        2 at once:
        traffic_passes_two_cards_whose_links_and_cards_go_and_return,
        odd_frames_pass_and_the_kernels_drivers_are_reached,
    ]
}

/// In one guest, since each takes seconds to boot.
fn traffic_passes_two_cards_whose_links_and_cards_go_and_return() {
    let bench = Bench::new();
    exchange_through_two_cards(&bench);
    flows_are_spread_over_the_queues_of_a_virtio_card(&bench);
    links_go_down_and_up_under_load(&bench);
    cards_are_unplugged_and_reset_under_load(&bench);
}
