//! How a [`Value`] becomes a field of [`super::Config`] and how a field becomes one again.
//!
//! A kind has checked range and form before; `of` gives nothing only where a parameter's kind does not belong to its
//! field, which a test of the table finds.

use super::value::Value;
use super::{Host, HostPort, LogPath, Mailbox, MapSource, NextHop, Rate, RelayDomain};
use ipnet::IpNet;
use mail::{Address, DomainName};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A type that fields have.
pub(crate) trait Field: Sized {
    /// The value of the field.
    fn value(&self) -> Value;
    /// The field of the value.
    fn of(value: &Value) -> Option<Self>;
}

/// Puts a value into a field; false if it is none for it.
pub(crate) fn assign<T: Field>(field: &mut T, value: &Value) -> bool {
    match T::of(value) {
        Some(new) => {
            *field = new;
            true
        }
        None => false,
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn value(&self) -> Value {
                Value::Number(i64::try_from(*self).unwrap_or(i64::MAX))
            }
            fn of(value: &Value) -> Option<Self> {
                if let Value::Number(number) = value { (*number).try_into().ok() } else { None }
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, usize, i32);

macro_rules! plain {
    ($($field:ty => $variant:ident),*) => {$(
        impl Field for $field {
            fn value(&self) -> Value {
                Value::$variant(self.clone())
            }
            fn of(value: &Value) -> Option<Self> {
                if let Value::$variant(inner) = value { Some(inner.clone()) } else { None }
            }
        }
    )*};
}
plain!(bool => Flag, Duration => Time, String => Text, PathBuf => Path, IpNet => Network, SocketAddr => Address, Rate => Rate, IpAddr => Ip);

impl Field for Option<PathBuf> {
    fn value(&self) -> Value {
        Value::Path(self.clone().unwrap_or_default())
    }

    fn of(value: &Value) -> Option<Self> {
        PathBuf::of(value).map(|path| (!path.as_os_str().is_empty()).then_some(path))
    }
}

impl Field for DomainName {
    fn value(&self) -> Value {
        Value::Text(self.to_string())
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Self::new(text).ok() } else { None }
    }
}

macro_rules! texts {
    ($($field:ty),*) => {$(
        impl Field for $field {
            fn value(&self) -> Value {
                Value::Text(self.to_string())
            }
            fn of(value: &Value) -> Option<Self> {
                if let Value::Text(text) = value { text.parse().ok() } else { None }
            }
        }
    )*};
}
texts!(RelayDomain, HostPort, Host, NextHop, Mailbox);

impl Field for Option<Address> {
    fn value(&self) -> Value {
        Value::Text(self.as_ref().map_or_else(String::new, ToString::to_string))
    }

    fn of(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
    }
}

impl Field for LogPath {
    fn value(&self) -> Value {
        match self {
            Self::Stdout => Value::Text("-".to_owned()),
            Self::Syslog => Value::Text("syslog".to_owned()),
            Self::Journald => Value::Text("journald".to_owned()),
            Self::File(path) => Value::Path(path.clone()),
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) if text == "-" => Some(Self::Stdout),
            Value::Text(text) if text == "syslog" => Some(Self::Syslog),
            Value::Text(text) if text == "journald" => Some(Self::Journald),
            Value::Path(path) => Some(Self::File(path.clone())),
            _ => None,
        }
    }
}

impl Field for MapSource {
    fn value(&self) -> Value {
        match self {
            Self::File(path) => Value::Path(path.clone()),
            Self::Ldap(_) | Self::Sqlite(_) => Value::Text(self.to_string()),
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => text.parse().ok().filter(|source| !matches!(source, Self::File(_))),
            Value::Path(path) => Some(Self::File(path.clone())),
            _ => None,
        }
    }
}

impl Field for Option<String> {
    fn value(&self) -> Value {
        Value::Text(self.clone().unwrap_or_default())
    }

    fn of(value: &Value) -> Option<Self> {
        String::of(value).map(|text| (!text.is_empty()).then_some(text))
    }
}

impl<T: Field> Field for Vec<T> {
    fn value(&self) -> Value {
        Value::List(self.iter().map(Field::value).collect())
    }

    fn of(value: &Value) -> Option<Self> {
        if let Value::List(items) = value { items.iter().map(T::of).collect() } else { None }
    }
}
