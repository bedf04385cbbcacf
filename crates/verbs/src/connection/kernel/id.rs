//! An rdma_cm id with a channel of its own, and its events.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_qp_attr, rdma_addrinfo, rdma_port_space};
use rdma_sys::{rdma_cm_event, rdma_cm_event_type as event_type, rdma_cm_id, rdma_event_channel};
use verbline_softnic::qp_table::Transport;

use super::address::{RawAddress, read_address};
use crate::connection::options::OwnAttr;
use crate::connection::{CmTransport, ConnParam, ConnectionError, Deadline};
use crate::device::context::set_nonblocking;
use crate::device::provider::Provider;
use crate::errno::{Errno, VerbError};
use crate::memory::mr::Access;
use crate::qp::QueuePair;
use crate::qp::attr::{AttrMask, QpState};

/// The CM's reason if nothing listens (InfiniBand Architecture Specification, table 117: "invalid
/// service ID").
const INVALID_SERVICE: i32 = 8;

/// An id and the channel of its events.
#[derive(Debug)]
pub(super) struct CmId {
    pub(super) id: NonNull<rdma_cm_id>,
    pub(super) channel: Channel,
}

// SAFETY: the verbs of rdma_cm may be called from any thread; a CmId is used through `&mut self`
// where they change it.
unsafe impl Send for CmId {}
// SAFETY: the data that `&self` reads is written only by the events that `&mut self` takes.
unsafe impl Sync for CmId {}

