//! The report page in a real browser: headless Chromium.
//!
//! `FENCEPOST_PAGES=dir` keeps the screenshots for inspection.

use std::path::{Path, PathBuf};

use fencepost_conformance::cases;
use fencepost_conformance::report::html;
use fencepost_conformance::verdict::{CaseResult, Level, Status};
use fencepost_harness::chromium;
use serde_json::Value;

use crate::report::made_up::{result, results, rich_history, setting};
use crate::report::page::failing;

/// Measures the page from inside and leaves the figures in an element. Only the tested copy contains this script; the
/// page itself has none.
const MEASURE: &str = r##"<pre id="measured"></pre><script>
onerror = (message, _, line) => { document.getElementById("measured").textContent = JSON.stringify({ error: message, line }); };
const box = (element) => { const b = element.getBoundingClientRect(); return { l: b.left, t: b.top, r: b.right, b: b.bottom }; };
const inside = (a, b, slack) => a.l >= b.l - slack && a.r <= b.r + slack && a.t >= b.t - slack && a.b <= b.b + slack;
const meet = (a, b) => a.l < b.r - 1 && b.l < a.r - 1 && a.t < b.b - 1 && b.t < a.b - 1;
const pairs = (list) => { let count = 0; list.forEach((a, i) => list.slice(i + 1).forEach((b) => { if (meet(a, b)) count += 1; })); return count; };
const timelines = [...document.querySelectorAll("svg.timeline")].map((svg) => {
  const frame = box(svg), operations = [...svg.querySelectorAll("g.op")];
  const bars = operations.map((g) => box(g.querySelector(".bar")));
  const spills = (text) => !inside(box(text), box(svg.querySelector(`g.op[data-id="${text.parentNode.dataset.of}"] .bar`)), 3);
  return {
    cut: frame.r > box(svg.closest(".scroll")).r + 1,
    bars: bars.length,
    empty: bars.filter((bar) => bar.r - bar.l < 40 || bar.b - bar.t < 12).length,
    outside: [...svg.querySelectorAll("text, .bar, .open")].filter((part) => !inside(box(part), frame, 2)).map((part) => part.outerHTML.slice(0, 160)),
    spilled: [...svg.querySelectorAll("g.words text")].filter(spills).map((text) => text.textContent),
    words: svg.querySelectorAll("g.words text").length,
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
const chips = [...document.querySelectorAll(".matrix a")].map((chip) => { const b = box(chip); return Math.round(b.b - b.t); });
const matrix = document.querySelector(".matrix");
document.getElementById("measured").textContent = JSON.stringify({
  chips: chips.length, tallest: Math.max(...chips), matrix: box(matrix).r <= box(matrix.closest(".scroll")).r + 1, width: innerWidth, page: document.documentElement.scrollWidth, wide: wide.map((part) => part.outerHTML.slice(0, 120)),
  background: getComputedStyle(document.body).backgroundColor, timelines,
});
</script>"##;

/// At common window sizes, nothing is split and nothing is cut off.
#[test]
fn a_window_of_usual_width_shows_all_chips_and_lanes() {
    let browser = Browser::new();
    let every: Vec<_> = cases::all().map(|case| (case.id, case.level, Status::Pass)).collect();
    let mut results = results(Level::L3, &every);
    let short = result("A02", Level::L1, Status::Fail);
    let rich = CaseResult { history: Some(rich_history()), ..result("R03", Level::L3, Status::Fail) };
    for broken in [short, rich] {
        let place = results.cases.iter().position(|result| result.case.id == broken.case.id).unwrap();
        results.cases[place] = broken;
    }
    let page = html(&results, &setting());
    assert!(page.contains("cas v-1→v-4"), "a cas says what it expects");
    let policy = page.lines().find(|line| line.contains("Content-Security-Policy")).unwrap();
    let measured = page.replace(policy, "").replace("</body>", &format!("{MEASURE}</body>"));
    browser.page("usual.html", &measured);
    for width in [1000, 1100, 1200, 1300] {
        let figures = browser.figures(&browser.framed("usual.html", width, 900), LIGHT);
        assert_eq!(figures["matrix"], true, "{width}: all cases are seen: {figures}");
        assert!(figures["chips"].as_u64().unwrap() > 60, "{figures}");
        assert!(figures["tallest"].as_u64().unwrap() < 32, "{width}: a chip has one line: {figures}");
        for timeline in figures["timelines"].as_array().unwrap() {
            assert_eq!(timeline["cut"], false, "{width}: {}", timeline["title"]);
            assert_eq!(timeline["spilled"], serde_json::json!([]), "{width}: every text fits its bar");
        }
    }
}

/// Reports the size of a picture, the number of its colours, and the pixels of each requested colour.
const COUNT: &str = r##"<!DOCTYPE html><img id="picture" src="PICTURE"><pre id="figures"></pre><script>
onload = () => {
  const picture = document.getElementById("picture"), canvas = document.createElement("canvas");
  const [width, height] = [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
  const paint = canvas.getContext("2d");
  paint.drawImage(picture, 0, 0);
  const counts = new Map();
  for (const pixel of new Uint32Array(paint.getImageData(0, 0, width, height).data.buffer)) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const key = (colour) => (0xff000000 | parseInt(colour.match(/../g).reverse().join(""), 16)) >>> 0;
  const found = WANTED.map((colour) => counts.get(key(colour)) || 0);
  document.getElementById("figures").textContent = JSON.stringify({ width, height, colours: counts.size, found });
};
</script>"##;

struct Browser {
    dir: PathBuf,
    profile: tempfile::TempDir,
}

impl Browser {
    fn new() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let kept = std::env::var_os("FENCEPOST_PAGES").map(PathBuf::from);
        Browser { dir: kept.unwrap_or_else(|| profile.path().to_owned()), profile }
    }

    /// Runs Chromium to its end.
    fn run(&self, page: &Path, arguments: &[&str]) -> String {
        let arguments = [&["--hide-scrollbars", "--allow-file-access-from-files"][..], arguments].concat();
        let page = format!("file://{}", page.display());
        chromium::open(&self.profile.path().join("profile"), &arguments, &page)
    }

    fn page(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A page that shows another in a frame of this width: Chromium has no windows narrower than 500 pixels.
    fn framed(&self, name: &str, width: u32, height: u32) -> PathBuf {
        let frame = format!(
            "<!DOCTYPE html><body style=\"margin:0\"><iframe src=\"{name}\" style=\"width:{width}px;height:{height}px;border:0;\
             display:block\"></iframe><pre id=\"figures\"></pre><script>onload = () => {{ const measured = \
             frames[0].document.getElementById('measured'); if (measured) document.getElementById('figures').textContent = \
             measured.textContent; }};</script></body>"
        );
        self.page(&format!("{width}-{name}"), &frame)
    }

    /// The content of `figures` after the script of a page has run.
    fn figures(&self, page: &Path, scheme: &str) -> Value {
        // Without a time budget, the page is dumped before its script has seen it loaded.
        let dom = self.run(page, &["--dump-dom", "--virtual-time-budget=10000", scheme]);
        let text = dom.split("<pre id=\"figures\">").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap();
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {dom}"))
    }

    fn screenshot(&self, page: &Path, name: &str, size: (u32, u32), scheme: &str, wanted: &[&str]) -> Value {
        let png = self.dir.join(name);
        let window = format!("--window-size={},{}", size.0.max(500), size.1);
        self.run(page, &[&format!("--screenshot={}", png.display()), &window, scheme]);
        let wanted = serde_json::to_string(wanted).unwrap();
        let count = COUNT.replace("PICTURE", name).replace("WANTED", &wanted);
        self.figures(&self.page(&format!("{name}.html"), &count), LIGHT)
    }
}

const LIGHT: &str = "--blink-settings=preferredColorScheme=1";
const DARK: &str = "--blink-settings=preferredColorScheme=0";

#[test]
fn the_timeline_is_drawn_and_nothing_overflows() {
    let browser = Browser::new();
    let page = html(&failing(), &setting());
    // The measured copy must not have the policy that forbids scripts.
    let policy = page.lines().find(|line| line.contains("Content-Security-Policy")).unwrap();
    let measured = page.replace(policy, "").replace("</body>", &format!("{MEASURE}</body>"));
    browser.page("measured.html", &measured);
    for (width, scheme, ground) in
        [(1300, LIGHT, "rgb(246, 247, 249)"), (800, LIGHT, "rgb(246, 247, 249)"), (360, DARK, "rgb(15, 19, 24)")]
    {
        let path = browser.framed("measured.html", width, 900);
        let figures = browser.figures(&path, scheme);
        assert_eq!(figures["width"], width, "the window has the size that is tested");
        assert_eq!(figures["page"], width, "the page is as wide as the window: {figures}");
        assert_eq!(figures["wide"], serde_json::json!([]), "nothing sticks out");
        assert_eq!(figures["background"], ground, "the scheme is followed");
        let timelines = figures["timelines"].as_array().unwrap();
        let of = |name: &str| timelines.iter().map(|timeline| timeline[name].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(of("bars"), [4, 24, 14]);
        assert_eq!(of("needed"), [2, 3, 3]);
        assert_eq!(of("marks"), [0, 10, 5]);
        assert_eq!(of("open"), [0, 0, 2], "outcomes that stay open");
        assert_eq!(of("empty"), [0, 0, 0]);
        assert!(of("words").iter().zip(of("bars")).all(|(words, bars)| *words >= 2 * bars), "every bar has its words");
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
