//! The page in a real browser: Chromium without a window.
//!
//! `FENCEPOST_PAGES=dir` keeps the screenshots, for those who want to look themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fencepost_conformance::report::html;
use serde_json::Value;

use crate::files::python;
use crate::made_up::setting;
use crate::page::failing;

/// Measures the page from inside and leaves the figures in an element. Only the tested copy has it; the page itself has no script.
const MEASURE: &str = r##"<pre id="measured"></pre><script>
const box = (element) => { const b = element.getBoundingClientRect(); return { l: b.left, t: b.top, r: b.right, b: b.bottom }; };
const inside = (a, b, slack) => a.l >= b.l - slack && a.r <= b.r + slack && a.t >= b.t - slack && a.b <= b.b + slack;
const meet = (a, b) => a.l < b.r - 1 && b.l < a.r - 1 && a.t < b.b - 1 && b.t < a.b - 1;
const pairs = (list) => { let count = 0; list.forEach((a, i) => list.slice(i + 1).forEach((b) => { if (meet(a, b)) count += 1; })); return count; };
const timelines = [...document.querySelectorAll("svg.timeline")].map((svg) => {
  const frame = box(svg), operations = [...svg.querySelectorAll("g.op")];
  const bars = operations.map((g) => box(g.querySelector(".bar")));
  return {
    bars: bars.length,
    empty: bars.filter((bar) => bar.r - bar.l < 40 || bar.b - bar.t < 12).length,
    outside: [...svg.querySelectorAll("text, .bar, .open")].filter((part) => !inside(box(part), frame, 2)).map((part) => part.outerHTML.slice(0, 160)),
    spilled: operations.flatMap((g) => [...g.querySelectorAll("text")].filter((text) => !inside(box(text), box(g.querySelector(".bar")), 3)).map((text) => text.textContent)),
    overlapping: pairs(bars),
    times: pairs([...svg.querySelectorAll("text.time")].map(box)),
    marks: svg.querySelectorAll("line.mark").length,
    open: svg.querySelectorAll("path.open").length,
    needed: svg.querySelectorAll(".bar.needed").length,
    fills: [...new Set([...svg.querySelectorAll(".bar")].map((bar) => getComputedStyle(bar).fill))],
    title: svg.querySelector("title").textContent,
    desc: svg.querySelector("desc").textContent,
  };
});
const wide = [...document.querySelectorAll("body *")].filter((part) => !part.closest(".scroll, svg.patterns") && box(part).r > innerWidth + 1);
document.getElementById("measured").textContent = JSON.stringify({
  width: innerWidth, page: document.documentElement.scrollWidth, wide: wide.map((part) => part.outerHTML.slice(0, 120)),
  background: getComputedStyle(document.body).backgroundColor, timelines,
});
</script>"##;

