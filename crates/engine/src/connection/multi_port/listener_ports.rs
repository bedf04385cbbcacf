//! The ports that share a listener, and the placement of the next connection.

use std::sync::Arc;

use verbline_plan::Placement;

use crate::connection::multi_port::accept_queue::AcceptQueue;

/// One of the ports: its name, its device, and the queue of its admitted requests.
#[derive(Debug)]
pub(crate) struct ListenerPort<T> {
    pub(crate) port: String,
    pub(crate) device: String,
    pub(crate) accept_queue: Arc<AcceptQueue<T>>,
}

/// The port that listens, first, and those that share its listener, in the plan's order.
#[derive(Debug)]
pub(crate) struct ListenerPorts<T> {
    all: Vec<ListenerPort<T>>,
    placement: Placement,
    /// The index of the next port in turn.
    turn: usize,
}

/// The reason why a request gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// None of the ports is on the device of the request.
    Device,
    /// All slots are taken.
    Full,
    /// There is no port at this index, or it is on another device.
    Unreachable,
}

impl<T> ListenerPorts<T> {
    pub(crate) fn new(all: Vec<ListenerPort<T>>, placement: Placement) -> ListenerPorts<T> {
        ListenerPorts { all, placement, turn: 0 }
    }

    pub(crate) fn all(&self) -> &[ListenerPort<T>] {
        &self.all
    }

    /// Whether a request by this device could get a slot now.
    pub(crate) fn look(&self, device: &str) -> Result<(), NoPlace> {
        let mut on_it = self.all.iter().filter(|port| port.device == device).peekable();
        if on_it.peek().is_none() {
            return Err(NoPlace::Device);
        }
        if on_it.any(|port| port.accept_queue.has_room()) { Ok(()) } else { Err(NoPlace::Full) }
    }

