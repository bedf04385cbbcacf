//! An exchange, a trader, and a network between them that loses, doubles and delays; with the
//! exchange's books after each message.

use std::collections::{BTreeMap, HashMap};

use tick_to_trade::book::{BookImage, BookSpec, Change, ImageOrder, Level, OrderBooks};
use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::itch::encode::{self, Header, NewOrder};
use tick_to_trade::itch::{self, Side, Symbol};
use tick_to_trade::mold::{Packet, Writer};
use tick_to_trade::recovery::{Answered, Follower, FollowerSpec, Service, Services, ServicesSpec, Told};

const SIDES: [Side; 2] = [Side::Buy, Side::Sell];

/// Probabilities of faults, in percent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Lost frames of the stream.
    pub(crate) lost_frames: u32,
    /// Frames that begin a burst of losses, and the burst's length.
    pub(crate) bursts: u32,
    pub(crate) burst_frames: u32,
    /// Lost frames that the stream brings later.
    pub(crate) late_frames: u32,
    /// Lost requests and answers, and doubled ones.
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    /// The longest delay of a request or an answer.
    pub(crate) delay: u64,
    /// Frames with a false first message.
    pub(crate) false_frames: u32,
}

pub(crate) const FAIR: Weather = Weather {
    lost_frames: 0,
    bursts: 0,
    burst_frames: 0,
    late_frames: 0,
    lost: 0,
    doubled: 0,
    delay: 0,
    false_frames: 0,
};

/// The longest delay of a late frame.
const LATE_NS: u64 = 300;

#[derive(Debug, Clone, Copy)]
enum Way {
    /// A late frame of the stream.
    Late,
    Ask(Service),
    Answer(Service),
}

type Top = [Option<(u32, u64)>; 2];

fn top(books: &OrderBooks, book: u16) -> Top {
    let book = books.book(book).expect("it was told of");
    SIDES.map(|side| book.best(side).map(|level| (level.price_e4, level.shares)))
}

/// The exchange's books after each message.
struct Oracle {
    books: OrderBooks,
    /// By locate code, the best levels from a sequence number on.
    tops: HashMap<u16, BTreeMap<u64, Top>>,
}

impl Oracle {
    fn apply(&mut self, message: &[u8], sequence: u64) {
        let message = itch::parse(message).expect("the exchange sends ITCH");
        if let Some(change) = self.books.apply(&message).expect("the exchange's messages fit its book") {
            let tops = self.tops.entry(message.stock_locate()).or_default();
            tops.insert(sequence, top(&self.books, change.book));
        }
    }

    fn top_at(&self, locate: u16, sequence: u64) -> Top {
        let tops = self.tops.get(&locate).and_then(|tops| tops.range(..=sequence).next_back());
        tops.map_or([None; 2], |(_, top)| *top)
    }
}

pub(crate) struct World {
    generator: Generator,
    pub(crate) services: Services,
    pub(crate) follower: Follower,
    oracle: Oracle,
    pub(crate) weather: Weather,
    /// Requests and answers in flight, by time of arrival.
    way: BTreeMap<(u64, u64), (Way, Vec<u8>)>,
    sent: u64,
    now_ns: u64,
    burst_left: u32,
    random: u64,
    pub(crate) told: u64,
}

pub(crate) const INSTRUMENTS: u16 = 3;
pub(crate) const BOOKS: BookSpec = BookSpec { instruments: 4, orders: 400, levels_per_side: 2_048 };

