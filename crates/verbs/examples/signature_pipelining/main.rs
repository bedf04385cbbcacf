//! Signature pipelining: a storage target answers reads before their blocks have been checked, and
//! handles failed checks as in `mlx5dv_qp_cancel_posted_send_wrs(3)`.
//!
//! ```text
//!   target                                          host
//!     RDMA WRITE through a key   ─── 512 bytes ───▶
//!                (of 520 in memory, checked and stripped on the way)
//!     SEND, FENCE                ─── good ────────▶
//! ```
//! Both are posted at once. If a block is bad, the target's QP stops between the two, and the host
//! gets a bad response instead. Both ends are in this process, on the software RNIC or on one card.
//! Only the safe API of the crate is used.
//!
//! On a card (`--device mlx5_0 --gid-index 3`) it has not run so far: its authors have none.
#![forbid(unsafe_code)]

mod end;

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser};
use end::{End, connect};
use verbline_verbs::event::{AsyncEventKind, AsyncEvents};
use verbline_verbs::rdma::PeerMr;
use verbline_verbs::signature::{
    BlockSignature, BlockSize, Domain, KeyConfig, KeyLayout, KeySpec, QpSignature, SignatureKey, T10Dif, WrNumber,
};
use verbline_verbs::{Access, SendOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Data bytes of a block; next, including its protection information.
const BLOCK_BYTES: usize = 512;
const STORED_BYTES: usize = BLOCK_BYTES + 8;
const APP_TAG: u16 = 0x5e1f;

/// Answers reads of protected blocks with signature pipelining.
#[derive(Parser)]
struct Options {
    /// Reads that are answered, each of a block of its own
    #[arg(short = 'n', long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=32))]
    reads: u16,
    /// Blocks that are corrupted in the target's memory
    #[arg(long, value_delimiter = ',', default_values_t = [3, 4, 9])]
    bad: Vec<u16>,
    #[command(flatten)]
    card: Card,
}

#[derive(Args, Default)]
struct Card {
    /// A kernel device that both ends are on; the software RNIC if none is named
    #[arg(long)]
    device: Option<String>,
    /// Which of its port's GIDs (of RoCE v2, where the port is Ethernet)
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
}

/// A read being answered.
struct Transaction {
    block: u16,
    key: SignatureKey,
    /// Its good response, until that has completed.
    response: Option<WrNumber>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("signature_pipelining: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<()> {
    let mut target = End::new(&options.card, "soft0", QpSignature::Pipelined)?;
    let mut host = End::new(&options.card, "soft1", QpSignature::Keys)?;
    connect(&mut target, &mut host)?;
    let events = target.context.async_events();
    let store = fill_store(&mut target, options.reads)?;
    for &block in options.bad.iter().filter(|&&block| block < options.reads) {
        store.write_from(usize::from(block) * STORED_BYTES + 77, &[0xff, 0x00, 0xff])?;
    }

    // Every block has its own key, configured once, directly before the work request of the data.
    let mut open = Vec::new();
    let buffers = host.region(usize::from(options.reads) * BLOCK_BYTES)?;
    host.post_receives(usize::from(options.reads))?;
    for block in 0..options.reads {
        open.push(answer(&mut target, &store, &buffers, block)?);
    }
    let failed = finish(&mut target, &events, &mut open)?;

    let mut told = host.receive(usize::from(options.reads))?;
    told.sort_unstable();
    for (block, good) in told {
        let intact = block_of(&buffers, block)? == data(block);
        let expected = !options.bad.contains(&block);
        if good != expected || good != intact {
            return Err(format!("block {block} was told to be {good}, and is {intact}").into());
        }
    }
    println!("{} reads answered, {failed} with a guard error, the rest with data that is right", options.reads);
    Ok(())
}

/// Posts the data and, behind a fence, the good response.
fn answer(target: &mut End, store: &PeerMr, buffers: &PeerMr, block: u16) -> Outcome<Transaction> {
    let mut key = target.pd.create_signature_key(&KeySpec::default())?;
    let stored = store.slice(usize::from(block) * STORED_BYTES, STORED_BYTES as u32).ok_or("no such block")?;
    let config = KeyConfig::new().layout(KeyLayout::list([stored])).signature(BlockSignature::in_memory(domain(block)));
    let to = buffers.remote(u64::from(block) * BLOCK_BYTES as u64);
    let response = target.message(block, true)?;
    let mut rc = target.qp.rc()?;
    rc.configure_key(&mut key, config, SendOptions::default())?;
    rc.write(key.range(0, BLOCK_BYTES as u32), to, SendOptions::default())?;
    rc.send(response, fenced())?;
    Ok(Transaction { block, key, response: target.qp.last_posted() })
}

/// Polls until every response is sent, and handles each stop. Returns the number of failed reads.
fn finish(target: &mut End, events: &AsyncEvents, open: &mut [Transaction]) -> Outcome<usize> {
    let mut failed = 0;
    while target.qp.sends_outstanding() > 0 {
        target.poll_sends()?;
        let event = events.try_next()?;
        if event.is_some_and(|event| event.kind == AsyncEventKind::SqDrained) && target.qp.is_stopped()? {
            failed += handle_stop(target, open)?;
        }
    }
    Ok(failed)
}

/// Handles a stop of the queue. The keys tell which transactions failed; there may be several.
fn handle_stop(target: &mut End, open: &mut [Transaction]) -> Outcome<usize> {
    // Until a poll finds nothing: all existing faults are recorded by then.
    while target.poll_sends()? > 0 {}
    let mut failed = 0;
    for transaction in open.iter_mut() {
        let (Some(fault), Some(response)) = (transaction.key.check()?, transaction.response) else { continue };
        println!(
            "block {}: {:?}, {:#06x} instead of {:#06x}",
            transaction.block, fault.part, fault.actual, fault.expected
        );
        // A response that had already gone out cannot be cancelled.
        if target.qp.cancel_posted_sends([response])? != 1 {
            return Err(format!("the good response of block {} has gone out", transaction.block).into());
        }
        let bad = target.message(transaction.block, false)?;
        target.qp.rc()?.send(bad, fenced())?;
        transaction.response = target.qp.last_posted();
        failed += 1;
    }
    target.qp.resume()?;
    Ok(failed)
}

/// Fills the store with blocks and their protection information, which the target's own device
/// generates for incoming data.
fn fill_store(target: &mut End, blocks: u16) -> Outcome<PeerMr> {
    let store = target.region(usize::from(blocks) * STORED_BYTES)?;
    let plain = target.region(usize::from(blocks) * BLOCK_BYTES)?;
    let mut loopback = End::beside(target, QpSignature::Keys)?;
    loopback.connect_to_itself()?;
    for block in 0..blocks {
        let at = usize::from(block);
        plain.write_from(at * BLOCK_BYTES, &data(block))?;
        let mut key = loopback.pd.create_signature_key(&KeySpec::default())?;
        let layout = KeyLayout::list([store.slice(at * STORED_BYTES, STORED_BYTES as u32).ok_or("no such block")?]);
        let config = KeyConfig::new().access(Access::LOCAL_WRITE).layout(layout);
        let config = config.signature(BlockSignature::in_memory(domain(block)));
        let mut rc = loopback.qp.rc()?;
        rc.configure_key(&mut key, config, SendOptions::default())?;
        rc.read(key.range(0, BLOCK_BYTES as u32), plain.remote((at * BLOCK_BYTES) as u64), SendOptions::default())?;
        while loopback.qp.sends_outstanding() > 0 {
            loopback.poll_sends()?;
        }
    }
    Ok(store)
}

fn domain(block: u16) -> Domain {
    Domain::T10Dif(BlockSize::B512, T10Dif::type_1(APP_TAG, block.into()))
}

fn data(block: u16) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (at as u8).wrapping_mul(13) ^ block as u8).collect()
}

fn block_of(buffers: &PeerMr, block: u16) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; BLOCK_BYTES];
    buffers.read_into(usize::from(block) * BLOCK_BYTES, &mut bytes)?;
    Ok(bytes)
}

fn fenced() -> SendOptions {
    SendOptions { fence: true, ..SendOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_answered_whichever_blocks_are_bad() {
        for bad in [vec![], vec![0], vec![15], (0..16).collect(), vec![1, 2, 3, 11]] {
            run(&Options { reads: 16, bad, card: Card::default() }).unwrap();
        }
    }
}
