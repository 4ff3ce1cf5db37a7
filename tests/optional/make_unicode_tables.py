#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.inc: where the tokenizers library knows another Unicode than the C libraries we link.

Usage: make_unicode_tables.py OUTPUT        (needs: pip install tokenizers; Debian's libonig5 and libutf8proc2)

Every code point is asked of both sides, so the tables are what was seen, not what a version number promises:
  newer        known to the reference's regular expressions only: a character of the same category, script and
               UTF-8 length that both sides know
  numeric      what the reference's Digits takes for a digit
  plain        no decomposition, composition or reordering in the reference's normalisation
"""
import ctypes
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Han Hiragana Katakana").split()
CLASSES = [r"\p{%s}" % name for name in CATEGORIES] + [r"\s", r"\w"]
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 4096


class OnigRegion(ctypes.Structure):
    _fields_ = [("allocated", ctypes.c_int), ("count", ctypes.c_int), ("begin", ctypes.POINTER(ctypes.c_int)),
                ("end", ctypes.POINTER(ctypes.c_int)), ("root", ctypes.c_void_p), ("tree", ctypes.c_void_p)]


class Onig:
    """Just enough of Oniguruma: which characters of a text a class matches."""

    def __init__(self):
        self.lib = ctypes.CDLL("libonig.so.5")
        self.utf8 = ctypes.byref(ctypes.c_char.in_dll(self.lib, "OnigEncodingUTF8"))
        self.syntax = ctypes.c_void_p.in_dll(self.lib, "OnigDefaultSyntax")
        self.lib.onig_region_new.restype = ctypes.POINTER(OnigRegion)
        self.lib.onig_search.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_uint]

    def matched(self, pattern, text):
        regex, info = ctypes.c_void_p(), ctypes.create_string_buffer(64)
        raw = ctypes.create_string_buffer(pattern.encode())
        start = ctypes.addressof(raw)
        status = self.lib.onig_new(ctypes.byref(regex), ctypes.c_void_p(start), ctypes.c_void_p(start + len(pattern)), 0, self.utf8,
                                   self.syntax, info)
        if status != 0:
            raise SystemExit(f"Oniguruma does not know {pattern}")
        data = text.encode()
        buffer = ctypes.create_string_buffer(data)
        begin, end, at, found = ctypes.addressof(buffer), ctypes.addressof(buffer) + len(data), 0, set()
        region = self.lib.onig_region_new()
        while self.lib.onig_search(regex, begin, end, begin + at, end, ctypes.cast(region, ctypes.c_void_p), 0) >= 0:
            first, at = region.contents.begin[0], region.contents.end[0]
            found.update(map(ord, data[first:at].decode()))
        self.lib.onig_free(regex)
        return found


def reference_matched(pattern):
    split, found = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed"), set()
    for block in range(0, len(POINTS), BLOCK):
        part = POINTS[block:block + BLOCK]
        kept = set()
        for _, (first, end) in split.pre_tokenize_str("".join(map(chr, part))):
            kept.update(part[first:end])
        found.update(c for c in part if c not in kept)
    return found


def ranges(points):
    """[[first, last, value]] of {point: value}, neighbours of one value joined."""
    out = []
    for point in sorted(points):
        if out and out[-1][1] == point - 1 and out[-1][2] == points[point]:
            out[-1][1] = point
        else:
            out.append([point, point, points[point]])
    return out


def length(point):
    return len(chr(point).encode())


def newer_characters():
    onig, everything = Onig(), "".join(map(chr, POINTS))
    ours, theirs = {c: [] for c in POINTS}, {c: [] for c in POINTS}
    for pattern in CLASSES:
        for point in onig.matched(f"(?:{pattern})+", everything):
            ours[point].append(pattern)
        for point in reference_matched(pattern):
            theirs[point].append(pattern)
    stand_ins, first_of = {}, {}
    for point in POINTS:
        if ours[point] == theirs[point]:
            first_of.setdefault((tuple(ours[point]), length(point)), point)
    for point in POINTS:
        if ours[point] != theirs[point]:
            stand_ins[point] = first_of[tuple(theirs[point]), length(point)]
    return stand_ins


class Utf8proc:
    def __init__(self):
        self.lib = ctypes.CDLL("libutf8proc.so.2")
        for name in ("utf8proc_NFC", "utf8proc_NFD", "utf8proc_NFKD"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.libc = ctypes.CDLL(None)

    def form(self, name, text):
        place = getattr(self.lib, "utf8proc_" + name)(text.encode())
        out = ctypes.string_at(place).decode()
        self.libc.free(ctypes.c_void_p(place))
        return out


def plain_characters():
    forms = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKD": normalizers.NFKD()}
    ours, plain = Utf8proc(), {}
    for point in POINTS:
        if point == 0:
            continue
        one = chr(point)
        # Alone; before a mark of class 1 and behind one of class 230, which it changes places with if it is a mark itself.
        probes = [(name, text) for name in ("NFD", "NFKD") for text in (one, one + "\u0334", "\u0301" + one)]
        probes.append(("NFC", ours.form("NFD", one)))
        if any(ours.form(name, text) != forms[name].normalize_str(text) for name, text in probes):
            plain[point] = 0
            if ours.form("NFD", one) != one == ours.form("NFC", one):  # its parts, which would be composed
                plain.update((ord(part), 0) for part in ours.form("NFD", one))
    return plain


def main():
    digits = pre_tokenizers.Digits()
    numeric = {c: 0 for c in POINTS if len(digits.pre_tokenize_str("a" + chr(c))) == 2}
    newer, plain = newer_characters(), plain_characters()
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(f"// Made by tests/optional/make_unicode_tables.py: tokenizers {tokenizers.__version__}, libonig 6.9.8, libutf8proc 2.8.0.\n")
        for name, table, pattern in (("kNewer", newer, "{{0x{:x}, 0x{:x}, 0x{:x}}}"), ("kNumeric", numeric, "{{0x{:x}, 0x{:x}}}"),
                                     ("kPlain", plain, "{{0x{:x}, 0x{:x}}}")):
            kind = "StandInRange" if name == "kNewer" else "CodePointRange"
            cells = [pattern.format(*row) for row in ranges(table)]
            out.write(f"constexpr {kind} {name}[] = {{\n")
            line = "   "
            for cell in cells:
                if len(line) + len(cell) + 2 > 108:
                    out.write(line + "\n")
                    line = "   "
                line += " " + cell + ","
            out.write(line + "\n};\n")
    print(len(ranges(newer)), "newer,", len(ranges(numeric)), "numeric,", len(ranges(plain)), "plain ranges")


main()
