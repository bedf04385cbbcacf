//! Generated sequences of posts, polls and modifications on an RC pair, held against a small oracle.
//!
//! One thread, so that everything is decided: `rnr_retry` 7 and no ACK time-out, so that nothing depends on time. The
//! oracle knows queues of numbers; it doesn't know rings, credits, slots or paths.
#![allow(clippy::undocumented_unsafe_blocks)]

mod harness;
use harness::*;
use proptest::prelude::*;
use rdma_sys::ibv_qp_type::IBV_QPT_RC;
use rdma_sys::*;
use std::collections::VecDeque;

const DEPTH: usize = 6;
/// Where the n-th receive's and the n-th send's bytes are, modulo this.
const BUFFERS: u64 = 64;
const BYTES: usize = 700;

#[derive(Clone, Debug)]
enum Op {
    /// On side 0 or 1: sends of these lengths in one list; every so many-th signaled; inline where it fits.
    Send {
        side: usize,
        lens: Vec<usize>,
        signal_every: usize,
        inline: bool,
    },
    Recv {
        side: usize,
        len: usize,
    },
    PollSend {
        side: usize,
        count: usize,
    },
    PollRecv {
        side: usize,
        count: usize,
    },
    ToErr {
        side: usize,
    },
    Reconnect,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![4 => 0usize..=98, 1 => Just(96usize), 1 => 98usize..=600];
    let side = 0usize..2;
    let op = prop_oneof![
        8 => (side.clone(), prop::collection::vec(len, 1..5), 1usize..4, any::<bool>())
            .prop_map(|(side, lens, signal_every, inline)| Op::Send { side, lens, signal_every, inline }),
        10 => (side.clone(), prop_oneof![9 => Just(BYTES), 1 => 0usize..100]).prop_map(|(side, len)| Op::Recv { side, len }),
        6 => (side.clone(), 1usize..6).prop_map(|(side, count)| Op::PollSend { side, count }),
        8 => (side.clone(), 1usize..6).prop_map(|(side, count)| Op::PollRecv { side, count }),
        1 => side.prop_map(|side| Op::ToErr { side }),
        1 => Just(Op::Reconnect),
    ];
    prop::collection::vec(op, 1..120)
}

/// A completion that must come: wr_id, status, and for a receive the number of the message that it is of.
type Due = (u64, u32, Option<u64>);

#[derive(Clone, Debug)]
struct Send {
    number: u64,
    position: u64,
    len: usize,
    signaled: bool,
}

#[derive(Debug, Default)]
struct Side {
    failed: bool,
    receives: VecDeque<(u64, usize)>,
    unpolled_receives: usize,
    pending: VecDeque<Send>,
    posted: u64,
    freed: u64,
    send_due: VecDeque<(Due, u64)>,
    recv_due: VecDeque<Due>,
    /// Never reset: names buffers.
    sends_ever: u64,
    receives_ever: u64,
}

impl Side {
    fn fail(&mut self) {
        self.failed = true;
        for send in std::mem::take(&mut self.pending) {
            self.send_due.push_back(((send.number, FLUSHED, None), send.position));
        }
        for (wr_id, _) in std::mem::take(&mut self.receives) {
            self.recv_due.push_back((wr_id, FLUSHED, None));
        }
    }

    fn reset(&mut self) {
        let (sends_ever, receives_ever) = (self.sends_ever, self.receives_ever);
        *self = Side { sends_ever, receives_ever, ..Side::default() };
    }
}

struct Model {
    sides: [Side; 2],
}

impl Model {
    /// Carries out what side `from` has pending.
    fn deliver(&mut self, from: usize) {
        let [first, second] = &mut self.sides;
        let (sender, receiver) = if from == 0 { (first, second) } else { (second, first) };
        while !sender.failed && !receiver.failed && !sender.pending.is_empty() {
            let Some((wr_id, room)) = receiver.receives.pop_front() else { return };
            let send = sender.pending.pop_front().unwrap();
            if room < send.len {
                receiver.recv_due.push_back((wr_id, ibv_wc_status::IBV_WC_LOC_LEN_ERR, None));
                sender.send_due.push_back(((send.number, ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, None), send.position));
                sender.fail();
                receiver.fail();
                return;
            }
            receiver.recv_due.push_back((wr_id, SUCCESS, Some(send.number)));
            if send.signaled {
                sender.send_due.push_back(((send.number, SUCCESS, None), send.position));
            }
        }
    }
}

struct Real {
    /// What each side sends from, and receives into. Before the devices, which go last.
    out: [Memory; 2],
    into: [Memory; 2],
    pair: Pair,
}

impl Real {
    fn new() -> Real {
        let pair = Pair::unconnected(IBV_QPT_RC, |init| {
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (DEPTH as u32, DEPTH as u32);
        });
        let memory = |nic: &Nic| nic.memory(BUFFERS as usize * BYTES);
        let (out, into) = ([memory(&pair.nic), memory(&pair.other)], [memory(&pair.nic), memory(&pair.other)]);
        let real = Real { pair, out, into };
        real.connect();
        real
    }

    fn qp(&self, side: usize) -> &Qp {
        [&self.pair.a, &self.pair.b][side]
    }

    fn connect(&self) {
        for side in 0..2 {
            self.qp(side).to_init();
            self.qp(side).to_rtr(self.qp(1 - side).num(), 2 - side as u16);
        }
        for side in 0..2 {
            self.qp(side).to_rts_with(|attr| attr.timeout = 0);
        }
    }
}

