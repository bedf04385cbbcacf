//! One combination, and its outcome by the manual pages.

use verbline_verbs::Transport;

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Send,
    SendWithInvalidate,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    LocalInvalidate,
    Bind,
    Sign,
    Respond,
}

/// The memory of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Nothing,
    /// Eight bytes, which may go inline.
    Packet,
    /// More than goes inline.
    LongPacket,
    /// Eight bytes of a region.
    Part,
    /// Eight bytes in two packets.
    List,
    /// The data of a signature key.
    Key,
}

/// The function that posts the work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A typed handle's method for one work request.
    Alone,
    /// The same, inline.
    Inline,
    /// `post_works`.
    Listed,
    /// `post_send_with`.
    Batch,
}

/// Options of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    pub imm: bool,
    pub fence: bool,
    pub solicited: bool,
    pub signaled: bool,
}

/// The state of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub what: What,
    pub memory: Memory,
    pub route: Route,
    pub transport: Transport,
    pub flags: Flags,
    pub state: State,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Became {
    /// It cannot be written: no function or no type takes it.
    Unwritten,
    /// The post refused it, and gave its memory back.
    Refused,
    /// The device found it invalid when carrying it out, and moved no byte.
    Failed,
    /// It was carried out, and its completion came.
    Done,
    /// It was carried out, and no completion came.
    DoneQuietly,
    /// It was carried out only after the queue pair was resumed.
    DoneLater,
    /// It completed with WR_FLUSH_ERR, and moved no byte.
    Flushed,
}

pub const WHATS: [What; 10] = [
    What::Send,
    What::SendWithInvalidate,
    What::Write,
    What::Read,
    What::CompareSwap,
    What::FetchAdd,
    What::LocalInvalidate,
    What::Bind,
    What::Sign,
    What::Respond,
];
pub const MEMORIES: [Memory; 6] =
    [Memory::Nothing, Memory::Packet, Memory::LongPacket, Memory::Part, Memory::List, Memory::Key];
pub const ROUTES: [Route; 4] = [Route::Alone, Route::Inline, Route::Listed, Route::Batch];
pub const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];
pub const STATES: [State; 7] = [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];

/// All sets of flags.
pub fn all_flags() -> impl Iterator<Item = Flags> {
    (0..16).map(|bits| Flags {
        imm: bits & 1 != 0,
        fence: bits & 2 != 0,
        solicited: bits & 4 != 0,
        signaled: bits & 8 != 0,
    })
}

impl What {
    pub fn is_atomic(self) -> bool {
        matches!(self, What::CompareSwap | What::FetchAdd)
    }

    /// Whether it sends a message that takes a receive.
    pub fn is_message(self) -> bool {
        matches!(self, What::Send | What::SendWithInvalidate | What::Respond)
    }
}

impl Cell {
    /// Whether the state can be reached: no work request on UD can fail on this side and bring the
    /// queue pair to SQE.
    pub fn is_reachable(&self) -> bool {
        self.transport != Transport::Ud || self.state != State::Sqe
    }

    /// Whether the pages allow such a work request, whatever the state of its queue pair.
    pub fn is_allowed(&self) -> bool {
        self.is_carried() && self.has_its_memory() && self.may_be_posted_so()
    }

    /// ibv_post_send(3), the table of opcodes and transports, and the flag FENCE: "valid only for
    /// QPs with Transport Service Type IBV_QPT_RC". ibv_bind_mw(3): RC and UC.
    /// mlx5dv_wr_mkey_configure(3): the software RNIC has it on RC.
    fn is_carried(&self) -> bool {
        let carried = match self.what {
            What::Send => true,
            What::SendWithInvalidate | What::Write | What::LocalInvalidate | What::Bind => {
                self.transport != Transport::Ud
            }
            What::Read | What::CompareSwap | What::FetchAdd | What::Sign | What::Respond => {
                self.transport == Transport::Rc
            }
        };
        carried && (!self.flags.fence || self.transport == Transport::Rc)
    }

