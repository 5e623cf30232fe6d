//! URLs without what must not be seen.

use std::fmt;

/// Shows a URL without its password and its parameters, which may hold one.
pub(crate) struct Redacted<'a>(pub(crate) &'a str);

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            // `sqlite::memory:` and `sqlite:file` name a file and nothing else;
            // of what is no URL, nothing is shown.
            let file = self.0.strip_prefix("sqlite:").map(path);
            return match file {
                Some(file) => write!(f, "sqlite:{file}"),
                None => f.write_str("***"),
            };
        };
        // By the last `@`, so that one in a password does not show its tail.
        match rest.rsplit_once('@') {
            Some((user, place)) => {
                let user = user.split([':', '/', '?']).next().unwrap_or_default();
                write!(f, "{scheme}://{user}:***@{}", path(place))
            }
            None => write!(f, "{scheme}://{}", path(rest)),
        }
    }
}

fn path(place: &str) -> &str {
    place.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Redacted;

    #[track_caller]
    fn check(url: &str, shown: &str) {
        assert_eq!(Redacted(url).to_string(), shown);
    }

    #[test]
    fn a_password_is_never_shown() {
        check("postgres://u:secret@h:5432/db?sslmode=require", "postgres://u:***@h:5432/db");
        check("postgres://u:sec@ret@h/db", "postgres://u:***@h/db");
        check("postgres://u:se?c/r#et@h/db", "postgres://u:***@h/db");
        check("postgres://h/db?user=u&password=secret", "postgres://h/db");
        check("postgres://h/db#secret", "postgres://h/db");
        check("host=h password=secret", "***");
        check("", "***");
    }

    #[test]
    fn what_holds_no_password_is_shown() {
        check("postgres://h/db", "postgres://h/db");
        check("sqlite:///var/lib/x.db?mode=rwc", "sqlite:///var/lib/x.db");
        check("sqlite::memory:", "sqlite::memory:");
    }
}
