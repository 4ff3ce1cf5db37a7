#!/usr/bin/env python3
"""The page of a run in a real browser (headless Chromium): its charts by steps and by time, zoomed by the address and by a drag of
the pointer, back to the whole range by a double click; what stands without a script. Skipped where there is no Chromium.
"""
import base64
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

EAGLET = os.environ["EAGLET"]
BEGIN = datetime.datetime(2026, 3, 4, 9, 0, tzinfo=datetime.timezone.utc)

# A drag over the first chart from 40 % to 60 % of its frame, as a hand does it; then a double click when wanted.
DRAG = """addEventListener('load', () => {
  const svg = document.querySelector('svg[data-box]'), box = svg.getBoundingClientRect(), [left, right] = svg.dataset.box.split(' ').map(Number);
  const at = share => box.left + (left + share * (right - left)) / 560 * box.width, y = box.top + box.height / 2;
  const send = (name, x) => svg.dispatchEvent(new PointerEvent(name, {bubbles: true, button: 0, clientX: x, clientY: y}));
  send('pointerdown', at(.4)); send('pointermove', at(.5)); send('pointermove', at(.6)); send('pointerup', at(.6));
  if (DOUBLE) svg.dispatchEvent(new MouseEvent('dblclick', {bubbles: true}));
  document.body.dataset.address = location.hash;
});"""


def make_page(place):
    """Steps 0 to 600; ten minutes in which nothing was done lie between 300 and 301."""
    log = f"{place}/run.log"
    with open(log, "w", encoding="utf-8") as file:
        for step in range(0, 601):
            time = BEGIN + datetime.timedelta(seconds=2 * step + (600 if step > 300 else 0))
            file.write(f"{time.isoformat().replace('+00:00', 'Z')} step={step} loss_0={10.5 - 0.01 * step:.3f} lr=1e-4\n")
    page = f"{place}/page.html"
    done = subprocess.run([EAGLET, "watch", log, "--once", "--html", page, "--progress", "none"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert os.path.exists(page), done
    return page


class Browser:
    def __init__(self, program, place):
        self.program, self.place = program, place

    def charts(self, page, address="", complains=False):
        """The first chart as the browser has it after its scripts ran, and the whole of it."""
        done = subprocess.run([self.program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.place}/profile",
                               "--window-size=1200,1000", "--enable-logging=stderr", "--v=0", "--dump-dom", f"file://{page}{address}"],
                              capture_output=True, text=True, timeout=120, check=False)
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        assert bool(said) == complains and all("Content Security Policy" in line for line in said), said
        svg = re.search(r"<svg[^>]*data-box.*?</svg>", done.stdout, re.S)
        assert svg, done.stdout[:500]
        return svg.group(0), done.stdout


def ticks_below(svg):
    """Words under the x axis."""
    axes = re.search(r'<g class="axes">(.*?)</g>', svg, re.S).group(1)
    return re.findall(r'text-anchor="middle"[^>]*>([^<]*)<', axes)


def span_of_curve(svg):
    """Leftmost and rightmost x of the curve that is drawn clearly."""
    path = re.search(r'<path class="c0" d="([^"]*)"', svg).group(1)
    xs = [float(x) for x in re.findall(r"[ML](-?[\d.]+) ", path)]
    return min(xs), max(xs)


def check(browser, page):
    plain, whole = browser.charts(page)
    assert ticks_below(plain) == ["0", "100", "200", "300", "400", "500", "600"], ticks_below(plain)
    assert 'aria-pressed="true">steps<' in whole and "drag over a chart to zoom" in whole
    timed, whole = browser.charts(page, "#axis=time")
    assert ticks_below(timed) == ["09:00", "09:05", "09:10", "09:15", "09:20", "09:25", "09:30"], ticks_below(timed)
    assert "time, UTC, 2026-03-04" in timed and 'aria-pressed="true">time<' in whole
    zoomed, _ = browser.charts(page, "#step=100:200")
    labels = [float(label) for label in ticks_below(zoomed)]
    assert labels[0] == 100 and labels[-1] == 200 and len(labels) >= 4, labels
    left, right = span_of_curve(zoomed)
    assert left < -400 and right > 2000 and "clip-path" in zoomed, (left, right)  # six times as wide, cut at the frame
    tips = re.findall(r'<g class="hit" display="inline">', zoomed)
    assert 5 < len(tips) < 40, len(tips)
    seconds = BEGIN.timestamp()
    both, _ = browser.charts(page, f"#axis=time&time={seconds + 540}:{seconds + 660}")
    assert ticks_below(both) == ["09:09:00", "09:09:30", "09:10:00", "09:10:30", "09:11:00"], ticks_below(both)
    nonsense, _ = browser.charts(page, "#step=9:1&time=a:b&axis=moon")
    assert ticks_below(nonsense) == ticks_below(plain)


def with_script(page, script, target, allowed):
    """A copy of the page with one more script, which its policy names when allowed."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    name = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    if allowed:
        text = text.replace("script-src ", f"script-src 'sha256-{name}' ")
    with open(target, "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", f"<script>{script}</script></body>"))
    return target


def check_that_nothing_else_runs(browser, page, place):
    """What somebody smuggles into the page through a log is no script of it."""
    smuggled = with_script(page, "document.body.dataset.smuggled = 'yes'", f"{place}/smuggled.html", allowed=False)
    _, whole = browser.charts(smuggled, complains=True)
    assert "data-smuggled" not in whole
    _, whole = browser.charts(with_script(page, "document.body.dataset.smuggled = 'yes'", smuggled, allowed=True))
    assert "data-smuggled" in whole


def check_drag(browser, page, place):
    address = {}
    for double in (False, True):
        dragged = with_script(page, DRAG.replace("DOUBLE", str(double).lower()), f"{place}/dragged-{double}.html", allowed=True)
        svg, whole = browser.charts(dragged)
        address[double] = re.search(r'data-address="([^"]*)"', whole).group(1)
        labels = [float(label) for label in ticks_below(svg)]
        assert "selection" not in svg
        if double:
            assert labels[0] == 0 and labels[-1] == 600, labels
        else:
            assert labels[0] >= 240 and labels[-1] <= 360 and len(labels) >= 4, labels
    low, high = (float(v) for v in re.search(r"step=([\d.]+)%3A([\d.]+)", address[False]).groups())
    assert abs(low - 240) < 2 and abs(high - 360) < 2, address
    assert "step" not in address[True], address


def main():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        print("no chromium here: skipped")
        return 77
    with tempfile.TemporaryDirectory() as place:
        page = make_page(place)
        browser = Browser(program, place)
        check(browser, page)
        check_drag(browser, page, place)
        check_that_nothing_else_runs(browser, page, place)
        if os.environ.get("EAGLET_KEEP_PICTURES"):
            shutil.copy(page, os.environ["EAGLET_KEEP_PICTURES"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
