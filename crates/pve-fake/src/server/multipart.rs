//! Multipart bodies as pveproxy's own parser takes them: the file part last, named `filename`,
//! its `Content-Disposition` first.

use bytes::Bytes;

use crate::model::{Params, Upload};

/// Fields and file, or the text of the refusal (a 500).
pub(super) fn parse(boundary: &str, body: &Bytes) -> Result<(Params, Option<Upload>), String> {
    let mut params = Params::default();
    let mut upload = None;
    let delimiter = format!("--{boundary}");
    let mut at = find(body, delimiter.as_bytes(), 0).ok_or("upload failed")?;
    loop {
        let start = at + delimiter.len();
        if body.get(start..start + 2) == Some(b"--") {
            return Ok((params, upload));
        }
        if upload.is_some() {
            return Err("upload failed".to_owned());
        }
        let head = find(body, b"\r\n\r\n", start).ok_or("upload failed")?;
        let next = format!("\r\n{delimiter}");
        let end = find(body, next.as_bytes(), head + 2).ok_or("upload failed")?;
        let headers = String::from_utf8_lossy(body.get(start + 2..head).unwrap_or_default());
        let first = headers.lines().next().unwrap_or_default();
        let disposition = first.strip_prefix("Content-Disposition: form-data; ");
        let disposition = disposition.ok_or("upload failed")?;
        let name = quoted(disposition, "name=").ok_or("upload failed")?;
        let data = body.slice((head + 4).min(end)..end);
        match quoted(disposition, "; filename=") {
            Some(file_name) if name == "filename" => {
                params.push("filename", file_name.clone());
                upload = Some(Upload { file_name, data });
            }
            Some(_) => {
                return Err(format!(
                    "wrong field name '{name}' for file upload, expected 'filename'"
                ));
            }
            None => params.push(&name, String::from_utf8_lossy(&data).into_owned()),
        }
        at = end + 2;
    }
}

fn find(body: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let rest = body.get(from..)?;
    rest.windows(wanted.len()).position(|window| window == wanted).map(|at| at + from)
}

fn quoted(text: &str, key: &str) -> Option<String> {
    let rest = text.split_once(key)?.1.strip_prefix('"')?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn body(parts: &[&str]) -> Bytes {
        let part = |part: &&str| format!("--B\r\nContent-Disposition: form-data; {part}\r\n");
        let text: String = parts.iter().map(part).collect();
        Bytes::from(format!("{text}--B--\r\n"))
    }

    #[test]
    fn a_file_with_its_content_kind_is_taken() {
        let body = body(&[
            "name=\"content\"\r\n\r\niso",
            "name=\"filename\"; filename=\"x.iso\"\r\nContent-Type: a/b\r\n\r\nDATA",
        ]);
        let (params, upload) = parse("B", &body).unwrap();
        assert_eq!(params.text("content"), Some("iso"));
        assert_eq!(upload.map(|file| file.data), Some(Bytes::from_static(b"DATA")));
    }

    #[test]
    fn the_file_comes_last_and_under_its_own_name() {
        let file = "name=\"filename\"; filename=\"x.iso\"\r\n\r\nDATA";
        let late = body(&[file, "name=\"content\"\r\n\r\niso"]);
        assert_eq!(parse("B", &late).unwrap_err(), "upload failed");
        let other = body(&["name=\"file\"; filename=\"x.iso\"\r\n\r\nDATA"]);
        let text = parse("B", &other).unwrap_err();
        assert_eq!(text, "wrong field name 'file' for file upload, expected 'filename'");
    }
}
