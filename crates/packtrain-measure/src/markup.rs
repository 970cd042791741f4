//! A writer of HTML, SVG and XML that escapes all text.

/// Attributes of an element: names are the program's own, values may come from anywhere.
pub type Attributes<'a> = &'a [(&'static str, &'a str)];

/// Markup that is being written.
#[derive(Debug, Default)]
pub struct Markup(String);

impl Markup {
    /// An HTML page with the style sheet `style`, without anything to load. `body` writes its body.
    pub fn page(title: &str, style: &'static str, body: impl FnOnce(&mut Self)) -> String {
        let mut m = Self::default();
        m.own("<!DOCTYPE html>\n");
        m.element("html", &[("lang", "en")], |m| {
            m.element("head", &[], |m| {
                m.own("<meta charset=\"utf-8\">");
                m.own("<meta name=\"viewport\" content=\"width=device-width\">");
                m.leaf("title", &[], title);
                m.element("style", &[], |m| m.own(style));
            });
            m.element("body", &[], body);
        });
        m.own("\n");
        m.finish()
    }

    /// An element, and in it what `inner` writes.
    pub fn element(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        inner: impl FnOnce(&mut Self),
    ) {
        self.open(tag, attributes);
        self.0.push('>');
        inner(self);
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
    }

    /// An element with text in it.
    pub fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.element(tag, attributes, |m| m.text(text));
    }

    /// An element without content.
    pub fn empty(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.open(tag, attributes);
        self.0.push_str("/>");
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // XML 1.0 section 2.2, and HTML, have no other control characters.
                '\t' | '\n' | '\r' => self.0.push(c),
                c if c.is_control() => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
    }

    /// Markup of the program's own, such as a style sheet.
    pub fn own(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// The markup.
    pub fn finish(self) -> String {
        self.0
    }

    fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            self.0.push(' ');
            self.0.push_str(name);
            self.0.push_str("=\"");
            self.text(value);
            self.0.push('"');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_text_is_escaped() {
        let mut m = Markup::default();
        let evil = "<b a='1' c=\"2\">&\u{1b}\n\u{b}";
        m.leaf("p", &[("title", evil)], evil);
        m.empty("br", &[]);
        let escaped = "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\u{fffd}\n\u{fffd}";
        assert_eq!(
            m.finish(),
            format!("<p title=\"{escaped}\">{escaped}</p><br/>")
        );
    }
}
