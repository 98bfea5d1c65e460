//! Placeholder of the room.
