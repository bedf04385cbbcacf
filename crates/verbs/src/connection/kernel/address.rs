//! Socket addresses to and from C.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address in C's form.
pub(super) struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    pub(super) fn new(address: SocketAddr) -> RawAddress {
        // SAFETY: integers only: all zeros is a value.
        let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let raw = &raw mut storage;
        match address {
            SocketAddr::V4(address) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: a sockaddr_storage has room and alignment for every socket address
                // (sockaddr(3type)).
                unsafe { raw.cast::<libc::sockaddr_in>().write(v4) };
            }
            SocketAddr::V6(address) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: a sockaddr_storage has room for any address, and its alignment.
                unsafe { raw.cast::<libc::sockaddr_in6>().write(v6) };
            }
        }
        RawAddress(storage)
    }

    /// `AF_INET` or `AF_INET6`.
    pub(super) fn family(&self) -> i32 {
        self.0.ss_family.into()
    }

    pub(super) fn len_bytes(&self) -> libc::socklen_t {
        let len_bytes = match self.family() {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        };
        len_bytes as libc::socklen_t
    }

    pub(super) fn as_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Reads an address that C wrote; another family reads as the unspecified address.
///
/// # Safety
/// `raw` is a live, initialised sockaddr_storage.
pub(super) unsafe fn read_address(raw: *const libc::sockaddr_storage) -> SocketAddr {
    // SAFETY: the caller's word; the family says which address it holds.
    unsafe {
        match i32::from((*raw).ss_family) {
            libc::AF_INET => {
                let v4 = raw.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into()
            }
            libc::AF_INET6 => {
                let v6 = raw.cast::<libc::sockaddr_in6>().read();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into()
            }
            _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_to_c_and_come_back() {
        for text in ["10.9.9.1:4420", "[fe80::1%7]:18515", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = RawAddress::new(address);
            // SAFETY: `raw` is alive and initialised.
            assert_eq!(unsafe { read_address(&raw const raw.0) }, address);
        }
    }
}
