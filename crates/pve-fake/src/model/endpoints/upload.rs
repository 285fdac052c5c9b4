//! `POST …/upload`: taken by the node that is talked to, whose task it becomes.

use super::post;
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may, must};
use crate::model::work::{UploadWork, Work};

pub(super) const ROUTES: &[Route] = &[post(
    "/nodes/{node}/storage/{storage}/upload",
    Need::All("/storage/{storage}", &["Datastore.AllocateTemplate"]),
    &[
        must("content", Kind::OneOf(&["iso", "vztmpl", "import"])),
        must("filename", Kind::Short(255)),
        may("checksum", Kind::Text),
        may(
            "checksum-algorithm",
            Kind::OneOf(&["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]),
        ),
        may("tmpfilename", Kind::Text),
    ],
    upload,
)];

fn upload(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let (node, storage) = (call.node().to_owned(), call.storage().to_owned());
    let content = call.params.text("content").unwrap_or_default();
    let Some(file) = &call.upload else {
        return Err(Refusal::die("missing temporary file name"));
    };
    let known = model.usable_storage(&storage, &node)?;
    if !known.has_files() {
        return Err(Refusal::die(format!("can't upload to storage type '{}'", known.kind)));
    }
    if !known.takes(content) {
        let text = format!("storage '{storage}' does not support '{content}' content");
        return Err(Refusal::die(text));
    }
    let name = normal_name(&file.file_name);
    let lower = name.to_ascii_lowercase();
    let good = match content {
        "iso" => ends_with(&lower, &["iso", "img"]),
        "vztmpl" => ends_with(&lower, &["gz", "xz", "zst"]),
        _ => ends_with(&lower, &["ova", "qcow2", "raw", "vmdk"]),
    };
    if !good {
        return Err(Refusal::param("filename", "wrong file extension"));
    }
    let content = match content {
        "iso" => "iso",
        "vztmpl" => "vztmpl",
        _ => "import",
    };
    let volid = format!("{storage}:{content}/{name}");
    let work = UploadWork { node, storage, content, volid, data: file.data.clone() };
    let local = model.local.clone();
    Ok(Reply::task(model.submit(&local, "imgcopy", "", &call.caller, Work::Upload(work))))
}

fn ends_with(name: &str, extensions: &[&str]) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| extensions.contains(&extension))
}

/// The file's own name, with anything unusual made an underscore.
fn normal_name(sent: &str) -> String {
    let name = sent.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}
