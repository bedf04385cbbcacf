//! Numbered messages, sent by one thread and checked by another.
use crate::harness::*;

/// Lengths on both sides of every border between paths.
pub(super) const LENS: [usize; 12] = [8, 32, 33, 40, 41, 64, 96, 97, 200, 600, 1, 1500];
pub(super) const ROOM: usize = 1504;

/// Fills the message with a number and its echo.
pub(super) fn write_message(mem: &Memory, offset: usize, number: u64, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|at| (number as u8).wrapping_add(at as u8)).collect();
    mem.fill(offset, &bytes);
}

pub(super) fn check_message(mem: &Memory, offset: usize, number: u64, len: usize) {
    let bytes = mem.read(offset, len);
    let whole = bytes.iter().enumerate().all(|(at, byte)| *byte == (number as u8).wrapping_add(at as u8));
    assert!(whole, "message {number} of {len} bytes is torn: {bytes:?}");
}

/// Sends `count` messages over `qp`, completions on `cq`; waits whenever the queue is full.
pub(super) fn send_all(qp: &Qp, cq: &Cq, mem: &Memory, count: u64) {
    let mut completed = 0;
    for number in 0..count {
        let len = LENS[number as usize % LENS.len()];
        let offset = (number as usize % 16) * ROOM;
        // The buffer of sixteen messages ago is free once that message completed; every eighth is
        // signaled.
        while number >= 16 && completed + 16 < number + 8 {
            completed = completed.max(cq.wait().wr_id + 1);
        }
        write_message(mem, offset, number, len);
        let flags = if number % 8 == 7 { SIGNALED } else { 0 };
        qp.post(&mut [Wr::send(number, flags, &[mem.sge(offset, len)])]).unwrap();
    }
}

fn receive_all(qp: &Qp, cq: &Cq, mem: &Memory, count: u64, receives: u64) {
    for wr_id in 0..receives {
        assert_eq!(qp.recv(wr_id, &[mem.sge(wr_id as usize * ROOM, ROOM)]), 0);
    }
    for number in 0..count {
        let got = cq.wait();
        assert_eq!((got.status, got.wr_id), (SUCCESS, number % receives));
        let (len, offset) = (LENS[number as usize % LENS.len()], got.wr_id as usize * ROOM);
        assert_eq!(got.byte_len as usize, len);
        check_message(mem, offset, number, len);
        assert_eq!(qp.recv(got.wr_id, &[mem.sge(offset, ROOM)]), 0);
    }
}

/// Sends messages both ways between four threads, one per queue. This thread runs `meanwhile`,
/// which can ask whether all messages have come.
pub(super) fn both_ways(count: u64, meanwhile: impl FnOnce(&dyn Fn() -> bool)) {
    let mut pair = Pair::rc();
    pair.a_mem = pair.nic.memory(1 << 18);
    pair.b_mem = pair.other.memory(1 << 18);
    let (a_out, b_out) = (pair.nic.memory(1 << 16), pair.other.memory(1 << 16));
    std::thread::scope(|scope| {
        let (a, b) = (&pair.a, &pair.b);
        let (a_send, a_recv, b_send, b_recv) = (&pair.a_send, &pair.a_recv, &pair.b_send, &pair.b_recv);
        let (a_mem, b_mem) = (Shared(&pair.a_mem), Shared(&pair.b_mem));
        let (a_out, b_out) = (Shared(&a_out), Shared(&b_out));
        scope.spawn(move || send_all(a, a_send, a_out.get(), count));
        scope.spawn(move || send_all(b, b_send, b_out.get(), count));
        // Few receives, so that the senders wait again and again.
        let receivers = [
            scope.spawn(move || receive_all(a, a_recv, a_mem.get(), count, 8)),
            scope.spawn(move || receive_all(b, b_recv, b_mem.get(), count, 40)),
        ];
        meanwhile(&|| receivers.iter().all(|receiver| receiver.is_finished()));
    });
}

/// A queue's memory, for the thread that has the queue.
pub(super) struct Shared<'a>(pub(super) &'a Memory);
unsafe impl Send for Shared<'_> {}
impl<'a> Shared<'a> {
    pub(super) fn get(&self) -> &'a Memory {
        self.0
    }
}
