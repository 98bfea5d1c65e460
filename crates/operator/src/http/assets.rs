//! The files of the page, which lie in the program.
//!
//! They are compressed when the first is asked for. They hold no data of the server, so they need no token; the page
//! asks the API.

use super::response::{Content, add_usual, response};
use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compression, Crc};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use std::io::Write as _;
use std::sync::LazyLock;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file of the page.
struct File {
    path: &'static str,
    media_type: &'static str,
    content: &'static [u8],
}

macro_rules! file {
    ($path:literal, $name:literal, $media_type:expr) => {
        File { path: $path, media_type: $media_type, content: include_bytes!(concat!("page/", $name)) }
    };
}

static FILES: &[File] = &[
    file!("/", "index.html", "text/html; charset=utf-8"),
    file!("/page/page.css", "page.css", STYLE),
    file!("/page/held.css", "held.css", STYLE),
    file!("/page/icon.svg", "icon.svg", "image/svg+xml"),
    file!("/page/theme.js", "theme.js", JAVASCRIPT),
    file!("/page/main.js", "main.js", JAVASCRIPT),
    file!("/page/dom.js", "dom.js", JAVASCRIPT),
    file!("/page/api.js", "api.js", JAVASCRIPT),
    file!("/page/actions.js", "actions.js", JAVASCRIPT),
    file!("/page/race.js", "race.js", JAVASCRIPT),
    file!("/page/destinations.js", "destinations.js", JAVASCRIPT),
    file!("/page/steering.js", "steering.js", JAVASCRIPT),
    file!("/page/messages.js", "messages.js", JAVASCRIPT),
    file!("/page/past.js", "past.js", JAVASCRIPT),
    file!("/page/storm.js", "storm.js", JAVASCRIPT),
    file!("/page/stragglers.js", "stragglers.js", JAVASCRIPT),
    file!("/page/explain.js", "explain.js", JAVASCRIPT),
    file!("/page/configuration.js", "configuration.js", JAVASCRIPT),
    file!("/page/cluster.js", "cluster.js", JAVASCRIPT),
    file!("/page/uplot.js", "vendor/uplot.js", JAVASCRIPT),
    file!("/page/uplot.css", "vendor/uplot.css", STYLE),
    file!("/page/uplot.LICENSE", "vendor/uplot.LICENSE", "text/plain; charset=utf-8"),
];

/// A file, ready to be sent.
struct Asset {
    file: &'static File,
    gzip: Bytes,
    /// Changes with the content.
    tag: HeaderValue,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| FILES.iter().map(prepare).collect());

fn prepare(file: &'static File) -> Asset {
    let mut sum = Crc::new();
    sum.update(file.content);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let gzip = encoder.write_all(file.content).and_then(|()| encoder.finish()).unwrap_or_default();
    let tag = format!("\"{:08x}-{}\"", sum.sum(), file.content.len());
    Asset { file, gzip: gzip.into(), tag: HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\"")) }
}

/// Returns the file at a path; `None` if there is none, or it is not asked for by GET or HEAD.
pub(super) fn find_asset(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Content>> {
    if method != Method::GET && method != Method::HEAD {
        return None;
    }
    let asset = ASSETS.iter().find(|asset| asset.file.path == path)?;
    let has = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.split(';').next().unwrap_or_default().trim() == wanted)
    };
    let tag = asset.tag.to_str().unwrap_or_default();
    let mut found = if has(header::IF_NONE_MATCH, tag) {
        let mut response = Response::new(Content::Whole(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        add_usual(response.headers_mut());
        response
    } else if has(header::ACCEPT_ENCODING, "gzip") && !asset.gzip.is_empty() {
        let mut response = response(StatusCode::OK, asset.file.media_type, Content::Whole(asset.gzip.clone()));
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        response(StatusCode::OK, asset.file.media_type, Content::Whole(Bytes::from_static(asset.file.content)))
    };
    let headers = found.headers_mut();
    headers.insert(header::ETAG, asset.tag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    // A browser asks each time whether its copy is the present one: an update of the server counts at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    fn get(path: &str, fields: &[(header::HeaderName, &str)]) -> Option<Response<Content>> {
        let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        find_asset(&Method::GET, path, &fields.collect())
    }

    fn body(response: Response<Content>) -> Bytes {
        match response.into_body() {
            Content::Whole(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_file_is_there_plain_compressed_and_known_again() {
        for file in FILES {
            let plain = get(file.path, &[]).unwrap();
            let tag = plain.headers()[header::ETAG].to_str().unwrap().to_owned();
            assert_eq!(body(plain), file.content);
            let packed = get(file.path, &[(header::ACCEPT_ENCODING, "br, gzip;q=0.5")]).unwrap();
            assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
            let mut unpacked = Vec::new();
            GzDecoder::new(&body(packed)[..]).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, file.content, "{}", file.path);
            let again = get(file.path, &[(header::IF_NONE_MATCH, &format!("\"x\", {tag}"))]).unwrap();
            assert_eq!((again.status(), body(again).len()), (StatusCode::NOT_MODIFIED, 0));
            assert!(get(file.path, &[(header::IF_NONE_MATCH, "\"x\"")]).unwrap().status() == StatusCode::OK);
        }
        assert!(get("/page/none.js", &[]).is_none());
        assert!(find_asset(&Method::POST, "/", &HeaderMap::new()).is_none());
    }

    /// Files name each other, nothing from elsewhere is loaded, and no text becomes HTML.
    #[test]
    fn the_page_needs_nothing_else() {
        for file in FILES.iter().filter(|file| !file.path.contains("uplot")) {
            let text = std::str::from_utf8(file.content).unwrap();
            for banned in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!text.contains(banned), "{}: {banned}", file.path);
            }
            let elsewhere = text.split("http").skip(1).find(|rest| {
                (rest.starts_with("://") || rest.starts_with("s://")) && !rest.starts_with("://www.w3.org/2000/svg")
            });
            assert_eq!(elsewhere, None, "{}", file.path);
            let named = text.split(['"', '\'']).filter(|part| part.starts_with("/page/") || part.starts_with("./"));
            for name in named {
                let path = name.replacen("./", "/page/", 1);
                assert!(FILES.iter().any(|file| file.path == path), "{}: {name}", file.path);
            }
        }
    }
}
