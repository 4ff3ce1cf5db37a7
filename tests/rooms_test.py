#!/usr/bin/env python3
"""Holds every #include "..." of src/ against src/ROOMS, and src/README.md's picture against src/ROOMS.

Checked: a file includes only its own room and the rooms its line in ROOMS names; every line names rooms above it in the
file, so no cycle can form; every room is a folder and every folder a room, with a README.md; the picture names the same rooms and arrows; no
two types of one namespace share a name (the linker keeps one of their destructors, and the other's objects crash with it); no two files of a room keep something of
one name for themselves (a unity build may compile any of them as one).
Each check is first shown a planted violation, so that it is known to be able to fail.
"""
import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# In the picture a room's box carries "name  text" on its first line and "--> rooms" on the following ones.
FOUNDATION = ["base", "tensor"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_rooms(text):
    rooms = {}
    for line in text.splitlines():
        if re.match(r"^[a-z]+:", line):
            name, arrows = line.split(":", 1)
            rooms[name] = arrows.split()
    return rooms


def order_faults(rooms):
    faults, seen = [], set()
    for room, arrows in rooms.items():
        for arrow in arrows:
            if arrow not in seen:
                faults.append(f"ROOMS: {room} may include {arrow}, which does not stand on a line above it")
        seen.add(room)
    return faults


def folder_faults(src, rooms):
    folders = {name for name in os.listdir(src) if os.path.isdir(os.path.join(src, name))}
    return [f"src/{name}: a folder without a line in ROOMS" for name in sorted(folders - set(rooms))] + [
        f"ROOMS: {name} has no folder" for name in sorted(set(rooms) - folders)] + [
        f"src/{name}: no README.md" for name in sorted(folders) if not os.path.exists(os.path.join(src, name, "README.md"))]


def include_faults(src, rooms):
    faults, seen = [], 0
    for room, arrows in rooms.items():
        for folder, _, files in os.walk(os.path.join(src, room)):
            for name in sorted(files):
                if not name.endswith((".h", ".cc", ".cu", ".inc")):
                    continue
                path = os.path.join(folder, name)
                for number, line in enumerate(read(path).splitlines(), 1):
                    match = INCLUDE.match(line)
                    if not match:
                        continue
                    target = match.group(1).split("/")[0]
                    if "/" not in match.group(1) or target not in rooms:
                        continue  # a library's header or a generated one
                    seen += 1
                    if target != room and target not in arrows:
                        faults.append(f"{os.path.relpath(path, src)}:{number}: {room} includes {target}; ROOMS has no such arrow")
    return faults, seen


def read_picture(text):
    """{room: arrows} of the first code block. Boxes lie side by side, so the block is read column by column."""
    lines = text.split("```")[1].splitlines()
    rooms = {}
    row = 0
    while row < len(lines):
        if lines[row].lstrip(" 0123456789").startswith("+--"):
            end = row + 1
            while end < len(lines) and not lines[end].lstrip(" 0123456789").startswith("+--"):
                end += 1
            body = [line for line in lines[row + 1:end] if "|" in line]
            edges = [i for i, c in enumerate(lines[row]) if c == "+"]
            for left, right in zip(edges, edges[1:]):
                words = " ".join(line[left + 1:right] for line in body).split()
                if not words:
                    continue
                arrows = words[words.index("-->") + 1:] if "-->" in words else []
                rooms[words[0]] = [w for w in arrows if w != "-->"]
            row = max(end, row + 1)
        else:
            row += 1
    return rooms


def picture_faults(text, rooms):
    picture = read_picture(text)
    faults = []
    for room in rooms:
        # The two lowest floors are open to all and are left out of the picture's arrows.
        drawn, true = set(picture.get(room, [])), {r for r in rooms[room] if r not in FOUNDATION}
        if room not in picture:
            faults.append(f"src/README.md: {room} is not in the picture")
        elif drawn == {"everything", "below"}:
            if true != set(rooms) - set(FOUNDATION) - {room}:
                faults.append(f"src/README.md: {room} is drawn as including everything below, ROOMS says otherwise")
        elif drawn != true and room not in FOUNDATION:
            faults.append(f"src/README.md: {room} is drawn with arrows {sorted(drawn)}, ROOMS has {sorted(true)}")
    return faults + [f"src/README.md: {room} is drawn but not in ROOMS" for room in picture if room not in rooms]


def named_types(text):
    """Types that a file defines where other files could define the same: not in an unnamed namespace, not within a type."""
    spaces = []
    for line in text.splitlines():
        opened = re.match(r"namespace\s*([\w:]*)\s*\{", line)
        if opened and not line.rstrip().endswith("}"):
            spaces.append(opened.group(1))
        elif re.match(r"}\s*// namespace", line) and spaces:
            spaces.pop()
        match = re.match(r"(?:template.*>\s*)?(?:struct|class|enum class|enum)\s+(\w+)(?:\s+final)?\s*(?::[^:;].*)?\{", line)
        if match and "" not in spaces:
            yield "::".join(spaces + [match.group(1)])


def name_faults(src):
    places = {}
    for folder, _, files in os.walk(src):
        for name in sorted(files):
            if name.endswith((".h", ".cc")):
                path = os.path.join(folder, name)
                for type_name in named_types(read(path)):
                    places.setdefault(type_name, set()).add(os.path.relpath(path, src))
    return [f"{name} is defined in {' and in '.join(sorted(files))}" for name, files in places.items() if len(files) > 1], len(places)


def local_names(text):
    """What a file keeps for itself in unnamed namespaces: types, constants, functions with the types of their parameters."""
    for space in re.findall(r"^namespace \{\n(.*?)^\}  // namespace\n", text, re.M | re.S):
        for name in re.findall(r"^(?:class|struct|enum class|enum) (\w+)", space, re.M):
            yield name
        for name in re.findall(r"^(?:static |const |constexpr )+[^=({;]*?(\w+)(?:\[\w*\])? =", space, re.M):
            yield name
        for name, parameters in re.findall(r"^[A-Za-z][\w:<>,*& ]*?[ *&](\w+)\(([^;{}()]*)\)(?: const)? \{", space, re.M):
            yield f"{name}({','.join(' '.join(p.split()[:-1]) for p in parameters.split(','))})"


def local_faults(src, rooms):
    """A unity build compiles files of a room as one, any of them: no two may keep something of one name for themselves."""
    faults, seen = [], 0
    for room in rooms:
        places = {}
        for name in sorted(os.listdir(os.path.join(src, room))):
            if name.endswith(".cc") and not name.endswith("_test.cc"):
                for local in local_names(read(os.path.join(src, room, name))):
                    places.setdefault(local, set()).add(name)
        seen += len(places)
        faults += [f"{room}: {' and '.join(sorted(files))} each have their own {local}" for local, files in places.items() if len(files) > 1]
    return faults, seen


def prove_the_checks_can_fail():
    rooms = {"base": [], "low": ["base"], "high": ["low", "base"]}
    assert not order_faults(rooms)
    assert order_faults({"base": [], "low": ["high"], "high": ["low"]}), "a cycle went unseen"
    with tempfile.TemporaryDirectory() as src:
        for room in rooms:
            os.mkdir(os.path.join(src, room))
        for path, text in {"high/a.cc": '#include "low/x.h"\n', "low/b.h": '#include "base/y.h"\n#include "high/z.h"\n'}.items():
            with open(os.path.join(src, path), "w", encoding="utf-8") as file:
                file.write(text)
        faults, seen = include_faults(src, rooms)
        assert seen == 3 and len(faults) == 1 and faults[0].startswith("low/b.h:2:"), faults
        assert folder_faults(src, rooms) == [f"src/{room}: no README.md" for room in ("base", "high", "low")]
        for room in rooms:
            with open(os.path.join(src, room, "README.md"), "w", encoding="utf-8"):
                pass
        assert not folder_faults(src, rooms)
        for path, text in {"high/c.h": "namespace a {\nstruct Same {\n", "low/d.cc": "namespace a {\nclass Same : public B {\n",
                           "low/e.cc": "namespace a {\nnamespace {\nstruct Same {\n", "low/f.h": "namespace a {\nstruct Same;\n"}.items():
            with open(os.path.join(src, path), "w", encoding="utf-8") as file:
                file.write(text)
        faults, seen = name_faults(src)
        assert seen == 1 and faults == ["a::Same is defined in high/c.h and in low/d.cc"], faults
        for name, text in {"p.cc": "namespace {\nint f(int a) {\n}\nconstexpr int kA = 1;\n}  // namespace\n",
                           "q.cc": "namespace {\nint f(char a) {\n}\nconstexpr int kB = 1;\n}  // namespace\n",
                           "r.cc": "namespace {\nbool f(int b) {\n}\nconst double kA = 1;\n}  // namespace\n"}.items():
            with open(os.path.join(src, "high", name), "w", encoding="utf-8") as file:
                file.write(text)
        faults, _ = local_faults(src, ["high"])
        assert faults == ["high: p.cc and r.cc each have their own kA", "high: p.cc and r.cc each have their own f(int)"], faults
        os.mkdir(os.path.join(src, "cellar"))
        assert folder_faults(src, rooms), "a folder outside ROOMS went unseen"
    drawn = "```\n+-----------+-----------+\n| low  text | high      |\n|           | --> low   |\n+-----------+-----------+\n| base      |\n+-----------+\n```"
    assert not picture_faults(drawn, rooms), picture_faults(drawn, rooms)
    assert picture_faults(drawn.replace("--> low", "-->    "), rooms), "a missing arrow went unseen"
    assert picture_faults(drawn.replace("| low ", "| lou "), rooms), "a wrong room went unseen"


def main():
    prove_the_checks_can_fail()
    src = os.path.join(os.environ.get("EAGLET_SOURCE", os.path.join(os.path.dirname(__file__), "..")), "src")
    rooms = read_rooms(read(os.path.join(src, "ROOMS")))
    assert len(rooms) > 5, "ROOMS could not be read"
    faults, seen = include_faults(src, rooms)
    faults += order_faults(rooms) + folder_faults(src, rooms) + picture_faults(read(os.path.join(src, "README.md")), rooms)
    doubled, types = name_faults(src)
    faults += doubled
    doubled, locals_seen = local_faults(src, rooms)
    faults += doubled
    assert locals_seen > 500, "hardly any local name was seen: the check is blind"
    assert types > 100, "hardly any type was seen: the check is blind"
    print(f"{len(rooms)} rooms, {seen} includes between files of src/")
    for fault in faults:
        print(fault)
    assert seen > 50, "hardly any include was seen: the check is blind"
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
