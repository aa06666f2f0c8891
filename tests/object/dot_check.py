# SPDX-License-Identifier: MIT
"""Has Graphviz draw what dot_pictures writes: real cycles and neighbourhoods, and names made up to break a picture.

Each picture must be drawn without a word of complaint, have as many nodes and edges as the program says, and show each text.
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

LONGEST = 400  # bytes of a text that are shown
SVG = "{http://www.w3.org/2000/svg}"


def hostile_names():
    names = [b"plain", b'"', b'""', b"\\", b"\\\\", b'\\"', b"\\n", b"\\N", b"\\G", b"\\E", b"\\l", b"a\\", b"a\nb", b"\r\n", b"\t",
             b"\0", b"a\0b", b"&", b"&lt;", b"&amp;", b"&#65;", b"&bogus;", b"<b>", b"<TABLE>", b"</text>", b"]]>", b'"];}', b'"]; x [label="',
             b"// no comment", b"/* */", b"# 1", b"{a|b}", b"<a> b", b"a -> b", b"%s", b"std::vector<int*, a&&>", b"\xff", b"\xc3", b"\xc3(",
             b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbf\xbe", b"\xef\xbf\xbf", b"\x7f", b"\x1b[31m", bytes(range(256)),
             b"x" * 399, b"x" * 400, b"x" * 401, b'"' * 1_000, b"\\" * 1_000, b"&" * 1_000, "\u00e9".encode() * 300, "\u6f22".encode() * 200,
             "\U0001f600 \u2028 \u202e \u0085".encode()]
    dice = random.Random(1)
    likely = b'a"\\&<>;{}|\n \xc3\xa9\xff'
    for _ in range(150):
        names.append(b"x" + bytes(dice.choice(likely) if dice.random() < 0.9 else dice.randrange(256)
                                  for _ in range(dice.randrange(20))))
    return names


def shown(raw):
    """What a reader of the picture sees of these bytes."""
    text, at = "", 0
    while at < len(raw):
        if at >= LONGEST:
            return text + "..."
        for size in (1, 2, 3, 4):
            try:
                character = raw[at:at + size].decode("utf-8")
            except UnicodeDecodeError:
                continue
            break
        else:
            character, size = "", 1
        if character in ("", "\ufffe", "\uffff") or character < " " or character == "\x7f":
            character, size = f"\\x{raw[at]:02X}", 1
        text += character
        at += size
    return text


def draw(path, form):
    done = subprocess.run(["dot", f"-T{form}", path], capture_output=True, check=False)
    complaints = [line for line in done.stderr.decode().splitlines() if "Pango" not in line and "fontconfig" not in line.lower()]
    assert done.returncode == 0 and not complaints, f"{path.name}: status {done.returncode}, {complaints}"
    return done.stdout.decode("utf-8")


def squeezed(text):
    """Graphviz draws runs of blanks as it likes."""
    return " ".join(text.replace("\u00a0", " ").split())


def texts_of(group):
    return [squeezed("".join(element.itertext())) for element in group.iter(SVG + "text")]


def check_counts(path, nodes, edges, dashed):
    picture = json.loads(draw(path, "json"))
    found = [o for o in picture.get("objects", []) if "nodes" not in o]
    drawn = picture.get("edges", [])
    assert len(found) == nodes, f"{path.name}: {len(found)} nodes, not {nodes}"
    assert len(drawn) == edges, f"{path.name}: {len(drawn)} edges, not {edges}"
    assert sum(e.get("style") == "dashed" for e in drawn) == dashed, f"{path.name}: other edges are dashed"
    svg = xml.fromstring(draw(path, "svg"))
    groups = [g.get("class") for g in svg.iter(SVG + "g")]
    assert groups.count("node") == nodes and groups.count("edge") == edges, f"{path.name}: the SVG has others"
    return svg


def check_names(svg, names):
    nodes = {g.find(SVG + "title").text: texts_of(g) for g in svg.iter(SVG + "g") if g.get("class") == "node"}
    edges = {g.find(SVG + "title").text: texts_of(g) for g in svg.iter(SVG + "g") if g.get("class") == "edge"}
    for number, raw in enumerate(names, 1):
        type_line = squeezed(shown(raw + f" #{number}".encode()))
        assert nodes[f"o{number}"] == [type_line, "0 B", squeezed(shown(raw))], (raw, nodes[f"o{number}"])
        if number > 1:
            assert edges[f"o{number - 1}->o{number}"] == [squeezed(shown(raw))], (raw, edges[f"o{number - 1}->o{number}"])


def main():
    if shutil.which("dot") is None:
        print("skipped: Graphviz is not installed, whose `dot` draws the pictures")
        sys.exit(77)
    names = hostile_names()
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        names_path = folder / "names"
        names_path.write_text("".join(f"{name.hex()}\n" for name in names))
        printed = subprocess.run([sys.argv[1], names_path, folder], check=True, capture_output=True, text=True).stdout
        pictures = [line.split() for line in printed.splitlines()]
        assert [p[0] for p in pictures] == ["cycles.dot", "none.dot", "refs.dot", "backrefs.dot", "hostile.dot"], printed
        drawn = {name: check_counts(folder / name, *map(int, counts)) for name, *counts in pictures}
        check_names(drawn["hostile.dot"], names)
        cycles = [t for g in drawn["cycles.dot"].iter(SVG + "g") for t in texts_of(g)]
        for wanted in ['inputs["a "quoted\\" key\\x0A"]', "outputs[1]", 'build "model"%2Ffirst', "no cycle"]:
            assert (wanted in cycles) != (wanted == "no cycle"), f"{wanted} in {sorted(set(cycles))}"
    print(f"{len(pictures)} pictures drawn, with {len(names)} names made up to break one")


if __name__ == "__main__":
    main()
