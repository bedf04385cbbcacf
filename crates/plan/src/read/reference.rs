//! The keys of a plan, explained. `docs/plan.md` and the command line show this text.
//!
//! The keys, their order, types, bounds and defaults come from the reader of the file. Only the
//! words are added here; a key without words fails a test.

use std::fmt;

use crate::catalog::Catalog;
use crate::read::raw;
use crate::read::reader::{Key, LeftOut, Takes};
use crate::text::keys::{AppDefault, AppKey, AppTakes};

/// One table of a plan and all its keys.
#[derive(Debug, Clone)]
pub struct TableReference {
    /// The table's sort, e.g. `port` for `[port.NAME]`; empty for the keys above all tables; an app
    /// table's own name, of a section or a kind.
    pub sort: &'static str,
    /// Its header in the file's notation, e.g. `[port.NAME]`; empty for the keys above all tables.
    pub header: String,
    /// Its meaning, in one line.
    pub meaning: &'static str,
    /// Its keys, in the order of reading.
    pub keys: Vec<KeyReference>,
}

/// One key of a table.
#[derive(Debug, Clone)]
pub struct KeyReference {
    /// The key.
    pub name: &'static str,
    /// The TOML type of its value; `strings` is an array of strings, `duration` a string such as
    /// `"50us"`, `choice` one of the words in `bounds`, `cpu` an integer or a string such as
    /// `"allowed:0"`.
    pub value: &'static str,
    /// The unit of a number; empty for other types.
    pub unit: &'static str,
    /// The value of an absent key, or its origin; or `required`, or `none`.
    pub default: String,
    /// The values that it takes; empty if all of its type.
    pub bounds: String,
    /// Its purpose, in one line.
    pub meaning: &'static str,
}

/// Every table and key of a plan, in the order of reading.
pub fn reference() -> Vec<TableReference> {
    raw::keys().into_iter().map(|(table, keys)| explain(table, keys)).collect()
}

fn explain(table: &'static str, keys: Vec<Key>) -> TableReference {
    let words = TABLES.iter().find(|words| words.table == table);
    let of = |key: &Key| words?.keys.iter().find(|words| words.key == key.name);
    let keys = keys.iter().map(|key| explain_key(key, of(key).unwrap_or(&NO_WORDS))).collect();
    let header = if table.is_empty() { String::new() } else { format!("[{table}.NAME]") };
    TableReference { sort: table, header, meaning: words.map_or("", |words| words.meaning), keys }
}

/// The tables that an app declares, in the order of declaration, each followed by its inner tables.
pub fn app_reference(catalog: &Catalog) -> Vec<TableReference> {
    let mut tables = Vec::new();
    for table in &catalog.tables {
        let header = match table.is_params {
            true => format!("params of `use = \"{}\"`", table.name),
            false => format!("[{}]", table.name),
        };
        add_app_table(&mut tables, table.name, header, table.meaning, table.keys);
    }
    tables
}

fn add_app_table(
    tables: &mut Vec<TableReference>,
    sort: &'static str,
    header: String,
    meaning: &'static str,
    keys: &[AppKey],
) {
    tables.push(TableReference { sort, header, meaning, keys: keys.iter().map(explain_app_key).collect() });
    for key in keys {
        if let AppTakes::Tables(_, within) = key.takes {
            add_app_table(tables, sort, format!("[{sort}.{}.NAME]", key.name), key.meaning, within);
        }
    }
}

