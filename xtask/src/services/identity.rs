use std::{fs, path::Path, process::Command};

use nix::unistd::Pid;

/// When a process began, which tells it from a later one with the same id.
///
/// `None` once it has ended, also while nobody has waited for it. Unlike its
/// command line, the time stays when a script turns into the program that it
/// is for.
pub(super) fn birth(pid: Pid) -> Option<String> {
    if !Path::new("/proc/self/stat").exists() {
        let output = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output();
        let started = String::from_utf8(output.ok()?.stdout).ok()?.trim().to_owned();
        return (!started.is_empty()).then_some(started);
    }
    from_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads the state (the third field) and the start time (the twenty-second) of
/// `/proc/<pid>/stat`, see proc(5).
fn from_stat(stat: &str) -> Option<String> {
    // The second field is the program's name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| started.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::unistd::Pid;

    use super::{birth, from_stat};

    #[test]
    fn the_start_time_is_found_behind_any_program_name() {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(from_stat(&format!("7 (a) S) S {fields}")), Some("4711".to_owned()));
        assert_eq!(from_stat(&format!("7 (sleep) Z {fields}")), None);
        assert_eq!(from_stat("7 (sleep) S 1"), None);
    }

    #[test]
    fn a_process_that_ended_has_no_birth_even_before_it_is_waited_for() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        let first = birth(pid);
        assert!(first.is_some());
        assert_eq!(birth(pid), first);
        child.kill().unwrap();
        // It is not waited for yet: a zombie.
        while birth(pid).is_some() {
            std::hint::spin_loop();
        }
        child.wait().unwrap();
        assert_eq!(birth(pid), None);
    }
}
