//! Entries that do not what they seem to say.