impl CmId {
    pub(super) fn create(channel: Channel) -> Result<CmId, VerbError> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is open; `id` may be written by the call.
        let ret = unsafe {
            rdma_sys::rdma_create_id(channel.0.as_ptr(), &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP)
        };
        check("rdma_create_id", ret, || "a connection".to_owned())?;
        let id = NonNull::new(id)
            .ok_or_else(|| VerbError::new("rdma_create_id", "a connection", Errno::new(libc::EINVAL)))?;
        Ok(CmId { id, channel })
    }

    /// Creates an id bound to an address, for connections of this transport.
    pub(super) fn create_bound(
        channel: Channel,
        address: SocketAddr,
        transport: CmTransport,
    ) -> Result<CmId, VerbError> {
        let mut raw = RawAddress::new(address);
        if transport == CmTransport::Uc {
            return CmId::create_unreliable(channel, address, raw);
        }
        let id = CmId::create(channel)?;
        // SAFETY: the id is alive; the address is read during the call.
        let ret = unsafe { rdma_sys::rdma_bind_addr(id.as_ptr(), raw.as_ptr()) };
        check("rdma_bind_addr", ret, || address.to_string())?;
        Ok(id)
    }

    /// Creates an id for UC. rdma_create_id(3) takes the transport from the port space, and no port
    /// space is for UC. rdma_create_ep(3) takes both; for a passive end it only binds the address.
    /// The id is synchronous until it has a channel of the caller's (rdma_migrate_id(3)).
    fn create_unreliable(channel: Channel, address: SocketAddr, mut raw: RawAddress) -> Result<CmId, VerbError> {
        // `RAI_PASSIVE` of rdma_cma.h.
        const PASSIVE: i32 = 1;
        // SAFETY: integers and pointers: all zeros is a value.
        let mut info: rdma_addrinfo = unsafe { std::mem::zeroed() };
        info.ai_flags = PASSIVE;
        info.ai_family = raw.family();
        info.ai_qp_type = Transport::Uc.raw().cast_signed();
        info.ai_port_space = rdma_port_space::RDMA_PS_IB.cast_signed();
        info.ai_src_len = raw.len_bytes();
        info.ai_src_addr = raw.as_ptr().cast();
        let mut id = ptr::null_mut();
        // SAFETY: `id` may be written by the call; the description and its address are read during
        // it, and without attributes it creates no queue pair.
        let ret = unsafe { rdma_sys::rdma_create_ep(&raw mut id, &raw mut info, ptr::null_mut(), ptr::null_mut()) };
        check("rdma_create_ep", ret, || format!("{address}, of UC"))?;
        let id = NonNull::new(id)
            .ok_or_else(|| VerbError::new("rdma_create_ep", "a connection", Errno::new(libc::EINVAL)))?;
        CmId::migrate(id, channel)
    }

    /// Gives an id a channel of its own.
    pub(super) fn migrate(id: NonNull<rdma_cm_id>, channel: Channel) -> Result<CmId, VerbError> {
        // SAFETY: the id is new and ours, and none of its events waits to be acknowledged, so that
        // this does not wait.
        let ret = unsafe { rdma_sys::rdma_migrate_id(id.as_ptr(), channel.0.as_ptr()) };
        let id = CmId { id, channel };
        check("rdma_migrate_id", ret, || "a connection".to_owned())?;
        Ok(id)
    }

    /// Takes over the id of a request, on a channel of its own. If that fails, the request is
    /// rejected.
    pub(super) fn take(id: NonNull<rdma_cm_id>) -> Result<CmId, VerbError> {
        // SAFETY: the id is a request's, which nobody else has.
        let channel = Channel::create().inspect_err(|_| unsafe { destroy(id) })?;
        CmId::migrate(id, channel)
    }

    pub(super) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.id.as_ptr()
    }

    /// The next event, copied and acknowledged; `None` if the deadline passed first.
    pub(super) fn next_event(&mut self, deadline: Deadline) -> Result<Option<Event>, VerbError> {
        self.channel.next_event(deadline)
    }

    /// Waits for an event of this type.
    pub(super) fn expect(
        &mut self,
        kind: u32,
        what: &'static str,
        deadline: Deadline,
    ) -> Result<Event, ConnectionError> {
        let event = self.next_event(deadline)?.ok_or_else(|| deadline.error(what))?;
        if event.kind == kind {
            return Ok(event);
        }
        let address = self.peer_addr();
        Err(match event.kind {
            event_type::RDMA_CM_EVENT_ADDR_ERROR if event.status == -libc::ETIMEDOUT => deadline.error(what),
            event_type::RDMA_CM_EVENT_ADDR_ERROR
            | event_type::RDMA_CM_EVENT_ROUTE_ERROR
            | event_type::RDMA_CM_EVENT_UNREACHABLE => {
                ConnectionError::Unreachable { provider: Provider::Kernel, address }
            }
            event_type::RDMA_CM_EVENT_REJECTED if event.status == INVALID_SERVICE => {
                ConnectionError::Refused { address }
            }
            event_type::RDMA_CM_EVENT_REJECTED => {
                ConnectionError::Rejected { address, code: event.status, private_data: event.private_data }
            }
            _ => ConnectionError::Ended { what, event: event.describe() },
        })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        // SAFETY: the id is alive; both address fields are as long as a sockaddr_storage and were
        // zeroed by rdma_create_id.
        unsafe { read_address(&raw const (*self.as_ptr()).route.addr.src_addr_union.src_storage) }
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        // SAFETY: the id is alive, and rdma_create_id zeroed the field.
        unsafe { read_address(&raw const (*self.as_ptr()).route.addr.dst_addr_union.dst_storage) }
    }

    pub(super) fn port(&self) -> u8 {
        // SAFETY: the id is alive.
        unsafe { (*self.as_ptr()).port_num }
    }

    /// The device that the id is bound to.
    pub(super) fn device_name(&self) -> Result<String, ConnectionError> {
        // SAFETY: the id is alive; a bound id has a context, which librdmacm keeps open, and a
        // device a name.
        let name = unsafe {
            let context = (*self.as_ptr()).verbs;
            if context.is_null() {
                let address = self.peer_addr();
                return Err(ConnectionError::Unreachable { provider: Provider::Kernel, address });
            }
            CStr::from_ptr(rdma_sys::ibv_get_device_name((*context).device))
        };
        Ok(name.to_string_lossy().into_owned())
    }

    /// Resolves the path to the address that the id has resolved. A traffic class goes into the
    /// path, and with the request to the peer (RDMA_OPTION_ID_TOS of rdma_set_option(3)).
    pub(super) fn resolve_route(&self, traffic_class: Option<u8>, limit_ms: i32) -> Result<(), VerbError> {
        // RDMA_OPTION_ID and RDMA_OPTION_ID_TOS of rdma_cma.h, enumerators of an unnamed type.
        const OPTION_ID: i32 = 0;
        const OPTION_ID_TOS: i32 = 0;
        if let Some(mut class) = traffic_class {
            // SAFETY: the id is alive; the option is one byte, which is read during the call.
            let ret = unsafe {
                rdma_sys::rdma_set_option(self.as_ptr(), OPTION_ID, OPTION_ID_TOS, (&raw mut class).cast(), 1)
            };
            check("rdma_set_option", ret, || format!("traffic class {class} to {}", self.peer_addr()))?;
        }
        // SAFETY: the id is alive and bound.
        let ret = unsafe { rdma_sys::rdma_resolve_route(self.as_ptr(), limit_ms) };
        check("rdma_resolve_route", ret, || self.peer_addr().to_string())
    }

    /// Brings a QP to a state with the connection manager's attributes, and this side's own.
    pub(super) fn bring(&self, qp: &mut QueuePair, state: QpState, own: OwnAttr) -> Result<(), ConnectionError> {
        let (mut attr, mut mask) = self.attributes(qp, state)?;
        // rdma_cm has the peer's numbers, even if they exceed this device's limits.
        attr.max_rd_atomic = attr.max_rd_atomic.min(own.initiator_depth);
        attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.min(own.responder_resources);
        // rdma_cm's 0 means 655 ms (InfiniBand Architecture Specification, table 45): a peer that
        // is briefly ahead of a receive would wait that long.
        attr.min_rnr_timer = own.min_rnr_timer;
        if let Some(timeout) = own.timeout {
            attr.timeout = timeout;
        }
        if let Some(traffic_class) = own.traffic_class {
            attr.ah_attr.grh.traffic_class = traffic_class;
        }
        if own.rate_limit_kbit_per_s > 0 && state == QpState::Rts {
            attr.rate_limit = own.rate_limit_kbit_per_s;
            mask |= AttrMask::RATE_LIMIT;
        }
        qp.modify_prepared(attr, mask, state)?;
        Ok(())
    }

    /// Brings a QP to INIT, again if the caller brought it there to post receives. Before the
    /// request is sent rdma_cm grants the peer nothing, after that perhaps more than wanted: so
    /// this side sets the access itself.
    pub(super) fn bring_to_init(&self, qp: &mut QueuePair, access: Access) -> Result<(), ConnectionError> {
        let (mut attr, mask) = self.attributes(qp, QpState::Init)?;
        attr.qp_access_flags = access.bits();
        qp.modify_prepared(attr, mask, QpState::Init)?;
        Ok(())
    }

    fn attributes(&self, qp: &QueuePair, state: QpState) -> Result<(ibv_qp_attr, AttrMask), ConnectionError> {
        // SAFETY: ibv_qp_attr is integers and unions of them: all zeros is a value.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state.raw();
        let mut mask = 0;
        // SAFETY: the id is alive; both may be written by the call, which reads the state.
        let ret = unsafe { rdma_sys::rdma_init_qp_attr(self.as_ptr(), &raw mut attr, &raw mut mask) };
        check("rdma_init_qp_attr", ret, || format!("{} to {state}", qp.describe()))?;
        Ok((attr, AttrMask(mask.cast_unsigned())))
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once, before the channel.
        unsafe { destroy(self.id) };
    }
}

