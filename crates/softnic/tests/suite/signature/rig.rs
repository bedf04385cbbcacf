//! Two connected queue pairs that configure keys, and operations on keys in one line each.

use crate::harness::*;
use rdma_sys::*;
use std::ptr::{null, null_mut};
use verbline_softnic::mlx5dv::*;

pub(crate) const FENCE: u32 = ibv_send_flags::IBV_SEND_FENCE.0;

pub(crate) struct Mkey(pub(crate) *mut mlx5dv_mkey);

impl Mkey {
    pub(crate) fn new(nic: &Nic, flags: u32, max_entries: u16) -> Mkey {
        let mut attr = mlx5dv_mkey_init_attr { pd: nic.pd, create_flags: flags, max_entries };
        let mkey = unsafe { mlx5dv_create_mkey(&mut attr) };
        assert!(!mkey.is_null(), "{}", std::io::Error::last_os_error());
        Mkey(mkey)
    }

    /// A key with block signature and room for three entries.
    pub(crate) fn signing(nic: &Nic) -> Mkey {
        Mkey::new(nic, mkey_init_attr_flags::INDIRECT | mkey_init_attr_flags::BLOCK_SIGNATURE, 3)
    }

    pub(crate) fn key(&self) -> u32 {
        unsafe { (*self.0).lkey }
    }

    /// An element through the key.
    pub(crate) fn sge(&self, addr: u64, length: usize) -> ibv_sge {
        ibv_sge { addr, length: length as u32, lkey: self.key() }
    }

    pub(crate) fn check(&self) -> Result<mlx5dv_mkey_err, i32> {
        let mut error = mlx5dv_mkey_err { err_type: 99, ..mlx5dv_mkey_err::default() };
        match unsafe { mlx5dv_mkey_check(self.0, &mut error) } {
            0 => Ok(error),
            code => Err(code),
        }
    }

    pub(crate) fn error(&self) -> u32 {
        self.check().unwrap().err_type
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(unsafe { mlx5dv_destroy_mkey(self.0) }, 0);
        }
    }
}

/// A domain, by value.
#[derive(Clone, Copy)]
pub(crate) enum Domain {
    T10(u32, mlx5dv_sig_t10dif),
    Crc(u32, mlx5dv_sig_crc),
}

impl Domain {
    /// T10-DIF of type 1 over blocks of 512.
    pub(crate) fn t10(app_tag: u16, ref_tag: u32) -> Domain {
        let flags = t10dif_flags::REF_REMAP;
        Domain::T10(
            block_size::B512,
            mlx5dv_sig_t10dif { bg_type: t10dif_bg_type::CRC, bg: 0, app_tag, ref_tag, flags },
        )
    }

    pub(crate) fn crc32c() -> Domain {
        let seed = u64::from(u32::MAX);
        Domain::Crc(block_size::B512, mlx5dv_sig_crc { type_: crc_type::CRC32C, seed })
    }

    fn raw(&self) -> mlx5dv_sig_block_domain {
        match self {
            Domain::T10(block_size, dif) => mlx5dv_sig_block_domain {
                sig_type: sig_type::T10DIF,
                sig: mlx5dv_sig { dif },
                block_size: *block_size,
                comp_mask: 0,
            },
            Domain::Crc(block_size, crc) => mlx5dv_sig_block_domain {
                sig_type: sig_type::CRC,
                sig: mlx5dv_sig { crc },
                block_size: *block_size,
                comp_mask: 0,
            },
        }
    }
}

/// A configuration of access, a list and perhaps a signature, posted.
#[derive(Default)]
pub(crate) struct Configure {
    pub(crate) list: Vec<ibv_sge>,
    pub(crate) memory: Option<Domain>,
    pub(crate) wire: Option<Domain>,
    pub(crate) check_mask: u8,
}

impl Configure {
    pub(crate) fn list(sges: &[ibv_sge]) -> Configure {
        Configure { list: sges.iter().map(copy_sge).collect(), check_mask: 0xff, ..Configure::default() }
    }