pub(crate) fn explain_app_key(key: &AppKey) -> KeyReference {
    let (value, bounds) = match key.takes {
        AppTakes::Integer(least, most) => ("integer", format!("{} to {}", grouped(least), grouped(most))),
        AppTakes::Real(least, most) => ("number", format!("{least} to {most}")),
        AppTakes::Share => ("share", "0 to 1".to_owned()),
        AppTakes::Flag => ("boolean", "true | false".to_owned()),
        AppTakes::Text(bounds) => ("string", bounds.to_owned()),
        AppTakes::Texts(bounds) => ("strings", bounds.to_owned()),
        AppTakes::Choice(words) => ("choice", words.join(" | ")),
        AppTakes::Map(bounds) | AppTakes::Tables(bounds, _) => ("table", bounds.to_owned()),
    };
    let default = match key.left_out {
        AppDefault::Refused => "required".to_owned(),
        AppDefault::Open(words) => words.to_owned(),
        AppDefault::Integer(value) => grouped(value),
        AppDefault::Real(value) => value.to_string(),
        AppDefault::Flag(value) => value.to_string(),
        AppDefault::Text(text) => text.to_owned(),
    };
    KeyReference { name: key.name, value, unit: key.unit, default, bounds, meaning: key.meaning }
}

fn explain_key(key: &Key, words: &Words) -> KeyReference {
    let (value, bounds) = match &key.takes {
        Takes::Text => ("string", String::new()),
        Takes::Texts => ("strings", String::new()),
        Takes::TextOrTexts => ("string(s)", String::new()),
        Takes::Number(range) => ("integer", format!("{} to {}", grouped(*range.start()), grouped(*range.end()))),
        Takes::Share => ("share", "0 to 1".to_owned()),
        Takes::Cpu(max) => ("cpu", format!("0 to {} | allowed:N", grouped((*max).into()))),
        // Five words leave no room on the line for spaces.
        Takes::Choice(choices) => ("choice", choices.join(if choices.len() > 4 { "|" } else { " | " })),
        Takes::Flag => ("boolean", "true | false".to_owned()),
        Takes::Duration(max) => ("duration", format!("0s to {}", humantime::format_duration(*max))),
        Takes::Table => ("table", String::new()),
    };
    let default = match (&key.left_out, words.default) {
        (LeftOut::Refused, _) => "required".to_owned(),
        (LeftOut::Default(value), _) => value.clone(),
        (LeftOut::Open, "") => "none".to_owned(),
        (LeftOut::Open, words) => words.to_owned(),
    };
    let bounds = if bounds.is_empty() { words.bounds.to_owned() } else { bounds };
    KeyReference { name: key.name, value, unit: words.unit, default, bounds, meaning: words.meaning }
}

/// `1,048,576`; a number too long for its column is written as a power.
fn grouped(number: u64) -> String {
    const POWERS: [(u64, &str); 2] = [(i64::MAX as u64, "2^63 - 1"), (1_000_000_000_000_000_000, "10^18")];
    if let Some((_, power)) = POWERS.iter().find(|(known, _)| *known == number) {
        return (*power).to_owned();
    }
    let digits = number.to_string();
    let ends = (1..=digits.len()).rev().map(|left| if left > 1 && left % 3 == 1 { "," } else { "" });
    digits.chars().zip(ends).flat_map(|(digit, end)| std::iter::once(digit).chain(end.chars())).collect()
}

/// The keys in columns, each with a line on its purpose below; 76 columns at most, so that the text
/// can be indented.
impl fmt::Display for TableReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, ["key", "type", "unit", "default", "bounds"])?;
        for key in &self.keys {
            row(f, [key.name, key.value, key.unit, &key.default, &key.bounds])?;
            writeln!(f, "    {}", key.meaning)?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, [key, value, unit, default, bounds]: [&str; 5]) -> fmt::Result {
    // A blank separates even a long entry from the next.
    let (key, default) = (format!("{key} "), format!("{default} "));
    let line = format!("{key:<17}{value:<10}{unit:<9}{default:<15}{bounds}");
    writeln!(f, "{}", line.trim_end())
}

struct TableWords {
    table: &'static str,
    meaning: &'static str,
    keys: &'static [Words],
}

struct Words {
    key: &'static str,
    unit: &'static str,
    /// For an optional key without a fixed default.
    default: &'static str,
    /// For a value whose type has no bounds.
    bounds: &'static str,
    meaning: &'static str,
}

const NO_WORDS: Words = Words { key: "", unit: "", default: "", bounds: "", meaning: "" };

