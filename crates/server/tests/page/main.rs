//! The status page in a real browser, during a real build.

mod browser;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use browser::Browser;
use protocol::Hello;
use serde_json::Value;
use support::{Builder, Rows, eventually, hello};

const ROWS: usize = 12_000;
const DIMS: u32 = 64;
/// A label that a hostile client might give to its build.
const LABEL: &str = "<img src=x onerror=\"document.title='broken'\">";

fn wanted(label: &str) -> Hello {
    let mut hello = hello(DIMS);
    hello.estimated_rows = ROWS as u64;
    label.clone_into(&mut hello.label);
    hello
}

/// Runs a build whose rows take `period` to arrive; returns when it ended.
fn build(builder: &Builder, label: &str, period: Duration) -> Instant {
    let rows = Rows::new(ROWS, DIMS);
    let mut client = builder.connect();
    client.hello(wanted(label));
    let parts = 60;
    let since = Instant::now();
    for part in 0..parts {
        let values = &rows.values[part * rows.values.len() / parts..(part + 1) * rows.values.len() / parts];
        client.rows(&Rows { dims: DIMS, values: values.to_vec() }, 1000);
        let due = period * (part as u32 + 1) / parts as u32;
        thread::sleep(due.saturating_sub(since.elapsed()));
    }
    client.end_of_rows(ROWS as u64);
    client.pages();
    Instant::now()
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("pictures")
}

fn number(value: &Value) -> f64 {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_f64()).unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn the_page_shows_a_build_from_its_beginning_to_its_end() {
    let builder = Builder::with(|config| config.listening.status_labels = true);
    let browser = Browser::start();
    browser.show_as(1000, "light");
    // The builder learns from the first build of a shape how long such builds take.
    build(&builder, "public.items_embedding_idx", Duration::ZERO);

    let (mut moments, mut texts, mut finished) = (Vec::new(), Vec::new(), None);
    thread::scope(|scope| {
        browser.open(&format!("http://{}/", builder.status));
        let building = scope.spawn(|| build(&builder, LABEL, Duration::from_secs(15)));
        eventually("the build appears", || browser.value("document.querySelectorAll('.card[data-build]').length") == 1);
        let title = browser.value("document.querySelector('.card h3').firstChild.textContent");
        assert_eq!(title, LABEL, "a label is a text");
        while !building.is_finished() {
            let card = "document.querySelector('.card[data-build]')";
            let look = format!(
                "[{card}?.querySelector('.bar').getAttribute('aria-valuenow'), {card}?.querySelector('.eta').dataset.seconds,
                  {card}?.querySelector('.bar').getBoundingClientRect().width,
                  {card}?.querySelector('.bar i').getBoundingClientRect().width, {card}?.querySelector('.eta').textContent]"
            );
            let seen = browser.value(&look);
            if seen[1].as_str().is_some_and(|seconds| !seconds.is_empty()) {
                moments.push((Instant::now(), number(&seen[0]), number(&seen[1]), number(&seen[3]) / number(&seen[2])));
                texts.push(seen[4].as_str().unwrap().to_owned());
            }
            if moments.len() == 8 {
                browser.keep_picture(&pictures().join("status-page.png"));
                the_page_is_narrow_and_dark(&browser);
            }
            thread::sleep(Duration::from_millis(200));
        }
        finished = Some(building.join().unwrap());
    });
    let finished = finished.unwrap();
    assert!(
        texts.iter().all(|text| text.contains(" · ~") && text.ends_with(" left")),
        "an estimate is called one: {texts:?}"
    );

    let percents: Vec<f64> = moments.iter().map(|moment| moment.1).collect();
    assert!(percents.is_sorted() && percents[0] < 50.0 && *percents.last().unwrap() > 50.0, "{percents:?}");
    let widths: Vec<f64> = moments.iter().map(|moment| moment.3).collect();
    assert!(widths.iter().any(|width| *width < 0.5) && widths.iter().any(|width| *width > 0.5), "{widths:?}");
    let mut ratios: Vec<f64> = moments
        .iter()
        .map(|(at, _, eta, _)| (finished.saturating_duration_since(*at), eta))
        .filter(|(left, _)| *left > Duration::from_secs(1))
        .map(|(left, eta)| eta / left.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("estimated / real time to go: {ratios:.2?}");
    let median = *ratios.get(ratios.len() / 2).expect("the build ended before it was looked at");
    assert!((0.33..=3.0).contains(&median), "the time to go is wrong: {ratios:?}");

    eventually("the build is among the last ones", || {
        browser.value("document.querySelectorAll('tr[data-ended]').length") == 2
    });
    let first = browser.value("document.querySelector('tr[data-ended]').innerText");
    let first = first.as_str().unwrap();
    assert!(first.contains("succeeded") && first.contains(LABEL) && first.contains("12,000 rows"), "{first}");
    assert_eq!(browser.value("document.querySelectorAll('.card[data-build]').length"), 0);
    assert_eq!(browser.value("document.querySelectorAll('#plots .curve').length"), 3, "rows, elements and pages");
    assert!(
        first.contains("; recall ") && first.contains("; self-recall ") && first.contains("from 127.0.0.1"),
        "{first}"
    );
    the_plots_have_axes_and_values(&browser);
    the_certificate_is_shown_if_there_is_one(&browser);
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 1, "no label became an element");
    assert_eq!(browser.value("document.title"), "lantern-index");
    browser.keep_picture(&pictures().join("status-page-ended.png"));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

