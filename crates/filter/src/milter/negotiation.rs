//! Negotiation: version, actions, steps and macros that this side offers and the filter takes.
//!
//! The MTA offers version 6 with everything it can do; the filter answers with what it wants of it. A step that the
//! filter's version does not know is masked, whatever flags it sends: `U` came with version 3, `T` with version 4, the
//! rest of the flags with version 6.

use super::MilterError;
use super::macros::MacroStage;
use super::packet::{Packet, number, write_packet};

/// The newest version this side speaks.
pub const VERSION_NEWEST: u32 = 6;
/// The oldest version it accepts from a filter.
pub const VERSION_OLDEST: u32 = 2;

/// A set of flags, as sent in four octets.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self($value);)*
            /// All flags that are defined here.
            pub const ALL: Self = Self(0 $(| $value)*);

            /// Whether each flag of `other` is set.
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the flags of both.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the flags of this set that `other` lacks.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }
    };
}

flags! {
    /// Changes that a filter may make (`SMFIF_*`).
    Actions {
        /// Add header fields, also at a position.
        ADD_HEADERS = 0x1,
        /// Replace the body.
        CHANGE_BODY = 0x2,
        /// Add recipients.
        ADD_RECIPIENTS = 0x4,
        /// Delete recipients.
        DELETE_RECIPIENTS = 0x8,
        /// Change and delete header fields.
        CHANGE_HEADERS = 0x10,
        /// Put the message into quarantine.
        QUARANTINE = 0x20,
        /// Change the envelope sender.
        CHANGE_SENDER = 0x40,
        /// Add recipients with ESMTP parameters.
        ADD_RECIPIENTS_WITH_PARAMETERS = 0x80,
        /// Name the macros it wants.
        SET_MACROS = 0x100,
    }
}

flags! {
    /// Steps a filter does not want, replies it does not give, and the size of packets (`SMFIP_*`).
    Steps {
        /// The filter wants no connect.
        NO_CONNECT = 0x1,
        /// The filter wants no HELO.
        NO_HELO = 0x2,
        /// The filter wants no MAIL.
        NO_MAIL = 0x4,
        /// The filter wants no RCPT.
        NO_RECIPIENT = 0x8,
        /// The filter wants no body.
        NO_BODY = 0x10,
        /// The filter wants no header fields.
        NO_HEADERS = 0x20,
        /// The filter wants no end of header.
        NO_END_OF_HEADER = 0x40,
        /// The filter does not reply to header fields.
        SILENT_HEADERS = 0x80,
        /// The filter wants no unknown commands.
        NO_UNKNOWN = 0x100,
        /// The filter wants no DATA.
        NO_DATA = 0x200,
        /// This side understands the reply `s`.
        SKIP = 0x400,
        /// The filter wants recipients that were refused, too.
        REJECTED_RECIPIENTS = 0x800,
        /// The filter does not reply to connect.
        SILENT_CONNECT = 0x1000,
        /// The filter does not reply to HELO.
        SILENT_HELO = 0x2000,
        /// The filter does not reply to MAIL.
        SILENT_MAIL = 0x4000,
        /// The filter does not reply to RCPT.
        SILENT_RECIPIENT = 0x8000,
        /// The filter does not reply to DATA.
        SILENT_DATA = 0x1_0000,
        /// The filter does not reply to unknown commands.
        SILENT_UNKNOWN = 0x2_0000,
        /// The filter does not reply to the end of the header.
        SILENT_END_OF_HEADER = 0x4_0000,
        /// The filter does not reply to body chunks.
        SILENT_BODY = 0x8_0000,
        /// Header values keep their leading blank.
        LEADING_BLANK = 0x10_0000,
        /// Packets of up to 256 KiB.
        DATA_256K = 0x1000_0000,
        /// Packets of up to 1 MiB.
        DATA_1M = 0x2000_0000,
    }
}

impl Steps {
    /// Flags of version 2.
    const VERSION_2: Self = Self(0x7f);
    /// Flags that version 6 brought. Versions 3 to 5 know only which steps the filter does not want.
    const VERSION_6: Self = Self(Self::ALL.0 & !0x37f);

