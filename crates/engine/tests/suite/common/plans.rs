//! Texts of plans.

/// A plan with one lcore, `only`, and a pool `p` for its stages.
pub(crate) fn one_lcore(idle: &str, stages: &str) -> String {
    one_lcore_with(idle, [1024, 64], stages)
}

/// Like [`one_lcore`], with a pool of this many packets of this many bytes; `rest` is everything
/// but the lcore, the device and the pool.
pub(crate) fn one_lcore_with(idle: &str, [packets, data_bytes]: [u32; 2], rest: &str) -> String {
    let lcore = format!("[lcore.only]\ncpu = \"allowed:0\"\nidle = \"{idle}\"");
    with_pool(&lcore, [packets, data_bytes], rest)
}

/// A plan with two lcores of these keys, `a` and `b`, and a pool `p`, like that of
/// [`one_lcore_with`].
pub(crate) fn two_lcores([a, b]: [&str; 2], pool: [u32; 2], rest: &str) -> String {
    let lcores = format!("[lcore.a]\ncpu = \"allowed:0\"\n{a}\n[lcore.b]\ncpu = \"allowed:1\"\n{b}");
    with_pool(&lcores, pool, rest)
}

/// A plan with these lcores, and a pool `p` like that of [`one_lcore_with`].
pub(crate) fn with_pool(lcores: &str, [packets, data_bytes]: [u32; 2], rest: &str) -> String {
    format!(
        r#"
        {lcores}
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.p]
        device = "nic0"
        packets = {packets}
        data_bytes = {data_bytes}
        pages = "4KiB"
        {rest}
        "#
    )
}

/// The port `tx` of this lcore, with this depth and these keys, and over RC the port `rx` of the
/// lcore `b`, which feeds the stage `sink`.
pub(crate) fn tx_to_rx(lcore: &str, tx_depth_wr: u32, keys: &str) -> String {
    format!(
        r#"
        [port.tx]
        lcore = "{lcore}"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.rx"
        rx_depth_wr = 8
        tx_depth_wr = {tx_depth_wr}
        {keys}
        [port.rx]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.tx"
        rx_depth_wr = 64
        tx_depth_wr = 0
        next = "stage.sink"
        "#
    )
}

/// A region on that device.
pub(crate) fn region(name: &str, bytes: u32, rights: &[&str]) -> String {
    format!("[region.{name}]\ndevice = \"nic0\"\nbytes = {bytes}\npages = \"4KiB\"\nrights = {rights:?}\n")
}

/// Stages on that lcore: a source with these parameters, and the stage `next`, with these keys,
/// which it feeds.
pub(crate) fn fed(generator: &str, next: &str) -> String {
    format!(
        r#"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = {{ out = "stage.next" }}
        params = {{ {generator} }}
        [stage.next]
        lcore = "only"
        {next}
        "#
    )
}