    pub(crate) fn memory(self, domain: Domain) -> Configure {
        Configure { memory: Some(domain), ..self }
    }

    pub(crate) fn wire(self, domain: Domain) -> Configure {
        Configure { wire: Some(domain), ..self }
    }

    pub(crate) fn post(&self, qp: &Qp, key: &Mkey, wr_id: u64, flags: u32) -> i32 {
        let signs = self.memory.is_some() || self.wire.is_some();
        let mut wr = MkeyConfigureWr::with_capacity(4);
        wr.start(key.0, if signs { 3 } else { 2 }, &mlx5dv_mkey_conf_attr::default());
        wr.set_access_flags(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
        wr.set_layout_list(self.list.iter().map(copy_sge));
        if signs {
            let (memory, wire) = (self.memory, self.wire);
            let memory = memory.as_ref().map(Domain::raw);
            let wire = wire.as_ref().map(Domain::raw);
            let raw =
                |domain: &Option<mlx5dv_sig_block_domain>| domain.as_ref().map_or(null(), |domain| domain as *const _);
            let attr = mlx5dv_sig_block_attr {
                mem: raw(&memory),
                wire: raw(&wire),
                flags: 0,
                check_mask: self.check_mask,
                copy_mask: 0,
                comp_mask: 0,
            };
            unsafe { wr.set_sig_block(&attr) };
        }
        unsafe { wr.post(qp.0, wr_id, flags | INLINE) }
    }

    /// Posts it, without a completion.
    pub(crate) fn now(&self, qp: &Qp, key: &Mkey) {
        assert_eq!(self.post(qp, key, 0, 0), 0);
    }
}

pub(crate) const CONFIGURING: QpExtras = QpExtras { create_flags: 0, send_ops_flags: send_ops_flags::MKEY_CONFIGURE };
pub(crate) const PIPELINED: QpExtras =
    QpExtras { create_flags: qp_create_flags::SIG_PIPELINING, send_ops_flags: send_ops_flags::MKEY_CONFIGURE };

/// A pair where both sides may configure keys; `a` may be for pipelining.
pub(crate) fn pair(extras: QpExtras) -> Pair {
    let (nic, other) = (Nic::open(0), Nic::open(1));
    let (a_send, a_recv, b_send, b_recv) = (nic.cq(256), nic.cq(256), other.cq(256), other.cq(256));
    let make = |nic: &Nic, send: &Cq, recv: &Cq, extras| {
        let mut init = init_attr(ibv_qp_type::IBV_QPT_RC, send, recv);
        let qp = unsafe { mlx5dv_create_qp(nic.pd, &mut init, extras) };
        assert_ne!(qp, null_mut(), "{}", std::io::Error::last_os_error());
        Qp(qp)
    };
    let (a, b) = (make(&nic, &a_send, &a_recv, extras), make(&other, &b_send, &b_recv, CONFIGURING));
    let (a_mem, b_mem) = (nic.memory(1 << 16), other.memory(1 << 16));
    connect((&a, 1), (&b, 2));
    Pair { a, b, a_send, a_recv, b_send, b_recv, a_mem, b_mem, nic, other }
}

/// CRC-16/T10-DIF, a bit at a time.
pub(crate) fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x8bb7 } else { 0 })
    })
}

/// Blocks of 512 with T10-DIF of type 1 behind each.
pub(crate) fn protected(data: &[u8], app_tag: u16, ref_tag: u32) -> Vec<u8> {
    let blocks = data.chunks(512).enumerate();
    blocks
        .flat_map(|(at, block)| {
            let ref_tag = ref_tag.wrapping_add(at as u32);
            let tags = [&app_tag.to_be_bytes()[..], &ref_tag.to_be_bytes()].concat();
            [block, &crc16(block).to_be_bytes(), &tags].concat()
        })
        .collect()
}
