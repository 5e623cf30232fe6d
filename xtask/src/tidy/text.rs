//! Words that no file of the project may hold.

use std::path::Path;

use super::Finding;

/// Folders at the root of a machine that are somebody's own. They are written
/// without their slashes here, so that this file passes.
const OWN: &[&str] = &["home", "root", "Users", "work"];

/// What says that something is not finished.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// What Git leaves where a merge needs a person. They are written without their
/// last characters here, so that this file passes.
const UNMERGED: &[&str] = &[concat!("<<<<<<", "< "), concat!(">>>>>>", "> ")];

/// Looks for paths of one machine, and for what was left to be done.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.file_name().is_some_and(|name| name == "Cargo.lock") {
        return findings;
    }
    for (line, number) in text.lines().zip(1..) {
        let place = format!("{}:{number}", file.display());
        if let Some(folder) = OWN.iter().find(|folder| holds_path(line, folder)) {
            findings.push(format!("{place}: a path of one machine, below `{folder}`"));
        }
        if UNMERGED.iter().any(|marker| line.starts_with(marker)) {
            findings.push(format!("{place}: two versions that were not merged"));
        }
        let mut words = line.split(|character: char| !character.is_alphanumeric());
        if let Some(word) = words.find(|word| UNFINISHED.contains(word)) {
            findings.push(format!("{place}: `{word}`: finish it, or write down why it is so"));
        }
    }
    findings
}

/// Whether `line` names something below a folder at the root.
fn holds_path(line: &str, folder: &str) -> bool {
    line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
        // Behind anything of a path, or of an address, it is not at the root.
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "/._-~}*)".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check;

    #[track_caller]
    fn finds(line: &str, findings: usize) {
        assert_eq!(check(Path::new("file"), line).len(), findings, "in {line}");
    }

    #[test]
    fn what_was_not_merged_is_found() {
        finds(concat!("<<<<<<", "< HEAD"), 1);
        finds(concat!(">>>>>>", "> topic"), 1);
        finds("=======", 0);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        finds(concat!("/ho", "me/me/tidegate"), 1);
        finds(concat!("see \"/wo", "rk/notes.md\""), 1);
        finds(concat!("file:///ro", "ot/.cargo"), 0);
        finds("https://example.invalid/home/page", 0);
        finds("src/work/queue.rs and ./work/ and $DIR/work/", 0);
        finds("/tmp/data /dev/shm", 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        finds(concat!("// FIX", "ME: later"), 1);
        finds(concat!("(TO", "DO)"), 1);
        finds("tempfile-XXXXXX, todos", 0);
    }
}