/// # Safety
/// The id is alive, and not used after this. All its events are acknowledged, so that this does not
/// wait.
unsafe fn destroy(id: NonNull<rdma_cm_id>) {
    // SAFETY: by this function's contract the id is alive, and ends here.
    let ret = unsafe { rdma_sys::rdma_destroy_id(id.as_ptr()) };
    if ret != 0 {
        tracing::warn!(errno = %Errno::last(), "an rdma_cm id would not go");
    }
}

impl AsFd for CmId {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

#[derive(Debug)]
pub(super) struct Channel(pub(super) NonNull<rdma_event_channel>);

impl Channel {
    pub(super) fn create() -> Result<Channel, VerbError> {
        // SAFETY: no arguments.
        let raw = unsafe { rdma_sys::rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = VerbError::last("rdma_create_event_channel", || "a connection");
            match error.errno.raw() {
                libc::ENODEV | libc::ENOENT => error.advise(
                    "this kernel has no RDMA connection manager: load the module rdma_ucm and a device's driver",
                ),
                _ => error,
            }
        })?;
        let channel = Channel(raw);
        set_nonblocking(channel.fd()).map_err(|errno| VerbError::new("fcntl(O_NONBLOCK)", "a connection", errno))?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open, and the descriptor belongs to it until it is destroyed,
        // which `self` outlives.
        unsafe { BorrowedFd::borrow_raw((*self.0.as_ptr()).fd) }
    }