const fn text(key: &'static str, default: &'static str, bounds: &'static str, meaning: &'static str) -> Words {
    Words { key, unit: "", default, bounds, meaning }
}

const fn number(key: &'static str, unit: &'static str, meaning: &'static str) -> Words {
    Words { key, unit, default: "", bounds: "", meaning }
}

const fn open(key: &'static str, unit: &'static str, default: &'static str, meaning: &'static str) -> Words {
    Words { key, unit, default, bounds: "", meaning }
}

const TABLES: &[TableWords] = &[
    TableWords {
        table: "",
        meaning: "the plan",
        keys: &[
            text("name", "the file's", "", "what reports call the run; the file's name without its ending"),
            text("app", "any", "an app's name", "the application that the plan is for; another refuses it"),
        ],
    },
    TableWords {
        table: "device",
        meaning: "a port of an RDMA device",
        keys: &[
            text("provider", "", "", "`kernel` is a card, `soft` the software RNIC in this process"),
            text("name", "the active one", "as `devices` lists", "the device, if the provider has several"),
            number("port", "", "which port of the device"),
            text("gid_index", "reaches most", "", "the GID that queue pairs use: RoCE v2 by IPv4 first, if left out"),
            text("address", "none", "an IP of this host", "of `soft`: where others reach it (RoCE v2, UDP port 4791)"),
        ],
    },
    TableWords {
        table: "pool",
        meaning: "one region of memory, registered once and cut into packets",
        keys: &[
            text("device", "", "a device's NAME", "the device that it is registered with"),
            number("packets", "packets", "how many it has; must cover every queue, ring, cache and burst"),
            number("data_bytes", "bytes", "room for data in each, behind the headroom"),
            number("headroom_bytes", "bytes", "room for headers in front; 40 or more for ports that receive UD"),
            text("pages", "", "", "pages to put it on; `auto` is hugepages, or else 4 KiB with a note"),
            text("node", "its device's", "", "the NUMA node to put it on; its lcore's, if the device has none"),
            number("cache_packets", "packets", "the most that each lcore keeps for itself"),
        ],
    },
    TableWords {
        table: "region",
        meaning: "memory that one stage owns, and that work requests reach by a key",
        keys: &[
            text("device", "", "a device's NAME", "the device that it is registered with"),
            number("bytes", "bytes", "how long it is, rounded up to whole pages"),
            text("pages", "", "", "as a pool's; `odp`: on-demand paging, 4 KiB each when first touched"),
            text("node", "its device's", "", "the NUMA node to put it on; its lcore's, if the device has none"),
            text(
                "rights",
                "read here",
                "see below",
                "what peers and work requests may do with it, besides reading it here",
            ),
        ],
    },
    TableWords {
        table: "lcore",
        meaning: "one thread, pinned to one CPU, with one completion queue",
        keys: &[
            text("cpu", "", "", "the kernel's number, or the Nth from 0 of those it may have"),
            text("idle", "", "", "without work: spin, then sleep; spin for ever; or sleep at once"),
            number("burst", "packets", "the most packets that are taken from a queue at once"),
            text("late_share", "0.01", "", "the share of batches that may find it asleep; it learns when to sleep"),
            text("spin_max", "measured", "", "the longest that it spins: 20 wake-ups, or 1s with `late_share`"),
            text("spin", "learned", "", "instead: how long it spins without work before it sleeps"),
            text("dwell", "measured", "", "how long it stays awake after a wake-up, at least"),
            text("pause", "", "", "whether it waits for a moment after each turn without work"),
            text("unsolicited_wait", "none", "", "only solicited messages wake it; others wait so long at most"),
            text("drain", "", "", "the most time that it takes to empty its queues at stop"),
            open("cq_depth_wc", "WCs", "the sum", "completion queue's depth; the sum is of its ports' depths"),
        ],
    },
    TableWords {
        table: "port",
        meaning: "one queue pair",
        keys: &[
            text("lcore", "", "an lcore's NAME", "the lcore that polls it and posts to it"),
            text("device", "", "a device's NAME", "the device that it is on: one for all ports of an lcore"),
            text("pool", "", "a pool's NAME", "where receive buffers come from; needed to receive"),
            text("transport", "", "", "reliable connection, unreliable connection, unreliable datagram"),
            text("join", "", "multicast groups", "UD: groups to receive, IPv4 or a GID that starts with ff"),
            text("send_to", "", "multicast groups", "UD: the group to send to, or several, in place of `peer`"),
            number("senders_max", "senders", "UD: senders that it knows at once, so that stages can answer them"),
            text("peer", "", "port.NAME", "the other end in this plan; on RC and UC each names the other"),
            text("listen", "", "ADDRESS:PORT", "RC, UC: take the first who connects here, in place of `peer`"),
            text("connect", "", "ADDRESS:PORT", "RC, UC: connect to who listens there; to one of several: a list"),
            text("connect_timeout", "", "", "with `listen` or `connect`: how long the start of a run waits"),
            text("reconnect", "", "", "with `listen` or `connect`: whether a lost connection is made again"),
            number("connections_max", "", "with `listen`: take this many peers at once, and not just one"),
            number("connections", "", "with `connect`: make this many connections, and not just one"),
            number("rx_shared_wr", "WRs", "many connections: receives that all share, for `rx_depth_wr`"),
            open("tx_shared_wr", "WRs", "the product", "many connections: the sends of all together, at most"),
            open("ops_shared_wr", "WRs", "the product", "many connections: the operations of all together, at most"),
            text("listen_with", "", "port.NAME", "in place of `listen`: share the listener of that port"),
            text("placement", "", "", "`listen`: which of those that share it gets a connection"),
            text("acceptor", "all come in", "an acceptor", "`connections_max`: who decides about each that asks"),
            text("acceptor_params", "none", "the acceptor's", "what the acceptor is told"),
            text("private_data", "none", "1 to 56 bytes", "with `connect`: what the listener is told with the request"),
            number("rx_depth_wr", "WRs", "receives kept posted; 0 receives nothing"),
            number("tx_depth_wr", "WRs", "sends that may be under way; 0 sends nothing"),
            number("ops_depth_wr", "WRs", "READs, WRITEs and the like under way, beside the sends; RC and UC"),
            number("max_sge", "parts", "packets and parts of regions that one operation's memory may be of"),
            number("windows", "windows", "keys to parts of regions that operations may give and take"),
            number("signature_keys", "keys", "keys through which the device checks blocks as operations move them; RC"),
            text("immediates", "", "", "whether packets carry the immediate data that came with them"),
            number("inline_bytes", "bytes", "inline data to ask the device for"),
            number("signal_every_wr", "WRs", "one send in this many is signaled; at most `tx_depth_wr`"),
            text("solicited", "", "", "whether its sends wake an lcore that says `unsolicited_wait`"),
            text("send_options", "", "", "whether packets are sent as their stages ask: immediate data, a fence"),
            text("sent", "none", "a target", "where packets go whose stage wants them back once they are sent"),
            open("timeout", "code", "14, or CM's", "RC: waits 4.096 us << this for an ACK; 0: for ever"),
            number("retry_cnt", "times", "RC: how often it sends again without an ACK"),
            number("rnr_retry", "times", "RC: the same, to a peer without a receive posted; 7: for ever"),
            number("min_rnr_timer", "code", "RC: what its peer waits before that; 1: 10 us, 12: 640 us"),
            open("traffic_class", "", "0, or CM's", "on its packets: DSCP in the upper six bits, ECN in the other two"),
            open("hop_limit", "hops", "64", "how many hops its packets have before they are dropped"),
            open("service_level", "", "0", "its packets' service level; on Ethernet their priority, 0 to 7"),
            open("path_mtu", "bytes", "both ends'", "RC and UC: data of a packet: 256, 512, 1024, 2048 or 4096"),
            open("pkey", "", "index 0's", "the partition, as the device's P_Key table has it: 0x8001"),
            open("qkey", "", "0x56424c4e", "UD: what senders must know; of a group that it sends to too"),
            open("max_rd_atomic", "ops", "the device's", "RC: READs and atomics that it has under way at once"),
            open("max_dest_rd_atomic", "ops", "the device's", "RC: how many of its peer's it serves at once"),
            open("rate_limit", "kbit/s", "none", "the most that it sends, on a device that paces its transport"),
            text(
                "alternate_gid",
                "none",
                "a GID, or IPv4",
                "RC: the peer's other GID, to be reached when the path fails",
            ),
            open("alternate_lid", "", "0", "its LID there, on InfiniBand"),
            open("alternate_port", "", "its device's", "the port of the own device that this path leaves by"),
            open("alternate_gid_index", "", "its device's", "the own GID there"),
            open("alternate_pkey", "", "index 0's", "the partition there"),
            open("alternate_timeout", "code", "`timeout`", "how long it waits for an ACK there"),
            text("timestamps", "", "", "whether received packets carry the time of their turn"),
            text("next", "", "a target, or \"drop\"", "where received packets go; needed to receive"),
        ],
    },
    TableWords {
        table: "ring",
        meaning: "a hand-off from one lcore to another",
        keys: &[
            text("to", "", "stage. or port.NAME", "who empties it; who fills it names it as a target"),
            number("depth", "packets", "packets that it holds from each lcore that fills it"),
            text("full", "", "", "a full ring refuses, drops its oldest, or stops those who fill it"),
            number("priority", "", "rings of one consumer: the greatest first, the others if it is empty"),
        ],
    },
    TableWords {
        table: "spread",
        meaning: "targets that share packets, and how",
        keys: &[
            text("to", "", "targets", "the places that packets are dealt out to, by `sort.NAME`"),
            text("by", "", "", "the packet's mark as a key; in turn; or a copy to each place"),
        ],
    },
    TableWords {
        table: "injector",
        meaning: "where threads of the embedder hand messages to a stage",
        keys: &[
            text("to", "", "stage.NAME", "the stage that gets the messages"),
            text("pool", "", "a pool's NAME", "the pool that messages are copied into"),
            number("depth", "packets", "messages that it holds"),
        ],
    },
    TableWords {
        table: "stage",
        meaning: "one stage of a kind that the application registered",
        keys: &[
            text("use", "", "a kind's name", "which kind"),
            text("lcore", "", "an lcore's NAME", "the lcore that runs it"),
            text("pool", "", "a pool's NAME", "the pool that it takes fresh packets from, if it makes any"),
            number("timers_max", "timers", "the most timers that it has armed at once"),
            text("regions", "none", "regions' NAMEs", "the regions that it owns; each has one owner"),
            text("out", "none", "OUTPUT = TARGET", "where each output of the kind leads; all must be there"),
            text("params", "none", "the kind's own", "what the kind is told"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_words_and_no_words_are_of_no_key() {
        let tables = raw::keys();
        let mut wrong = Vec::new();
        for (table, keys) in &tables {
            let words = TABLES.iter().find(|words| words.table == *table).map_or(&[][..], |words| words.keys);
            let without = keys.iter().filter(|key| words.iter().all(|words| words.key != key.name));
            wrong.extend(without.map(|key| format!("[{table}] `{}` is not explained", key.name)));
            let gone = words.iter().filter(|words| keys.iter().all(|key| key.name != words.key));
            wrong.extend(gone.map(|words| format!("[{table}] has no key `{}`", words.key)));
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(tables.len(), TABLES.len());
    }

    #[test]
    fn it_fits_eighty_columns() {
        for table in reference().iter().map(ToString::to_string) {
            assert!(table.lines().all(|line| line.chars().count() <= 76), "{table}");
        }
    }

    #[test]
    fn numbers_have_groups() {
        let grouped = [0, 999, 1000, 65536, 1 << 20].map(grouped);
        assert_eq!(grouped, ["0", "999", "1,000", "65,536", "1,048,576"]);
    }
}