fn the_plots_have_axes_and_values(browser: &Browser) {
    let figure = "document.querySelector('figure[data-plot=rows_per_second]')";
    let text =
        |part: &str| browser.value(&format!("{figure}.querySelector('{part}').innerText")).as_str().unwrap().to_owned();
    let rates: Vec<f64> =
        text(".rates").split_whitespace().map(|rate| rate.replace(',', "").parse().unwrap()).collect();
    let [top, middle, zero] = rates[..] else { panic!("{rates:?}") };
    assert!(top > 100.0 && (middle - top / 2.0).abs() < 0.1 && zero == 0.0, "{rates:?}");
    assert!(text(".times").ends_with("now") && text(".times").contains(" s ago"), "{}", text(".times"));
    let point_at = |share: f64| {
        let svg = format!("{figure}.querySelector('svg')");
        browser.value(&format!(
            "((svg, box) => svg.dispatchEvent(new PointerEvent('pointermove', {{ clientX: box.left + box.width * {share} }})))
             ({svg}, {svg}.getBoundingClientRect())"
        ));
        text("figcaption span")
    };
    assert!(point_at(1.0).ends_with("/s now"), "{}", point_at(1.0));
    let before = point_at(0.96);
    assert!(before.contains("/s ") && before.ends_with(" s ago"), "{before}");
    assert_eq!(browser.value(&format!("{figure}.querySelectorAll('.mark').length")), 1);
    browser.keep_picture(&pictures().join("status-page-pointer.png"));
    browser.value(&format!("{figure}.querySelector('svg').dispatchEvent(new PointerEvent('pointerleave'))"));
    assert!(text("figcaption span").contains("now, most "));
}

fn the_certificate_is_shown_if_there_is_one(browser: &Browser) {
    assert_eq!(browser.value("document.getElementById('certificate').hidden"), true, "this builder has none");
    for (days, text, class) in [
        (364, "certificate expires in 364 d 0 h", "chip calm"),
        (12, "certificate expires in 12 d 0 h", "chip"),
        (-2, "certificate expired 2 d 0 h ago", "chip lost"),
    ] {
        let seen = browser.value(&format!(
            "(showCertificate(86400000 * {days}, 0), [byId('certificate').textContent, byId('certificate').className,
              byId('certificate').checkVisibility()])"
        ));
        assert_eq!(seen, serde_json::json!([text, class, true]));
    }
}

fn the_page_is_narrow_and_dark(browser: &Browser) {
    let ground = |scheme: &str| {
        browser.show_as(400, scheme);
        browser.value("getComputedStyle(document.body).backgroundColor").as_str().unwrap().to_owned()
    };
    let (light, dark) = (ground("light"), ground("dark"));
    let sum = |color: &str| {
        color.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok()).sum::<u32>()
    };
    assert!(sum(&light) > 600 && sum(&dark) < 150, "{light} {dark}");
    assert_eq!(browser.value("innerWidth"), 400);
    let spare = browser.value("document.documentElement.clientWidth - document.documentElement.scrollWidth");
    assert_eq!(spare, 0, "nothing is wider than the window");
    browser.keep_picture(&pictures().join("status-page-narrow-dark.png"));
    browser.show_as(1000, "light");
}
