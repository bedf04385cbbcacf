//! The software RNIC: a verbs provider behind `ibv_context.ops`.

pub mod provider;
pub mod qp_table;
