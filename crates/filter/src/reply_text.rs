//! Replies to SMTP clients whose words come from a filter.

use mail::{EnhancedCode, Reply, ReplyCode};

/// Makes a reply of a filter's words. `enhanced` holds if the words begin with no enhanced code of their own; a code of
/// another class than `code` gets that of `code`, so that one text serves for both.
pub(crate) fn reply_of(code: ReplyCode, enhanced: EnhancedCode, words: &str, default_words: &str) -> Reply {
    let words = words.trim();
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let own: Option<EnhancedCode> = first.parse().ok();
    let text = if own.is_some() { rest.trim_start() } else { words };
    let enhanced = own.unwrap_or(enhanced);
    let enhanced = code.outcome().map(|outcome| enhanced.with_outcome(outcome));
    let text = if text.is_empty() { default_words } else { text };
    let text: String = text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect();
    Reply::new(code, enhanced, &text)
}