fn offset(number: u64) -> usize {
    (number % BUFFERS) as usize * BYTES
}

fn apply(model: &mut Model, real: &Real, op: &Op) -> Result<(), TestCaseError> {
    match op {
        Op::Send { side, lens, signal_every, inline } => send(model, real, *side, lens, *signal_every, *inline)?,
        Op::Recv { side, len } => {
            let this = &mut model.sides[*side];
            let wr_id = this.receives_ever;
            let sges = [real.into[*side].sge(offset(wr_id), *len)];
            let code = real.qp(*side).recv(wr_id, if *len == 0 { &[] } else { &sges });
            if this.unpolled_receives == DEPTH {
                prop_assert_eq!(code, libc::ENOMEM);
                return Ok(());
            }
            prop_assert_eq!(code, 0);
            this.receives_ever += 1;
            this.unpolled_receives += 1;
            if this.failed {
                this.recv_due.push_back((wr_id, FLUSHED, None));
            } else {
                this.receives.push_back((wr_id, *len));
                model.deliver(1 - *side);
            }
        }
        Op::PollSend { side, count } => {
            let cq = [&real.pair.a_send, &real.pair.b_send][*side];
            for _ in 0..*count {
                let this = &mut model.sides[*side];
                let due = this.send_due.pop_front();
                prop_assert_eq!(cq.poll().map(|wc| (wc.wr_id, wc.status, None)), due.map(|(due, _)| due));
                if let Some((_, position)) = due {
                    this.freed = position + 1;
                }
            }
        }
        Op::PollRecv { side, count } => poll_recv(model, real, *side, *count)?,
        Op::ToErr { side } => {
            prop_assert_eq!(real.qp(*side).to(ibv_qp_state::IBV_QPS_ERR), 0);
            model.sides[*side].fail();
        }
        Op::Reconnect => {
            for side in 0..2 {
                prop_assert_eq!(real.qp(side).to(ibv_qp_state::IBV_QPS_RESET), 0);
                model.sides[side].reset();
            }
            real.connect();
        }
    }
    for side in 0..2 {
        let state = real.qp(side).state();
        let expected = if model.sides[side].failed { ibv_qp_state::IBV_QPS_ERR } else { ibv_qp_state::IBV_QPS_RTS };
        prop_assert_eq!(state, expected);
    }
    Ok(())
}

fn send(
    model: &mut Model,
    real: &Real,
    side: usize,
    lens: &[usize],
    signal_every: usize,
    inline: bool,
) -> Result<(), TestCaseError> {
    let this = &mut model.sides[side];
    let mut list = Vec::new();
    for (index, len) in lens.iter().enumerate() {
        let number = this.sends_ever + index as u64;
        real.out[side].fill(offset(number), &pattern(*len, number as u8));
        let sges = [real.out[side].sge(offset(number), *len)];
        let signal = if number.is_multiple_of(signal_every as u64) { SIGNALED } else { 0 };
        let inline = if inline && *len <= 128 { INLINE } else { 0 };
        list.push(Wr::send(number, signal | inline, if *len == 0 { &[] } else { &sges }));
    }
    let room = DEPTH - (this.posted - this.freed) as usize;
    let result = real.qp(side).post(&mut list);
    prop_assert_eq!(result, if lens.len() <= room { Ok(()) } else { Err((libc::ENOMEM, room)) });
    for len in lens.iter().take(room) {
        let this = &mut model.sides[side];
        let (number, position) = (this.sends_ever, this.posted);
        this.sends_ever += 1;
        this.posted += 1;
        if this.failed {
            this.send_due.push_back(((number, FLUSHED, None), position));
        } else {
            let signaled = number.is_multiple_of(signal_every as u64);
            this.pending.push_back(Send { number, position, len: *len, signaled });
            model.deliver(side);
        }
    }
    Ok(())
}

fn poll_recv(model: &mut Model, real: &Real, side: usize, count: usize) -> Result<(), TestCaseError> {
    let cq = [&real.pair.a_recv, &real.pair.b_recv][side];
    let mut wcs: Vec<ibv_wc> = (0..count).map(|_| unsafe { std::mem::zeroed() }).collect();
    let polled = unsafe { ibv_poll_cq(cq.0, count as i32, wcs.as_mut_ptr()) } as usize;
    let this = &mut model.sides[side];
    prop_assert_eq!(polled, count.min(this.recv_due.len()));
    for wc in &wcs[..polled] {
        let (wr_id, status, message) = this.recv_due.pop_front().unwrap();
        this.unpolled_receives -= 1;
        prop_assert_eq!((wc.wr_id, wc.status), (wr_id, status));
        if let Some(number) = message {
            let expected = pattern(wc.byte_len as usize, number as u8);
            prop_assert_eq!(real.into[side].read(offset(wr_id), wc.byte_len as usize), expected);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn an_rc_pair_does_what_the_oracle_says(ops in ops()) {
        let real = Real::new();
        let mut model = Model { sides: Default::default() };
        for op in &ops {
            apply(&mut model, &real, op)?;
        }
        // Everything that is due, and nothing else, is there in the end.
        for side in 0..2 {
            apply(&mut model, &real, &Op::PollSend { side, count: 200 })?;
            apply(&mut model, &real, &Op::PollRecv { side, count: 200 })?;
            prop_assert!(model.sides[side].send_due.is_empty() && model.sides[side].recv_due.is_empty());
        }
    }
}
