//! Memory that a peer may write is never a slice.

use verbline_verbs::rdma::PeerMr;

fn slice(mr: &PeerMr) -> &[u8] {
    &mr[..]
}

fn main() {}
