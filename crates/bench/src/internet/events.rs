//! The mark of each watched socket, by which the loop finds the part that an event is for.

use rustix::event::epoll::EventData;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventSource {
    Stop,
    Listener,
    Connection,
    Udp,
    DnsListener,
    Dns,
}

/// Returns the value that the kernel gives back with an event.
pub(super) fn data(kind: EventSource, place: u32) -> EventData {
    EventData::new_u64((kind as u64) << 32 | u64::from(place))
}

/// Reads back what [`data`] made.
pub(super) fn kind_and_place(data: EventData) -> (EventSource, u32) {
    let number = data.u64();
    // The lower half.
    let place = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
    let kinds = [
        EventSource::Stop,
        EventSource::Listener,
        EventSource::Connection,
        EventSource::Udp,
        EventSource::DnsListener,
        EventSource::Dns,
    ];
    let kind = kinds.into_iter().find(|kind| *kind as u64 == number >> 32).unwrap_or(EventSource::Stop);
    (kind, place)
}
