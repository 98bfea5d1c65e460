//! The page behind a link of a digest: the facts of a message in quarantine, and a button that releases it.
//!
//! The link itself is the right to see and to release this message; no token is asked for. GET and HEAD change nothing,
//! since programs that check links in mail open them all. The page has no script and loads its style alone.

use super::handler::HttpHandler;
use super::held_link::{HeldFacts, LinkAnswer};
use super::response::{Content, HTML, Refusal, response};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use mail::{CivilTime, is_unprintable};
use std::sync::Arc;

/// The path of the page, before the signed text.
const PATH: &str = "/quarantine/";
/// The file with its style.
pub(super) const STYLE_PATH: &str = "/page/held.css";
/// The longest signed text.
const LINK_OCTETS_MAX: usize = 200;
/// The page may send its form to this server, and nothing else.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the signed text in the path of a request; `None`: the request is for something else.
pub(super) fn link_of(path: &str) -> Option<&str> {
    path.strip_prefix(PATH)
}

/// Answers a request for the page behind this link.
///
/// # Errors
/// Another method, or the page of another site sends the form.
pub(super) async fn answer_link<H: HttpHandler>(
    handler: &Arc<H>,
    method: &Method,
    headers: &HeaderMap,
    link: &str,
) -> Result<Response<Content>, Refusal> {
    let is_release = match *method {
        Method::GET | Method::HEAD => false,
        Method::POST => true,
        _ => return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this address takes GET, HEAD, POST")),
    };
    if is_release && is_of_another_site(headers) {
        return Ok(page(StatusCode::FORBIDDEN, "Not released", &paragraph("Open the link of the mail itself.")));
    }
    let answer = match link.len() <= LINK_OCTETS_MAX {
        true => handler.quarantine_link(link, is_release).await,
        false => LinkAnswer::Forged,
    };
    Ok(page_of(answer))
}

/// Whether a browser says that the page of another site sends the form.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

fn page_of(answer: LinkAnswer) -> Response<Content> {
    match answer {
        LinkAnswer::Held(facts) => {
            let form = "<form method=\"post\"><button>Release this message</button></form>";
            let text = paragraph("It is delivered to you when you release it. Else nothing is needed.");
            page(StatusCode::OK, "A message in quarantine", &[table(&facts), text, form.to_owned()].concat())
        }
        LinkAnswer::Released(facts) => {
            let text = paragraph("The message is on its way to you.");
            page(StatusCode::OK, "Released", &[text, table(&facts)].concat())
        }
        LinkAnswer::Gone => {
            let text = "It was released before, or deleted, by you or by an administrator.";
            page(StatusCode::GONE, "The message is not in quarantine any more", &paragraph(text))
        }
        LinkAnswer::Expired => {
            let text = "Messages are kept for a time, and then deleted. The time of this one is over.";
            page(StatusCode::GONE, "The link has expired", &paragraph(text))
        }
        LinkAnswer::Forged => {
            let text = "This server has not made it, or a part of it is missing: copy the whole link from the mail.";
            page(StatusCode::FORBIDDEN, "The link is not valid", &paragraph(text))
        }
        LinkAnswer::Failed(why) => {
            let text = format!("{why}. Try again later.");
            page(StatusCode::SERVICE_UNAVAILABLE, "The message cannot be released now", &paragraph(&text))
        }
    }
}

fn page(status: StatusCode, title: &str, body: &str) -> Response<Content> {
    let title = escaped(title);
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <title>{title}</title>\n<link rel=\"stylesheet\" href=\"../page/held.css\">\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    );
    let mut response = response(status, HTML, Content::Whole(text.into()));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn table(facts: &HeldFacts) -> String {
    let size = format!("{} KB", facts.size.div_ceil(1_000));
    let mut rows = vec![
        ("From", facts.from.clone()),
        ("Subject", facts.subject.clone()),
        ("To", facts.recipient.clone()),
        ("Received", time(facts.came_us / 1_000_000)),
        ("Size", size),
        ("Kept by", facts.by.clone()),
    ];
    rows.extend(facts.ends.map(|ends| ("Deleted", time(ends.into()))));
    let row = |(name, value): (&str, String)| format!("<tr><th>{name}</th><td>{}</td></tr>\n", escaped(&value));
    format!("<table>\n{}</table>\n", rows.into_iter().map(row).collect::<String>())
}

/// A time of day in UTC.
fn time(unix_s: u64) -> String {
    let CivilTime { year, month, day, hour, minute, .. } =
        CivilTime::from_unix(i64::try_from(unix_s).unwrap_or(i64::MAX));
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escaped(text))
}

/// Writes a text of a stranger so that it is text: markup has no effect, and neither have control characters and marks
/// of direction.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_unprintable(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::QueueId;

    fn facts(subject: &str) -> Box<HeldFacts> {
        Box::new(HeldFacts {
            id: QueueId::MIN,
            recipient: "b@example.com".to_owned(),
            from: "\"Ann\" <a@client.test>".to_owned(),
            subject: subject.to_owned(),
            came_us: 1_790_000_000_000_000,
            size: 1_001,
            by: "a_rule".to_owned(),
            ends: Some(1_790_000_000),
        })
    }

    fn text(answer: LinkAnswer) -> (u16, String) {
        let response = page_of(answer);
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        let status = response.status().as_u16();
        let Content::Whole(text) = response.into_body() else { panic!("a page") };
        (status, String::from_utf8(text.to_vec()).expect("UTF-8"))
    }

    #[test]
    fn the_page_shows_facts_as_text() {
        let (status, page) = text(LinkAnswer::Held(facts("<script>alert('1')</script>\u{202e}&amp;")));
        assert_eq!(status, 200);
        let subject = "<td>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\u{fffd}&amp;amp;</td>";
        assert!(page.contains(subject) && !page.contains("<script"), "{page}");
        assert!(page.contains("<td>&quot;Ann&quot; &lt;a@client.test&gt;</td>"), "{page}");
        assert!(page.contains("<td>2 KB</td>") && page.contains("<td>2026-09-21 14:13 UTC</td>"), "{page}");
        assert_eq!(page.matches("<form method=\"post\">").count(), 1, "{page}");
    }

    #[test]
    fn only_a_message_that_is_held_has_a_button() {
        let rows = [
            (LinkAnswer::Released(facts("x")), 200, "Released"),
            (LinkAnswer::Gone, 410, "not in quarantine any more"),
            (LinkAnswer::Expired, 410, "expired"),
            (LinkAnswer::Forged, 403, "not valid"),
            (LinkAnswer::Failed("the spool is full".to_owned()), 503, "the spool is full. Try again later."),
        ];
        for (answer, wanted, words) in rows {
            let (status, page) = text(answer);
            assert!(status == wanted && page.contains(words) && !page.contains("<form"), "{status} {page}");
        }
    }

    #[test]
    fn paths_of_links() {
        assert_eq!(link_of("/quarantine/6AK9.0.1.ab"), Some("6AK9.0.1.ab"));
        assert_eq!(link_of("/quarantine/"), Some(""));
        assert_eq!(link_of("/api/v1/quarantine"), None);
    }
}