impl World {
    pub(crate) fn new(seed: u64, spec: FollowerSpec, kept_messages: u32, weather: Weather) -> World {
        let generator = Generator::new(GeneratorSpec { seed, instruments: INSTRUMENTS, live_orders: 30 });
        World {
            generator,
            services: Services::new(ServicesSpec { kept_messages, orders_max: 64 }),
            follower: Follower::new(spec),
            oracle: Oracle { books: OrderBooks::new(BOOKS), tops: HashMap::new() },
            weather,
            way: BTreeMap::new(),
            sent: 0,
            now_ns: 1,
            burst_left: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            told: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % bound.max(1)
    }

    fn happens(&mut self, percent: u32) -> bool {
        self.below(100) < percent.into()
    }

    /// Calls the follower, and compares its updates with the oracle.
    fn follow(&mut self, call: impl FnOnce(&mut Follower, u64, &mut dyn FnMut(&OrderBooks, Change, Told, u64))) {
        let World { follower, oracle, told, .. } = self;
        call(follower, self.now_ns, &mut |books, change, how, sequence| {
            if how == Told::Withheld || !change.top {
                return;
            }
            *told += 1;
            let locate = books.book(change.book).expect("it has changed").stock_locate();
            assert_eq!(
                top(books, change.book),
                oracle.top_at(locate, sequence),
                "locate {locate} at {sequence}: {how:?}"
            );
        });
    }

    /// Publishes a frame; the stream delivers it, loses it, or brings it late.
    pub(crate) fn publish(&mut self, messages: u16) {
        let mut bytes = [0; 1_400];
        let frame = self.generator.write_frame(messages, self.now_ns, &mut bytes).expect("there is room");
        let mut bytes = bytes[..frame.len_bytes].to_vec();
        let packet = Packet::parse(&bytes).expect("it is MoldUDP64");
        self.services.keep(&packet);
        for (index, message) in packet.messages().enumerate() {
            self.oracle.apply(message, frame.sequence + index as u64);
        }
        if self.burst_left == 0 && self.happens(self.weather.bursts) {
            self.burst_left = self.weather.burst_frames;
        }
        let is_lost = self.burst_left > 0 || self.happens(self.weather.lost_frames);
        self.burst_left = self.burst_left.saturating_sub(1);
        if is_lost {
            if self.happens(self.weather.late_frames) {
                self.sent += 1;
                let at_ns = self.now_ns + self.below(LATE_NS);
                self.way.insert((at_ns, self.sent), (Way::Late, bytes));
            }
            return;
        }
        if self.happens(self.weather.false_frames) {
            bytes = self.falsify(&bytes);
        }
        self.stream(&bytes);
    }

    /// Delivers a frame of the stream.
    fn stream(&mut self, bytes: &[u8]) {
        self.follow(|follower, now_ns, mut told| {
            let packet = Packet::parse(bytes).expect("it is MoldUDP64");
            follower.take(&packet, 0, now_ns, &mut told);
        });
    }

    /// Replaces the first message by one that contradicts its book.
    fn falsify(&mut self, bytes: &[u8]) -> Vec<u8> {
        let packet = Packet::parse(bytes).expect("it is MoldUDP64");
        let truth = packet.messages().next().expect("it has a message");
        let stock_locate = u16::from_be_bytes([truth[1], truth[2]]);
        let is_order = b"AFECXDU".contains(&truth[0]);
        let header = Header { stock_locate, tracking_number: 0, timestamp_ns: 0 };
        let mut message = [0; 50];
        let reference = u64::MAX - self.below(1_000);
        let len_bytes = match self.below(3) {
            _ if !is_order => return bytes.to_vec(),
            0 => encode::order_delete(&mut message, header, reference),
            1 => encode::order_delete(&mut message, header, reference).map(|len_bytes| len_bytes - 1),
            _ => {
                let stock = Symbol::new("SYM").expect("a symbol");
                // Nobody sells at so low a price. It would not cross an empty side.
                let has_bid = self.oracle.top_at(stock_locate, packet.sequence() - 1)[0].is_some();
                let order = NewOrder { reference, side: Side::Sell, shares: 1, stock, price_e4: 1 };
                match has_bid {
                    true => encode::add_order(&mut message, header, order),
                    false => encode::order_delete(&mut message, header, reference),
                }
            }
        };
        let mut out = vec![0; bytes.len() + 50];
        let mut writer = Writer::new(&mut out, packet.session(), packet.sequence()).expect("there is room");
        writer.push(&message[..len_bytes.expect("there is room")]).expect("there is room");
        packet.messages().skip(1).for_each(|message| writer.push(message).expect("there is room"));
        let len_bytes = writer.finish();
        out.truncate(len_bytes);
        out
    }

    /// Sends a request or an answer, or loses it.
    fn send(&mut self, way: Way, bytes: Vec<u8>) {
        let copies = 1 + u64::from(self.happens(self.weather.doubled));
        for _ in 0..copies {
            if self.happens(self.weather.lost) {
                continue;
            }
            self.sent += 1;
            let at_ns = self.now_ns + self.below(self.weather.delay + 1);
            self.way.insert((at_ns, self.sent), (way, bytes.clone()));
        }
    }

    /// Restarts the exchange with other orders; packets in flight still arrive.
    pub(crate) fn start_again(&mut self, seed: u64, kept_messages: u32) {
        let spec = GeneratorSpec { seed, instruments: INSTRUMENTS, live_orders: 30 };
        self.generator = Generator::new(spec).in_session(*b"VERBLINE01");
        self.services = Services::new(ServicesSpec { kept_messages, orders_max: 64 });
        self.oracle = Oracle { books: OrderBooks::new(BOOKS), tops: HashMap::new() };
        // The arbiter would drop late frames from before.
        self.way.retain(|_, (way, _)| !matches!(way, Way::Late));
        self.follow(|follower, now_ns, _| follower.begin_anew(now_ns));
    }

    /// Lets time pass: due packets arrive, and the follower is polled.
    pub(crate) fn pass(&mut self) {
        self.now_ns += 10;
        while let Some(first) = self.way.first_entry().filter(|first| first.key().0 <= self.now_ns) {
            let (way, bytes) = first.remove();
            match way {
                Way::Late => self.stream(&bytes),
                Way::Ask(service) => {
                    let mut out = [0; 300];
                    let answered = match service {
                        Service::Retransmission => self.services.send_again(&bytes, &self.generator, &mut out),
                        Service::Snapshot => self.services.send_snapshot(None, &bytes, &self.generator, &mut out),
                    };
                    if let Answered::Bytes(len_bytes) = answered {
                        self.send(Way::Answer(service), out[..len_bytes].to_vec());
                    }
                }
                Way::Answer(service) => self.follow(|follower, now_ns, mut told| {
                    let packet = Packet::parse(&bytes).expect("it is MoldUDP64");
                    match service {
                        Service::Retransmission => follower.take_again(&packet, now_ns, &mut told),
                        Service::Snapshot => follower.take_snapshot(&packet, now_ns, &mut told),
                    }
                }),
            }
        }
        self.follow(|follower, now_ns, mut told| follower.poll(now_ns, &mut told));
        while let Some((service, request)) = self.follower.next_request(self.now_ns) {
            self.send(Way::Ask(service), request.to_bytes().to_vec());
        }
    }

    /// Ends the session, and passes time in fair weather until everything is recovered.
    pub(crate) fn end(&mut self) {
        let mut bytes = [0; 20];
        let writer = Writer::new(&mut bytes, self.generator.session(), self.generator.sequence());
        writer.expect("room for a header").finish_session();
        self.follow(|follower, now_ns, mut told| {
            follower.take(&Packet::parse(&bytes).expect("a header"), 0, now_ns, &mut told);
        });
        self.fall_silent();
    }

    /// Lets the stream fall silent, without an end of session, and passes time in fair weather
    /// until everything is recovered.
    pub(crate) fn fall_silent(&mut self) {
        self.weather = Weather { delay: self.weather.delay, ..FAIR };
        for _ in 0..20_000 {
            if self.follower.is_live() {
                break;
            }
            self.pass();
        }
    }

    fn truth(&self) -> Vec<BookImage> {
        let image = |locate| {
            let order = |order: tick_to_trade::generator::LiveOrder| ImageOrder {
                reference: order.reference,
                sells: order.side == Side::Sell,
                price_e4: order.price_e4,
                shares: order.shares,
            };
            let mut orders = Vec::from_iter(self.generator.orders(locate).map(order));
            orders.sort_unstable();
            let levels = SIDES.map(|side| {
                let levels = self.generator.truth(locate, side);
                Vec::from_iter(levels.map(|l| Level { price_e4: l.price_e4, orders: l.orders, shares: l.shares }))
            });
            BookImage { locate, symbol: self.generator.symbol(locate).expect("it has one"), orders, levels }
        };
        Vec::from_iter((1..=INSTRUMENTS).map(image))
    }

    pub(crate) fn assert_recovered(&self) {
        let counts = self.follower.counts();
        assert!(self.follower.is_live(), "not recovered: {counts:?}");
        assert_eq!(self.follower.next_sequence(), self.generator.sequence(), "{counts:?}");
        let books = self.follower.books().images();
        for truth in &self.truth() {
            match books.iter().find(|book| book.locate == truth.locate) {
                Some(book) => assert_eq!(book.difference(truth), None, "{counts:?}"),
                // The stream ended before the directory did.
                None => assert!(truth.orders.is_empty(), "{counts:?}"),
            }
        }
        assert!(counts.adds_up(), "{counts:?}");
        assert!(counts.retransmitted <= counts.missing, "{counts:?}");
    }
}
