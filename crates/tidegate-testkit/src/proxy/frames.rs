use super::Wire;

// Longer messages than that are none: whoever sends such a length speaks
// another protocol. PostgreSQL takes no longer first message.
const LONGEST: usize = 1 << 30;
const LONGEST_FIRST: usize = 10_000;

// Requests before the first message of PostgreSQL: for TLS, and for GSSAPI.
// They look like it, and are answered with one byte.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// Cuts what a client sends into messages.
pub(super) struct Frames {
    wire: Wire,
    // Before the first message of PostgreSQL, which has another form.
    starting: bool,
    bytes: Vec<u8>,
}

// ===== impl Frames =====

impl Frames {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, starting: true, bytes: Vec::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message that is complete.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        let length = match self.length() {
            Ok(length) => length?,
            Err(Unreadable) => {
                self.wire = Wire::Raw;
                self.bytes.len()
            }
        };
        if self.bytes.len() < length {
            return None;
        }
        let rest = self.bytes.split_off(length);
        let message = std::mem::replace(&mut self.bytes, rest);
        self.starting &= is_request_for_encryption(&message);
        Some(message)
    }

    /// The length of the first message, if it is there.
    fn length(&self) -> Result<Option<usize>, Unreadable> {
        match self.wire {
            Wire::Raw => Ok(Some(self.bytes.len())),
            Wire::Kafka => Ok(length_at(&self.bytes, 0, LONGEST)?.map(|length| length + 4)),
            Wire::Postgres if self.starting => length_at(&self.bytes, 0, LONGEST_FIRST),
            Wire::Postgres => Ok(length_at(&self.bytes, 1, LONGEST)?.map(|length| length + 1)),
        }
    }
}

/// What is sent is of another protocol, or encrypted.
struct Unreadable;

fn length_at(bytes: &[u8], at: usize, longest: usize) -> Result<Option<usize>, Unreadable> {
    let Some(length) = bytes.get(at..at + 4) else { return Ok(None) };
    let length = <[u8; 4]>::try_from(length).map(u32::from_be_bytes).map_err(|_| Unreadable)?;
    let length = usize::try_from(length).map_err(|_| Unreadable)?;
    if (4..=longest).contains(&length) { Ok(Some(length)) } else { Err(Unreadable) }
}

fn is_request_for_encryption(message: &[u8]) -> bool {
    let code = message.get(4..8).and_then(|code| <[u8; 4]>::try_from(code).ok());
    message.len() == 8
        && code.is_some_and(|code| [SSL_REQUEST, GSS_REQUEST].contains(&u32::from_be_bytes(code)))
}

#[cfg(test)]
mod tests {
    use super::{Frames, Wire};

    /// However it arrives, it is cut at the same places.
    #[track_caller]
    fn check(wire: Wire, messages: &[&[u8]]) {
        let all = messages.concat();
        for size in 1..=all.len() {
            let mut frames = Frames::new(wire);
            let mut cut = Vec::new();
            for chunk in all.chunks(size) {
                frames.push(chunk);
                cut.extend(std::iter::from_fn(|| frames.next()));
            }
            assert_eq!(cut, messages, "in chunks of {size}");
        }
    }

    #[test]
    fn messages_of_kafka_have_a_length() {
        check(Wire::Kafka, &[b"\0\0\0\x04abcd", b"\0\0\0\x06abcdef"]);
    }

    #[test]
    fn messages_of_postgresql_have_a_letter_but_for_the_first() {
        let start: &[u8] = b"\0\0\0\x09\0\x03\0\0\0";
        check(Wire::Postgres, &[start, b"Q\0\0\0\x06B\0", b"X\0\0\0\x04"]);
        let ssl: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
        check(Wire::Postgres, &[ssl, start, b"Q\0\0\0\x06B\0"]);
    }

    #[test]
    fn what_cannot_be_read_passes_as_it_comes() {
        let mut frames = Frames::new(Wire::Postgres);
        frames.push(b"\0\0\0\x08\x04\xd2\x16\x2f");
        assert_eq!(frames.next().map(|it| it.len()), Some(8));
        // A handshake of TLS.
        frames.push(b"\x16\x03\x01\x00\xf8\x01");
        assert_eq!(frames.next().map(|it| it.len()), Some(6));
        frames.push(b"abc");
        assert_eq!(frames.next().map(|it| it.len()), Some(3));
        assert_eq!(frames.next(), None);
    }
}
