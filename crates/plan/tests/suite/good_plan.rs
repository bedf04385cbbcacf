//! A valid plan: its contents, its sums, its graph, its warnings.

use std::time::Duration;

use crate::common::{GOOD, catalog, good, loader, machine};
use verbline_plan::{
    Consumer, CpuQuota, Destination, Hugepages, IdlePolicy, Loader, Machine, Pages, Producer, Provider, Target,
    Transport,
};

fn names<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    ids.into_iter().collect::<Vec<_>>().join(" ")
}

#[test]
fn holds_what_the_file_says() {
    let plan = good();
    assert_eq!((plan.name(), plan.app()), ("tick-to-trade", Some("tick-to-trade")));
    let device = &plan.devices()[0];
    assert_eq!((device.provider, device.device_name.as_deref()), (Provider::Soft, Some("soft0")));
    assert_eq!((device.port_num, device.gid_index), (1, None), "the defaults");
    let pool = &plan.pools()[0];
    assert_eq!((pool.packets, pool.data_bytes, pool.headroom_bytes, pool.cache_packets), (8192, 2048, 64, 256));
    assert_eq!((pool.pages, pool.device), (Pages::Auto, device.id));
    assert_eq!(names(pool.lcores.iter().map(|id| plan[*id].name.as_str())), "exchange trader gateway");
    assert_eq!(names(pool.sent_by.iter().map(|id| plan[*id].name.as_str())), "feed_a feed_b orders");
    let [_, trader, gateway] = plan.lcores() else { panic!("three lcores") };
    assert_eq!((trader.idle, trader.cpu, trader.burst_packets), (IdlePolicy::Adaptive, 1, 32));
    assert_eq!(
        (trader.spin, trader.dwell, trader.drain),
        (Some(Duration::from_micros(50)), None, Duration::from_secs(1))
    );
    assert_eq!((gateway.idle, gateway.burst_packets), (IdlePolicy::Event, 64));
    let orders = plan.ports().iter().find(|port| port.name == "orders").unwrap();
    assert_eq!((orders.transport, orders.inline_bytes, orders.signal_every_wr), (Transport::Rc, 188, 64));
    assert_eq!(orders.destination.peer().map(|id| plan[id].name.as_str()), Some("fills"));
    assert_eq!((orders.pool, orders.next), (None, None), "it receives nothing");
    assert!(plan.ports().iter().all(|port| port.timestamps), "the default");
    let feed_b = plan.ports().iter().find(|port| port.name == "feed_b").unwrap();
    assert_eq!(feed_b.signal_every_wr, 16, "the default, cut to the depth");
    let Destination::Group(group) = feed_b.destination else { panic!("a group") };
    assert_eq!(group.gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 2]);
}

#[test]
fn derives_orders_and_sizes() {
    let plan = good();
    let [exchange, trader, gateway] = plan.lcores() else { panic!("three lcores") };
    assert_eq!(names(trader.stages.iter().map(|id| plan[*id].name.as_str())), "arbiter book");
    assert_eq!((exchange.cq_depth_wc, trader.cq_depth_wc, gateway.cq_depth_wc), (784, 2048, 256));
    assert_eq!(
        (trader.rings_out.as_slice(), gateway.rings_in.as_slice()),
        (&[plan.rings()[0].id][..], &[plan.rings()[0].id][..])
    );
    let ring = &plan.rings()[0];
    assert_eq!((ring.lanes[0].lcore, ring.to_lcore, ring.depth_packets), (trader.id, gateway.id, 1024));
    assert!(matches!(ring.lanes[0].from[..], [Producer::Stage(id)] if plan[id].name == "book"));
    assert!(matches!(ring.to, Consumer::Stage(id) if plan[id].name == "sign"));
    let stage = |name: &str| plan.stages().iter().find(|stage| stage.name == name).unwrap();
    assert_eq!(stage("arbiter").batch_packets, 64, "two ports, a burst each");
    assert_eq!(stage("book").batch_packets, 128, "and what the arbiter may let go of");
    assert_eq!(stage("arbiter").outputs, [Target::Stage(stage("book").id), Target::Drop], "in the kind's order");
    assert_eq!(plan.target_name(stage("sign").outputs[0]), "port.orders");
    assert_eq!(plan.locate(stage("sign").span).to_string(), "good.toml:96:8");
    assert!(plan.warnings().is_empty(), "{}", plan.warnings());
}