    pub(super) fn next_event(&self, deadline: Deadline) -> Result<Option<Event>, VerbError> {
        loop {
            let mut event = ptr::null_mut();
            // SAFETY: the channel is open; `event` may be written by the call. The descriptor is
            // non-blocking.
            let ret = unsafe { rdma_sys::rdma_get_cm_event(self.0.as_ptr(), &raw mut event) };
            if ret == 0 {
                // SAFETY: the call succeeded, so `event` is one that is not acknowledged yet;
                // acknowledged once, here.
                return unsafe {
                    let copy = Event::read(event);
                    rdma_sys::rdma_ack_cm_event(event);
                    Ok(Some(copy))
                };
            }
            let errno = Errno::last();
            if errno.raw() != libc::EAGAIN && errno.raw() != libc::EINTR {
                return Err(VerbError::new("rdma_get_cm_event", "a connection", errno));
            }
            if !deadline.wait(self.fd())? {
                return Ok(None);
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; its id is gone.
        unsafe { rdma_sys::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// A copy of an event's data.
pub(super) struct Event {
    /// `enum rdma_cm_event_type`, as a plain integer.
    pub(super) kind: u32,
    status: i32,
    /// The new id of a connection request.
    pub(super) id: *mut rdma_cm_id,
    pub(super) private_data: Vec<u8>,
    /// The peer's parameters of a connection request.
    pub(super) param: ConnParam,
}

impl Event {
    /// # Safety
    /// `event` came from rdma_get_cm_event and is not acknowledged yet.
    unsafe fn read(event: *const rdma_cm_event) -> Event {
        // SAFETY: by the contract above. Ids here are of RDMA_PS_TCP or, with UC, of RDMA_PS_IB,
        // whose events fill the `conn` part; the union is zeroed before, so that every field of it
        // can be read.
        unsafe {
            let conn = &(*event).param.conn;
            let (data, len) = (conn.private_data.cast::<u8>(), usize::from(conn.private_data_len));
            let has_data = !data.is_null() && len > 0;
            let private_data = if has_data { std::slice::from_raw_parts(data, len).to_vec() } else { Vec::new() };
            Event {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                private_data,
                param: ConnParam {
                    responder_resources: conn.responder_resources,
                    initiator_depth: conn.initiator_depth,
                    retry_count: conn.retry_count,
                    rnr_retry_count: conn.rnr_retry_count,
                    qp_num: conn.qp_num,
                    srq: conn.srq != 0,
                },
            }
        }
    }

    pub(super) fn describe(&self) -> String {
        // SAFETY: gives a static string for any value.
        let name = unsafe { CStr::from_ptr(rdma_sys::rdma_event_str(self.kind)) };
        format!("{} (status {})", name.to_string_lossy(), self.status)
    }
}

pub(super) fn check(verb: &'static str, ret: i32, object: impl FnOnce() -> String) -> Result<(), VerbError> {
    VerbError::check(verb, ret, object)
}