    /// ibv_post_send(3): the data sent or read lies in `sg_list`; an atomic is "a 64 bits value",
    /// and "the original data […] is being written to the local memory buffers". LOCAL_INV has no
    /// memory. The memory of a window or a key is a part of a region, "registered until any posted
    /// Work Request that uses it isn't considered outstanding anymore", and longer: until nobody
    /// reaches it through the window or key.
    fn has_its_memory(&self) -> bool {
        match self.what {
            What::Send | What::SendWithInvalidate | What::Write | What::Read | What::Respond => true,
            // A key stands for blocks that move (mlx5dv_wr_mkey_configure(3)): no page lets an
            // atomic use one.
            What::CompareSwap | What::FetchAdd => {
                !matches!(self.memory, Memory::Nothing | Memory::LongPacket | Memory::Key)
            }
            What::LocalInvalidate => self.memory == Memory::Nothing,
            What::Bind | What::Sign => self.memory == Memory::Part,
        }
    }

    /// ibv_post_send(3), INLINE: "valid only for the Send and RDMA Write opcodes". The CPU reads
    /// the buffers, and a key's range has no address for it; the limit is `max_inline_data`. A
    /// batch holds packets to send. A list holds work requests over a connection, whose keys only
    /// RC can configure; these keys have no LOCAL_WRITE, since none was requested
    /// (mlx5dv_wr_set_mkey_access_flags(3)).
    fn may_be_posted_so(&self) -> bool {
        match self.route {
            // Signature keys exist for connections only.
            Route::Alone => self.transport != Transport::Ud || self.memory != Memory::Key,
            Route::Inline => {
                let has_addresses = !matches!(self.memory, Memory::Key | Memory::LongPacket);
                has_addresses && matches!(self.what, What::Send | What::SendWithInvalidate | What::Write)
            }
            Route::Listed => {
                let is_read = self.transport == Transport::Rc && self.what != What::Read;
                let has_keys = is_read || self.memory != Memory::Key;
                has_keys && self.transport != Transport::Ud
            }
            Route::Batch => {
                let is_packet = matches!(self.memory, Memory::Nothing | Memory::Packet | Memory::LongPacket);
                is_packet && self.what == What::Send
            }
        }
    }

    /// The outcome of an allowed one in its state (ibv_post_send(3), and the flag SIGNALED).
    pub fn in_its_state(&self) -> Became {
        // A work request posted alone, or last in a list, is signaled even if not requested.
        let is_signaled = self.flags.signaled || self.route != Route::Batch;
        match self.state {
            State::Reset | State::Init | State::Rtr => Became::Refused,
            State::Rts if is_signaled => Became::Done,
            State::Rts => Became::DoneQuietly,
            State::Sqd => Became::DoneLater,
            State::Sqe | State::Err => Became::Flushed,
        }
    }
}

/// Whether a function, and a type of memory, exist to write it with.
pub fn is_written(cell: &Cell) -> bool {
    let handle = match cell.what {
        What::Send => true,
        What::SendWithInvalidate | What::Write | What::LocalInvalidate | What::Bind => cell.transport != Transport::Ud,
        What::Read | What::CompareSwap | What::FetchAdd | What::Sign => cell.transport == Transport::Rc,
        What::Respond => false,
    };
    let takes = match cell.what {
        What::LocalInvalidate => cell.memory == Memory::Nothing,
        What::Bind | What::Sign => cell.memory == Memory::Part,
        _ => true,
    };
    if cell.flags.fence && cell.transport != Transport::Rc {
        return false;
    }
    match cell.route {
        Route::Alone => {
            let is_addressed = cell.what.is_atomic() || cell.transport == Transport::Ud;
            handle && takes && !(is_addressed && cell.memory == Memory::Key)
        }
        Route::Inline => handle && matches!(cell.what, What::Send | What::Write) && cell.memory != Memory::Key,
        Route::Listed => {
            let has_imm = matches!(cell.what, What::Send | What::Write);
            let is_word = !matches!(cell.memory, Memory::Nothing | Memory::Key);
            // UC has no such value, and no range of a key.
            let is_reliable = matches!(cell.what, What::Read | What::Sign | What::Respond)
                || cell.what.is_atomic()
                || cell.memory == Memory::Key;
            cell.transport != Transport::Ud
                && (cell.transport == Transport::Rc || !is_reliable)
                && takes
                // An atomic of a list takes one word.
                && !(cell.memory == Memory::List && cell.what.is_atomic())
                && (has_imm || !cell.flags.imm)
                && (is_word || !cell.what.is_atomic())
        }
        Route::Batch => {
            cell.what == What::Send && matches!(cell.memory, Memory::Nothing | Memory::Packet | Memory::LongPacket)
        }
    }
}