    /// Returns the flags that a filter of `version` can mean. Steps that it does not know are not wanted.
    fn masked(self, version: u32) -> Self {
        let known = match version {
            6.. => Self::ALL,
            // SMFIP_NOHREPL is of version 2 in later libraries.
            4 | 5 => Self::ALL.without(Self::VERSION_6).with(Self::SILENT_HEADERS),
            3 => Self::VERSION_2.with(Self::NO_UNKNOWN).with(Self::SILENT_HEADERS),
            _ => Self::VERSION_2.with(Self::SILENT_HEADERS),
        };
        let unknown_steps = match version {
            4.. => Self::default(),
            3 => Self::NO_DATA,
            _ => Self::NO_DATA.with(Self::NO_UNKNOWN),
        };
        Self(self.0 & known.0).with(unknown_steps)
    }
}

/// The offer of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Changes that this filter may make.
    pub actions: Actions,
    /// Flags of the protocol.
    pub steps: Steps,
}

impl Default for Offer {
    fn default() -> Self {
        Self { actions: Actions::ALL, steps: Steps::ALL }
    }
}

impl Offer {
    /// Appends the packet that begins a connection to a filter.
    pub fn write(&self, out: &mut Vec<u8>) {
        let numbers = [VERSION_NEWEST, self.actions.0, self.steps.0].map(u32::to_be_bytes);
        write_packet(out, b'O', &[&numbers[0], &numbers[1], &numbers[2]]);
    }
}

/// The result of a negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The version that the filter speaks.
    pub version: u32,
    /// Changes that the filter announced; others are an error.
    pub actions: Actions,
    /// Flags that hold.
    pub steps: Steps,
    /// Macros that the filter wants at each stage in place of the usual ones.
    pub macros: Vec<(MacroStage, Vec<Vec<u8>>)>,
}

impl Agreement {
    /// Reads the filter's answer to `offer`.
    ///
    /// # Errors
    /// The packet is no negotiation, is cut, has a version out of 2 to 6, or wants actions or steps that were not
    /// offered. The filter is of no use then.
    pub fn read(offer: &Offer, packet: &Packet) -> Result<Self, MilterError> {
        if packet.command != b'O' {
            return Err(MilterError::Unexpected { command: packet.command, stage: "the negotiation" });
        }
        let (version, rest) = number(b'O', &packet.data)?;
        let (actions, rest) = number(b'O', rest)?;
        let (steps, mut rest) = number(b'O', rest)?;
        if !(VERSION_OLDEST..=VERSION_NEWEST).contains(&version) {
            return Err(MilterError::Version { version });
        }
        let (actions, steps) = (Actions(actions), Steps(steps));
        if actions.without(offer.actions) != Actions::default() {
            return Err(MilterError::NotOffered { what: "actions", flags: actions.without(offer.actions).0 });
        }
        if steps.without(offer.steps) != Steps::default() {
            return Err(MilterError::NotOffered { what: "steps", flags: steps.without(offer.steps).0 });
        }
        let mut macros = Vec::new();
        while version >= 6 && actions.has(Actions::SET_MACROS) && !rest.is_empty() {
            let (stage, behind) = number(b'O', rest)?;
            let mut lists = behind.splitn(2, |&octet| octet == 0);
            let (Some(list), Some(next)) = (lists.next(), lists.next()) else {
                return Err(MilterError::Malformed { command: b'O', what: "a list of macros without its NUL" });
            };
            let names = list.split(|octet| b" \t,".contains(octet)).filter(|name| !name.is_empty());
            // A stage that this side does not know has no packet that could carry its macros.
            if let Some(stage) = MacroStage::from_number(stage) {
                macros.push((stage, names.map(<[u8]>::to_vec).collect()));
            }
            rest = next;
        }
        Ok(Self { version, actions, steps: steps.masked(version), macros })
    }

    /// Octets of data that one packet may have in either direction.
    #[must_use]
    pub const fn data_bytes_max(&self) -> usize {
        if self.steps.has(Steps::DATA_1M) {
            1_048_575
        } else if self.steps.has(Steps::DATA_256K) {
            262_143
        } else {
            65_535
        }
    }
}
