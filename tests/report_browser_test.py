#!/usr/bin/env python3
"""Looks at a finished run's report.html in a real browser (headless Chromium): it renders, in light and dark, wide and narrow,
loads nothing from outside, logs no error, and the picture is not blank. Skipped where there is no Chromium.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

RUN = os.environ["EAGLET_FINISHED_RUN"]


def read_png(path):
    """(width, height, rows of bytes, bytes per pixel) of an 8-bit RGB or RGBA picture without interlacing."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    at, packed, header = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", data[at + 8:at + 8 + length])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += length + 12
    width, height, depth, color, _, _, interlace = header
    assert depth == 8 and color in (2, 6) and interlace == 0, header
    size = 3 if color == 2 else 4
    raw, stride, rows, before = zlib.decompress(packed), width * size, [], bytearray(width * size)
    for y in range(height):
        kind = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left = row[i - size] if i >= size else 0
            up, corner = before[i], before[i - size] if i >= size else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + up) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                d = (abs(guess - left), abs(guess - up), abs(guess - corner))
                row[i] = (row[i] + (left if d[0] <= d[1] and d[0] <= d[2] else up if d[1] <= d[2] else corner)) & 255
        rows.append(bytes(row))
        before = row
    return width, height, rows, size


def look(browser, page, place, name, *flags):
    picture = f"{place}/{name}.png"
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={place}/profile",
         "--enable-logging=stderr", "--v=0", f"--screenshot={picture}", *flags, f"file://{page}"],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and os.path.exists(picture), done.stderr[-2000:]
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    width, height, rows, size = read_png(picture)
    colors = {row[i:i + 3] for row in rows[::3] for i in range(0, width * size, 3 * size)}
    assert len(colors) >= 20, f"{name}: only {len(colors)} colours: blank?"
    print(f"{name}: {width}x{height}, {len(colors)} colours seen")
    if os.environ.get("EAGLET_KEEP_PICTURES"):
        shutil.copy(picture, os.environ["EAGLET_KEEP_PICTURES"])
    return rows[0][:3]


def main():
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    page = os.path.abspath(f"{RUN}/report.html")
    if browser is None:
        print("no chromium here: skipped")
        return 77
    if not os.path.exists(page):
        print(f"no {page}: the run that makes it was skipped")
        return 77
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|<script", text), "the page reaches outside itself"
    assert "{{" not in text and "nan" not in re.findall(r'(?:d|x|y|width)="([^"]*)"', text)
    with tempfile.TemporaryDirectory() as place:
        dom = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={place}/profile",
                              "--dump-dom", f"file://{page}"], capture_output=True, text=True, timeout=120, check=False).stdout
        assert "<title>eaglet: " in dom and dom.count("<svg") >= 10, "the page did not load whole"
        small = ["--force-device-scale-factor=0.5"]  # fewer pixels to read back
        light = look(browser, page, place, "light", "--window-size=1200,2600", *small)
        dark = look(browser, page, place, "dark", "--window-size=1200,2600", *small, "--blink-settings=preferredColorScheme=0")
        look(browser, page, place, "narrow", "--window-size=500,3200", *small)
        assert sum(light) > 600 > 150 > sum(dark), f"light and dark backgrounds: {list(light)}, {list(dark)}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