    /// Reserves a slot for a request by this device: at the wished port, or by the plan's
    /// placement.
    pub(crate) fn reserve(&mut self, device: &str, wish: Option<usize>) -> Result<usize, NoPlace> {
        if let Some(place) = wish {
            let port = self.all.get(place).filter(|port| port.device == device);
            let port = port.ok_or(NoPlace::Unreachable)?;
            return if port.accept_queue.reserve() { Ok(place) } else { Err(NoPlace::Full) };
        }
        self.look(device)?;
        let count = self.all.len();
        let mut order: Vec<usize> = (self.turn..self.turn + count).map(|at| at % count).collect();
        order.retain(|at| self.all[*at].device == device);
        if self.placement == Placement::Fewest {
            // Stable: of ports with equally few connections, the next in turn comes first.
            order.sort_by_key(|at| self.all[*at].accept_queue.reserved());
        }
        let place = order.into_iter().find(|at| self.all[*at].accept_queue.reserve()).ok_or(NoPlace::Full)?;
        self.turn = (place + 1) % count;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn on_devices(devices: &[&str], max: usize, placement: Placement) -> ListenerPorts<u32> {
        let port = |device: &&str| ListenerPort {
            port: String::new(),
            device: (*device).to_owned(),
            accept_queue: Arc::new(AcceptQueue::new(max).unwrap()),
        };
        ListenerPorts::new(devices.iter().map(port).collect(), placement)
    }

    #[test]
    fn each_gets_one_in_turn_and_the_fullest_is_passed_over() {
        let mut ports = on_devices(&["a", "a", "a"], 2, Placement::RoundRobin);
        let places: Vec<_> = (0..7).map(|_| ports.reserve("a", None)).collect();
        assert_eq!(places[..6], [Ok(0), Ok(1), Ok(2), Ok(0), Ok(1), Ok(2)]);
        assert_eq!((places[6], ports.look("a")), (Err(NoPlace::Full), Err(NoPlace::Full)));
        ports.all()[1].accept_queue.give_back();
        assert_eq!((ports.look("a"), ports.reserve("a", None)), (Ok(()), Ok(1)));
    }

    #[test]
    fn the_one_that_has_the_fewest_gets_the_next() {
        let mut ports = on_devices(&["a", "a"], 8, Placement::Fewest);
        for _ in 0..3 {
            assert!(ports.all()[0].accept_queue.reserve());
        }
        let places: Vec<_> = (0..4).map(|_| ports.reserve("a", None).unwrap()).collect();
        assert_eq!(places, [1, 1, 1, 0]);
    }

    #[test]
    fn a_request_goes_where_its_device_leads_and_a_wish_is_held_to_that() {
        let mut ports = on_devices(&["a", "b"], 1, Placement::Fewest);
        assert_eq!(ports.reserve("c", None), Err(NoPlace::Device));
        assert_eq!(ports.reserve("a", Some(1)), Err(NoPlace::Unreachable));
        assert_eq!(ports.reserve("a", Some(7)), Err(NoPlace::Unreachable));
        assert_eq!((ports.reserve("b", Some(1)), ports.reserve("b", Some(1))), (Ok(1), Err(NoPlace::Full)));
        assert_eq!((ports.reserve("b", None), ports.reserve("a", None)), (Err(NoPlace::Full), Ok(0)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A request comes, with or without a wish for a port.
        Come(Option<usize>),
        /// An admitted request is handed over: the listener's cm thread may be that far behind.
        Hand,
        Take(usize),
        End(usize),
        Close(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => prop::option::of(0usize..4).prop_map(Step::Come),
            6 => Just(Step::Hand),
            3 => (0usize..3).prop_map(Step::Take),
            4 => (0usize..3).prop_map(Step::End),
            1 => (0usize..3).prop_map(Step::Close),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Both threads' calls in any order, one at a time: the mutex allows no other interleaving.
        #[test]
        fn nobody_is_lost_and_no_port_has_more_than_it_may(steps in steps(), in_turn in any::<bool>()) {
            let placement = if in_turn { Placement::RoundRobin } else { Placement::Fewest };
            let mut ports = on_devices(&["a", "a", "a"], 3, placement);
            let (mut next, mut on_the_way) = (0u32, VecDeque::new());
            // For each port: the waiting requests, the connections, and whether it is open.
            let mut oracle = [const { (VecDeque::new(), Vec::new(), true) }; 3];
            let mut came_back = 0;
            for step in steps {
                let going_to = |place: usize, way: &VecDeque<(usize, u32)>| {
                    way.iter().filter(|on| on.0 == place).count()
                };
                let load = |place: usize, oracle: &[(VecDeque<u32>, Vec<u32>, bool); 3], way: &_| {
                    oracle[place].0.len() + oracle[place].1.len() + going_to(place, way)
                };
                let fits: Vec<bool> =
                    (0..3).map(|at| oracle[at].2 && load(at, &oracle, &on_the_way) < 3).collect();
                match step {
                    Step::Come(wish) => {
                        let place = ports.reserve("a", wish);
                        match (place, wish) {
                            (Ok(place), wish) => {
                                prop_assert!(fits[place] && wish.is_none_or(|wish| wish == place));
                                if wish.is_none() && !in_turn {
                                    let least = (0..3).filter(|at| fits[*at]).map(|at| load(at, &oracle, &on_the_way));
                                    prop_assert_eq!(Some(load(place, &oracle, &on_the_way)), least.min());
                                }
                                on_the_way.push_back((place, next));
                                next += 1;
                            }
                            (Err(NoPlace::Full), None) => prop_assert!(!fits.contains(&true)),
                            (Err(NoPlace::Full), Some(wish)) => prop_assert!(!fits[wish]),
                            (Err(no), wish) => prop_assert_eq!((no, wish), (NoPlace::Unreachable, Some(3))),
                        }
                    }
                    Step::Hand => {
                        let Some((place, one)) = on_the_way.pop_front() else { continue };
                        let back = ports.all()[place].accept_queue.hand(one);
                        prop_assert_eq!(back, (!oracle[place].2).then_some(one));
                        match back {
                            Some(_) => {
                                ports.all()[place].accept_queue.give_back();
                                came_back += 1;
                            }
                            None => oracle[place].0.push_back(one),
                        }
                    }
                    Step::Take(place) => {
                        let taken = ports.all()[place].accept_queue.take_all();
                        prop_assert_eq!(&taken, &oracle[place].0);
                        oracle[place].0.clear();
                        oracle[place].1.extend(taken);
                    }
                    Step::End(place) => {
                        if oracle[place].1.pop().is_some() {
                            ports.all()[place].accept_queue.give_back();
                        }
                    }
                    Step::Close(place) => {
                        let waiting = ports.all()[place].accept_queue.close();
                        prop_assert_eq!(&waiting, &oracle[place].0);
                        oracle[place].0.clear();
                        oracle[place].2 = false;
                        for _ in waiting {
                            ports.all()[place].accept_queue.give_back();
                        }
                    }
                }
                for place in 0..3 {
                    let accept_queue = &ports.all()[place].accept_queue;
                    prop_assert_eq!(accept_queue.reserved(), load(place, &oracle, &on_the_way));
                    prop_assert!(accept_queue.reserved() <= accept_queue.max());
                }
            }
            prop_assert!(came_back <= next);
        }
    }
}
