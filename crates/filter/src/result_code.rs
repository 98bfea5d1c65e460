//! Results of sender checks, with their words in `Authentication-Results` (RFC 8601 §2.7).

/// Makes the results of one method: an enum, the word of each result, and `Display`, which writes the word.
macro_rules! result_code {
    ($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $result:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$meaning])* $result,)+
        }

        impl $name {
            /// Returns its word in `Authentication-Results`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$result => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use result_code;
