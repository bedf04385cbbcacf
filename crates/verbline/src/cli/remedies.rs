//! Remedies for errors of a run: one sentence for each completion status (ibv_poll_cq(3)) and each
//! device event (ibv_get_async_event(3)) that has a usual cause. Others have no sentence, rather
//! than a guess.

/// The remedy for a status, named as in verbs.h without its prefix.
pub(super) fn for_status(status: &str) -> Option<&'static str> {
    Some(match status {
        "LOC_LEN_ERR" => {
            "a message is longer than the buffer it came into; raise `data_bytes` of the port's pool, or send less"
        }
        "LOC_QP_OP_ERR" => {
            "the device could not carry a work request out; on rdma_rxe mostly a message that is longer than the \
             buffer it came into (raise `data_bytes` of the port's pool), or a link that is down (`rdma link`)"
        }
        "LOC_PROT_ERR" => {
            "a packet lies in memory that the port's device does not know; take it from a pool of that device"
        }
        "BAD_RESP_ERR" => {
            "the peer's answer makes no sense; run the same version and the same `transport` at both ends"
        }
        "REM_INV_REQ_ERR" => {
            "the peer refused a message, mostly since its buffers are shorter; raise `data_bytes` of its pool, or \
             send less"
        }
        "REM_ACCESS_ERR" => {
            "the peer's memory is not open for what was asked; compare address, rkey and rights with its own"
        }
        "REM_OP_ERR" => {
            "the peer could not take a message; its own report says why, mostly that its buffers are too short: raise \
             `data_bytes` of its pool"
        }
        "RETRY_EXC_ERR" | "RESP_TIMEOUT_ERR" => {
            "the peer does not answer; see whether it still runs, whether both links are up (`ip link`; of cards `rdma \
             link`), and whether no firewall takes their datagrams (UDP port 4791)"
        }
        "RNR_RETRY_EXC_ERR" => {
            "the peer posts too few receives; raise its `rx_depth_wr`, and `packets` of its pool, or give its lcore \
             less to do"
        }
        "REM_ABORT_ERR" => "the peer gave the operation up; its own report says why",
        "FATAL_ERR" | "GENERAL_ERR" => "the device failed; see `dmesg`",
        _ => return None,
    })
}

/// The remedy for ports that lost messages.
pub(super) const OUT_OF_BUFFER: &str =
    "raise `rx_depth_wr` of the port, and `packets` of its pool, or give its lcore less to do";

/// The remedy for a port whose only error is `WR_FLUSH_ERR`.
pub(super) const FLUSHED: &str =
    "the queue pair was in error already: the device's events, or the peer's report, say what ended the connection";

/// The remedy for an event, named as in verbs.h.
pub(super) fn for_event(event: &str) -> Option<&'static str> {
    Some(match event {
        "IBV_EVENT_CQ_ERR" => "completions were lost; set `cq_depth_wc` of the lcore higher",
        "IBV_EVENT_QP_FATAL" => "the device broke the queue pair off; see `dmesg`",
        "IBV_EVENT_QP_REQ_ERR" => {
            "the peer asked for what the queue pair cannot do; use the same `transport` at both ends"
        }
        "IBV_EVENT_QP_ACCESS_ERR" => {
            "the peer asked for memory that is not open to it; compare its address, rkey and rights"
        }
        "IBV_EVENT_PATH_MIG_ERR" => "the alternate path does not work either; see `rdma link` at both ends",
        "IBV_EVENT_DEVICE_FATAL" => "the device is gone; see `dmesg`, bring it back, and start the run again",
        "IBV_EVENT_PORT_ERR" => "the link went down; see `ip link`, `rdma link` and the cable",
        "IBV_EVENT_GID_CHANGE" => {
            "the interface's addresses changed; ports that were connected before may not reach their peers"
        }
        "IBV_EVENT_LID_CHANGE" | "IBV_EVENT_PKEY_CHANGE" => {
            "the subnet was set up anew; ports that were connected before may not reach their peers"
        }
        _ => return None,
    })
}