/// Decodes a PNG and counts its colours: prints width, height, the number of colours, and of the colours asked for the pixels.
const PIXELS: &str = r#"
import json, struct, sys, zlib
path, *wanted = sys.stdin.read().split()
data = open(path, "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
at, packed = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    body = data[at + 8:at + 8 + size]
    if kind == b"IHDR": width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
    if kind == b"IDAT": packed += body
    at += 12 + size
assert depth == 8 and colour in (2, 6) and not interlaced
step = 3 if colour == 2 else 4
raw, stride, before, counts = zlib.decompress(packed), width * step, bytearray(width * step), {}
for row in range(height):
    kind, line = raw[row * (stride + 1)], bytearray(raw[row * (stride + 1) + 1:(row + 1) * (stride + 1)])
    if kind == 2: line = bytearray((a + b) & 255 for a, b in zip(line, before))
    elif kind:
        for i in range(stride):
            left, up = line[i - step] if i >= step else 0, before[i]
            if kind == 1: line[i] = (line[i] + left) & 255
            elif kind == 3: line[i] = (line[i] + (left + up) // 2) & 255
            else:
                corner = before[i - step] if i >= step else 0
                near = left + up - corner
                a, b, c = abs(near - left), abs(near - up), abs(near - corner)
                line[i] = (line[i] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
    for i in range(0, stride, step):
        pixel = bytes(line[i:i + 3])
        counts[pixel] = counts.get(pixel, 0) + 1
    before = line
print(json.dumps({"width": width, "height": height, "colours": len(counts), "found": [counts.get(bytes.fromhex(one), 0) for one in wanted]}))
"#;

struct Browser {
    dir: tempfile::TempDir,
}

impl Browser {
    fn new() -> Browser {
        Browser { dir: tempfile::tempdir().unwrap() }
    }

    /// Runs Chromium to its end.
    fn run(&self, page: &Path, arguments: &[String]) -> String {
        let profile = self.dir.path().join("profile");
        let output = Command::new("timeout")
            .args([
                "--kill-after=5",
                "90",
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(arguments)
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .output()
            .expect("chromium is installed (scripts/setup test)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "chromium: {}\n{said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn page(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A page that shows another in a frame of this width: windows narrower than 500 pixels are not to be had.
    fn framed(&self, name: &str, width: u32, height: u32) -> PathBuf {
        let frame = format!(
            "<!DOCTYPE html><body style=\"margin:0\"><iframe src=\"{name}\" style=\"width:{width}px;height:{height}px;border:0;\
             display:block\"></iframe><pre id=\"figures\"></pre><script>onload = () => {{ const measured = \
             frames[0].document.getElementById('measured'); if (measured) document.getElementById('figures').textContent = \
             measured.textContent; }};</script></body>"
        );
        self.page(&format!("{width}-{name}"), &frame)
    }

    fn screenshot(&self, page: &Path, name: &str, size: (u32, u32), scheme: &str, wanted: &[&str]) -> Value {
        let keep = std::env::var_os("FENCEPOST_PAGES").map(PathBuf::from);
        let png = keep.unwrap_or_else(|| self.dir.path().to_owned()).join(name);
        let arguments = [
            format!("--screenshot={}", png.display()),
            format!("--window-size={},{}", size.0.max(500), size.1),
            scheme.to_owned(),
        ];
        self.run(page, &arguments);
        let read = python(PIXELS, &format!("{} {}", png.display(), wanted.join(" ")));
        serde_json::from_str(&read).unwrap()
    }
}

const LIGHT: &str = "--blink-settings=preferredColorScheme=1";
const DARK: &str = "--blink-settings=preferredColorScheme=0";

#[test]
fn the_timeline_is_drawn_and_nothing_overflows() {
    let browser = Browser::new();
    let page = html(&failing(), &setting());
    // The policy that forbids scripts goes from the copy that is measured.
    let policy = page.lines().find(|line| line.contains("Content-Security-Policy")).unwrap();
    let measured = page.replace(policy, "").replace("</body>", &format!("{MEASURE}</body>"));
    browser.page("measured.html", &measured);
    for (width, scheme, ground) in
        [(1300, LIGHT, "rgb(246, 247, 249)"), (800, LIGHT, "rgb(246, 247, 249)"), (360, DARK, "rgb(15, 19, 24)")]
    {
        let path = browser.framed("measured.html", width, 900);
        let dom = browser.run(&path, &["--dump-dom".to_owned(), scheme.to_owned()]);
        let figures = dom.split("<pre id=\"figures\">").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap();
        let figures = figures.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let figures: Value = serde_json::from_str(&figures).unwrap();
        assert_eq!(figures["width"], width, "the window has the size that is tested");
        assert_eq!(figures["page"], width, "the page is as wide as the window: {figures}");
        assert_eq!(figures["wide"], serde_json::json!([]), "nothing sticks out");
        assert_eq!(figures["background"], ground, "the scheme is followed");
        let timelines = figures["timelines"].as_array().unwrap();
        let of = |name: &str| timelines.iter().map(|timeline| timeline[name].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(of("bars"), [4, 24, 12]);
        assert_eq!(of("needed"), [2, 3, 3]);
        assert_eq!(of("marks"), [0, 24, 4]);
        assert_eq!(of("open"), [0, 0, 2], "outcomes that stay open");
        assert_eq!(of("empty"), [0, 0, 0]);
        assert_eq!(of("overlapping"), [0, 0, 0], "no bar hides another");
        assert_eq!(of("times"), [0, 0, 0], "no time is written over another");
        for timeline in timelines {
            assert_eq!(timeline["outside"], serde_json::json!([]), "everything is inside the drawing");
            assert_eq!(timeline["spilled"], serde_json::json!([]), "every text fits its bar");
            assert!(timeline["title"].as_str().unwrap().starts_with("Timeline of "));
            assert!(timeline["desc"].as_str().unwrap().contains("Highlighted: #"));
        }
        assert!(
            timelines[2]["fills"].as_array().unwrap().len() >= 5,
            "answers look different: {}",
            timelines[2]["fills"]
        );
    }
}

#[test]
fn a_screenshot_has_the_colours_of_what_was_drawn() {
    let browser = Browser::new();
    browser.page("report.html", &html(&failing(), &setting()));
    for (name, size, scheme, ground, needed, accepted) in [
        ("light.png", (1300, 6000), LIGHT, "f6f7f9", "5b2bbd", "dcf3e2"),
        ("dark.png", (1300, 6000), DARK, "0f1318", "c4a5ff", "14331f"),
        ("narrow-light.png", (360, 9000), LIGHT, "f6f7f9", "5b2bbd", "dcf3e2"),
        ("narrow-dark.png", (360, 9000), DARK, "0f1318", "c4a5ff", "14331f"),
    ] {
        let path = browser.framed("report.html", size.0, size.1);
        let read = browser.screenshot(&path, name, size, scheme, &[ground, needed, accepted]);
        assert_eq!((&read["width"], &read["height"]), (&size.0.max(500).into(), &size.1.into()), "{name}");
        let found: Vec<u64> = read["found"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
        assert!(found[0] > 100_000, "{name}: the ground of the page: {read}");
        assert!(found[1] > 2_000, "{name}: frames of the counterexample: {read}");
        assert!(found[2] > 10_000, "{name}: bars of accepted operations: {read}");
        assert!(read["colours"].as_u64().unwrap() > 50, "{name}: {read}");
    }
}
