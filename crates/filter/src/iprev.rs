//! The result of the reverse look-up of a client's address (iprev, RFC 8601 §3).

use crate::result_code::result_code;

result_code! {
    /// The result, as `Authentication-Results` names it.
    // RFC 8601 §2.7.3
    IprevCode {
        /// The address has a name whose addresses contain it.
        Pass = "pass",
        /// Its names do not lead back to it.
        Fail = "fail",
        /// The DNS cannot tell now.
        TempError = "temperror",
        /// The address has no name.
        PermError = "permerror",
    }
}
