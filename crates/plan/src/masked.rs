//! Hides secrets in what a diagnostic quotes: somebody wrote one where the plan wants its file.

use std::borrow::Cow;

/// How the text of a secret begins, by the format that it is of: NVMe's keys for DH-HMAC-CHAP.
const SECRETS: [&str; 1] = ["DHHC-1:"];

/// Fewer are no secret, but how one is written.
const SECRET_BYTES_MIN: usize = 20;

/// `text` with an asterisk for each character of a secret that follows its beginning.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    if !SECRETS.iter().any(|head| text.contains(head)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, head)) = SECRETS.iter().filter_map(|head| Some((rest.find(head)?, *head))).min() {
        let (before, secret) = rest.split_at(at + head.len());
        shown += before;
        let is_secret = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=:-_.".contains(byte);
        let len = secret.bytes().take_while(is_secret).count();
        shown += &if len < SECRET_BYTES_MIN { secret[..len].to_owned() } else { "*".repeat(len) };
        rest = &secret[len..];
    }
    Cow::Owned(shown + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_moves() {
        let text = "a = \"DHHC-1:01:AQgPFh+/kzQ5QE9OVVx==:\" # ä DHHC-1:, DHHC-1:NN:BASE64:";
        let shown = masked(text);
        assert_eq!(shown, "a = \"DHHC-1:*************************\" # ä DHHC-1:, DHHC-1:NN:BASE64:");
        assert_eq!(shown.len(), text.len());
        assert_eq!(masked("DHHC-2:01:x"), "DHHC-2:01:x");
    }
}