#[test]
fn stages_come_before_those_that_they_feed_whatever_the_files_order() {
    let mut text = GOOD.replace("next = \"stage.arbiter\"", "next = \"stage.z\"");
    let book = |name, next| {
        format!("[stage.{name}]\nuse = \"book\"\nlcore = \"trader\"\nout = {{ changed = \"stage.{next}\" }}\n\n")
    };
    text = text.replace("[stage.sign]", &(book("y", "arbiter") + &book("z", "y") + "[stage.sign]"));
    let plan = loader().load_str("good.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(names(plan.lcores()[1].stages.iter().map(|id| plan[*id].name.as_str())), "z y arbiter book");
}

#[test]
fn explains_its_sums() {
    let plan = good();
    insta::assert_snapshot!(plan.explain());
    for sum in plan.sums() {
        assert!(sum.holds());
        assert_eq!(sum.needed, sum.terms.iter().map(|term| term.value).sum::<u64>(), "{}", sum.of);
    }
}

#[test]
fn draws_itself() {
    insta::assert_snapshot!("dot", good().to_dot());
    insta::assert_snapshot!("mermaid", good().to_mermaid());
}

#[test]
fn draws_a_broken_plan_with_the_faults_in_red() {
    let text = GOOD.replace("cpu = 2", "cpu = 1").replace("merged = \"stage.book\"", "merged = \"stage.sign\"");
    let inspection = loader().inspect_str("broken.toml", &text);
    assert!(inspection.plan.is_none());
    insta::assert_snapshot!("broken_dot", inspection.drawing.to_dot());
    insta::assert_snapshot!("broken_mermaid", inspection.drawing.to_mermaid());
}

#[test]
fn a_tight_pool_is_enough_and_one_packet_less_is_not() {
    let needed = good().sums()[0].needed;
    let with = |packets: u64| loader().sets([format!("pool.packets.packets={packets}")]).load_str("good.toml", GOOD);
    assert!(with(needed).is_ok());
    let faults = with(needed - 1).expect_err("one too few");
    assert_eq!(faults.iter().map(|fault| fault.code()).collect::<Vec<_>>(), ["pool-too-small"]);
}

#[test]
fn a_plan_that_is_not_all_meant_gives_warnings() {
    let text = GOOD
        .replace("inline_bytes = 188", "inline_bytes = 4096")
        .replace("burst = 64", "burst = 64\n\n[lcore.spare]\ncpu = 3\nidle = \"poll\"\nspin = \"1ms\"");
    let text =
        text.replace("tx_depth_wr = 256\ninline", "tx_depth_wr = 256\npool = \"packets\"\ntimestamps = false\ninline");
    let plan = loader().load_str("odd.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!(plan.warnings().render(false));
    assert_eq!(plan.notes(), []);
}

#[test]
fn an_lcore_that_sleeps_at_once_never_waits_for_a_moment() {
    let spare = |idle| {
        GOOD.replace("burst = 64", &format!("burst = 64\n\n[lcore.spare]\ncpu = 3\nidle = {idle:?}\npause = true"))
    };
    for (idle, warns) in [("poll", false), ("adaptive", false), ("event", true)] {
        let plan = loader().load_str("pause.toml", &spare(idle)).unwrap_or_else(|faults| panic!("{faults}"));
        let warnings = plan.warnings().render(false);
        assert_eq!(
            warnings.contains("`pause` has no effect: lcore.spare sleeps as soon as it can"),
            warns,
            "{warnings}"
        );
    }
}

#[test]
fn a_wait_of_an_lcore_that_never_sleeps_and_sends_of_none_have_no_effect() {
    let spare = |idle| {
        let spare = format!("burst = 64\n\n[lcore.spare]\ncpu = 3\nidle = {idle:?}\nunsolicited_wait = \"10ms\"");
        GOOD.replace("burst = 64", &spare)
            .replace("tx_depth_wr = 256\ninline", "solicited = true\ntx_depth_wr = 256\ninline")
    };
    for (idle, warns) in [("poll", true), ("adaptive", false), ("event", false)] {
        let plan = loader().load_str("quiet.toml", &spare(idle)).unwrap_or_else(|faults| panic!("{faults}"));
        let warnings = plan.warnings().render(false);
        let warning = "`unsolicited_wait` has no effect: lcore.spare never sleeps";
        assert_eq!(warnings.contains(warning), warns, "{warnings}");
        let deaf = "`unsolicited_wait` has no effect: lcore.spare has no port";
        assert_eq!(warnings.contains(deaf), !warns, "{warnings}");
        assert!(!warnings.contains("solicited` has no effect: port"), "{warnings}");
        assert!(plan.ports().iter().any(|port| port.solicited));
    }
    let used = GOOD.replace("burst = 64", "burst = 64\nunsolicited_wait = \"10ms\"");
    let plan = loader().load_str("used.toml", &used).unwrap_or_else(|faults| panic!("{faults}"));
    let warnings = plan.warnings().render(false);
    assert!(!warnings.contains("unsolicited_wait"), "{warnings}");
    let mute = GOOD.replace("rx_depth_wr = ", "solicited = true\nrx_depth_wr = ");
    let plan = loader().load_str("mute.toml", &mute).unwrap_or_else(|faults| panic!("{faults}"));
    let warnings = plan.warnings().render(false);
    let mute = plan.ports().iter().find(|port| port.tx_depth_wr == 0 && port.solicited).expect("one only receives");
    assert!(warnings.contains(&format!("`solicited` has no effect: port.{} sends nothing", mute.name)), "{warnings}");
}

/// A machine without anything that a run can do without.
fn scarce() -> Machine {
    Machine {
        cpu_quota: Some(CpuQuota { millicpus: 550, remedy: "`echo max > /sys/fs/cgroup/cpu.max`".into() }),
        huge_2m: Hugepages::Counted { total: 16, free: 3 },
        memlock_bytes: Some(8 << 20),
        ..machine()
    }
}

#[test]
fn what_the_machine_lacks_is_noted_once_and_is_no_fault_of_the_plan() {
    // Four pools, three of which get no hugepages.
    let pool = |name: &str, pages: &str| {
        format!("[pool.{name}]\ndevice = \"nic0\"\npackets = 1024\ndata_bytes = 2048\npages = \"{pages}\"\n\n")
    };
    let more = ["a", "b"].map(|name| pool(name, "auto")).concat() + &pool("small", "4KiB");
    let text = GOOD.replace("[lcore.exchange]", &format!("{more}[lcore.exchange]"));
    let on = |machine| Loader::new(catalog(), machine).load_str("good.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let (plenty, scarce) = (on(machine()), on(scarce()));
    assert_eq!(plenty.notes(), []);
    assert_eq!(scarce.warnings().render(false), plenty.warnings().render(false));
    let notes: Vec<_> = scarce.notes().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(notes.join("\n"));
    let json = serde_json::to_value(&scarce.notes()[0]).unwrap();
    assert_eq!((&json["code"], json["remedy"].is_string()), (&"no-hugepages".into(), true));
}

#[test]
fn what_nobody_tells_is_neither_a_fault_nor_a_want() {
    let hidden = Machine {
        huge_2m: Hugepages::Unknown,
        huge_1g: Hugepages::Unknown,
        huge_default_bytes: None,
        memlock_bytes: Some(64 << 10),
        memory_bytes: u64::MAX,
        ..machine()
    };
    let load = |text: &str| Loader::new(catalog(), hidden.clone()).load_str("good.toml", text);
    let plan = load(GOOD).unwrap_or_else(|faults| panic!("{faults}"));
    let codes: Vec<_> = plan.notes().iter().map(|note| note.lack.code()).collect();
    assert_eq!(codes, ["hugepages-unknown"], "that memory on ordinary pages could not be locked is not known");
    // A pool that insists on hugepages gets its attempt.
    let insists = GOOD.replace("packets = 8192", "packets = 8192\npages = \"1GiB\"");
    let plan = load(&insists).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.notes(), []);
}

#[test]
fn a_kernel_without_hugepages_says_so() {
    let without = Machine { huge_2m: Hugepages::Absent, huge_default_bytes: None, ..machine() };
    let plan = Loader::new(catalog(), without).load_str("good.toml", GOOD).unwrap_or_else(|faults| panic!("{faults}"));
    let notes: Vec<_> = plan.notes().iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        ["note[no-hugepages]: pool.packets is on 4 KiB pages: the kernel has no hugepages; run a kernel with \
          CONFIG_HUGETLBFS"]
    );
}

#[test]
fn messages_that_may_not_fit_give_warnings() {
    let small =
        "[pool.small]\ndevice = \"nic0\"\npackets = 8192\ndata_bytes = 512\nheadroom_bytes = 16\n\n[lcore.exchange]";
    let text =
        GOOD.replace("[lcore.exchange]", small).replace("pool = \"packets\"\ntransport", "pool = \"small\"\ntransport");
    let text = text.replace("lcore = \"gateway\"\nout", "lcore = \"gateway\"\npool = \"packets\"\nout");
    let plan = loader().load_str("small.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    insta::assert_snapshot!(plan.warnings().render(false));
}

#[test]
fn a_kernel_device_can_pin_no_more_than_may_be_locked() {
    let scarce = Machine { memlock_bytes: Some(8 << 20), ..machine() };
    let text = GOOD.replace("provider = \"soft\"", "provider = \"kernel\"");
    let faults = Loader::new(catalog(), scarce).load_str("pinned.toml", &text).expect_err("8 MiB is too little");
    insta::assert_snapshot!(faults.render(false));
}

/// Pinned memory is a sum: of two pools, either of which alone would fit.
#[test]
fn two_pools_can_pin_together_no_more_than_may_be_locked() {
    let text = GOOD.replace("provider = \"soft\"", "provider = \"kernel\"")
        + "[pool.more]\ndevice = \"nic0\"\npackets = 8192\ndata_bytes = 2048\n";
    let load = |memlock_bytes| {
        let machine = Machine { memlock_bytes: Some(memlock_bytes), ..machine() };
        let loaded = Loader::new(catalog(), machine).load_str("pinned.toml", &text);
        loaded.map_or_else(|faults| faults.render(false), |_| String::new())
    };
    assert!(load(37_748_735).contains("the pools lock 37748736 bytes, but this process may lock"));
    assert!(!load(37_748_736).contains("locked-memory"));
}

#[test]
fn a_plan_without_a_name_is_called_as_its_file() {
    let text = GOOD.replace("name = \"tick-to-trade\"\n", "");
    let plan = loader().load_str("config/evening.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plan.name(), "evening");
}
