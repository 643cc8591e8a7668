//! Any file as an image archive: images of which everything is there, or an error. Bytes after the first are the contents of
//! a tar file whose names the first chooses, or the file itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;

const NAMES: [&str; 4] = ["index.json", "manifest.json", "blobs/sha256/00", "layer.tar"];

fuzz_target!(|input: (bool, Vec<(u8, Vec<u8>)>)| {
    let (is_tar, files) = input;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    if is_tar {
        let mut tar = tar::Builder::new(file.as_file());
        for (name, content) in &files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            let name = NAMES[usize::from(*name) % NAMES.len()];
            tar.append_data(&mut header, name, content.as_slice()).expect("written");
        }
        tar.finish().expect("whole");
        drop(tar);
    } else {
        files.iter().for_each(|(_, content)| file.write_all(content).expect("written"));
    }
    let _ = kubelet::runtime::images::look(file.path());
});
