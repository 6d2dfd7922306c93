"""Plots of what was measured, for pages: SVG by gnuplot.

usage: plot.py [--results build/bench] [--out docs/bench]

Reads the JSON that the measurements have written, as far as it is there, and
makes of each a few pictures; a picture for which there are no figures is not
made, and one that is there already is left alone.  It computes nothing: what is
drawn are the medians as they stand in the JSON.

    throughput.json            throughput-own, throughput-hot, latency-own,
    throughput-ensemble.json   latency-hot; the same with -ensemble
    handover.json              handover, depth
    names.json                 names
    waiters.json               waiters

Colours are of a set that also those can tell apart who do not see all of them;
in the lines' pictures each line has marks of its own shape, too, and the
legend has the order in which the lines end.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# name in the JSON -> label, colour, width, shape of marks, dashes; the gateway
# stands out, and what is no lock (raw, http) is dashed
STYLES = {
    "gateway": ("this gateway", "#0072B2", 5, 7, 1),
    "gateway-1": ("gateway, one worker", "#0072B2", 2, 7, 3),
    "curator": ("Curator", "#D55E00", 2, 5, 1),
    "kazoo": ("kazoo", "#E69F00", 2, 9, 1),
    "etcd": ("etcd, over HTTP", "#009E73", 2, 13, 1),
    "webdis": ("Redis, by webdis", "#CC79A7", 2, 11, 1),
    "raw": ("ZooKeeper, no lock", "#555555", 2, 4, 2),
    "http": ("HTTP alone, no lock", "#999999", 2, 6, 2),
}
ALIASES = {"redis": "webdis", "rawzk": "raw", "libzookeeper": "raw",
           "raw round trip": "raw"}
OTHER = ("#56B4E9", 2, 6, 1)

WORKS = {"own": "each client its own lock", "hot": "one lock for all clients"}
ENSEMBLE = ", three servers"

# the gateway's ways of handing over are all the gateway's colour
WAYS = {"local": "this gateway, same worker",
        "sibling": "this gateway, other worker",
        "other gateway": "from gateway to gateway",
        "curator": "Curator", "kazoo": "kazoo", "etcd": "etcd, over HTTP",
        "raw round trip": "ZooKeeper, one round trip"}
GATEWAY_WAYS = ("local", "sibling", "other gateway")

SORTS = {"idle connection": "idle connection",
         "keep-alive connection": "keep-alive connection",
         "request held by nginx": "held by nginx itself",
         "request waiting for a lock": "waiting for a lock",
         "guarded request waiting": "waiting for its guard's lock"}

PREAMBLE = """\
set terminal svg size 800,480 fixed enhanced font 'Helvetica,15' \
background '#ffffff' linewidth 1
set output '{path}'
set encoding utf8
set border 3 linecolor '#444444'
set grid linecolor '#dddddd' linewidth 1
set tics nomirror scale 0.5 textcolor '#222222'
set title font 'Helvetica,18' textcolor '#000000' offset 0,0.3
set key noenhanced
"""


# --- gnuplot ------------------------------------------------------------------

def draw(out, name, script):
    path = os.path.join(out, name + ".svg")
    text = PREAMBLE.format(path=path.replace("'", "''")) + script
    run = subprocess.run(["gnuplot", "-"], input=text.encode(),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         timeout=60)
    said = run.stdout.decode("utf-8", "replace").strip()
    if run.returncode != 0 or said:
        print("plot: %s: %s" % (name, said or run.returncode))
    else:
        print("plot: written to %s" % os.path.relpath(path))
    return run.returncode == 0


def quoted(text):
    """A string in double quotes; \\n in it begins a line."""
    return '"%s"' % text.replace('"', "'")


def block(name, rows):
    """A data block of gnuplot's."""
    lines = "\n".join(" ".join("%.6g" % cell for cell in row)
                      for row in rows)
    return "$%s << EOD\n%s\nEOD\n" % (name, lines)


def short(value):
    """A number as it is written on an axis."""
    if value >= 100:
        return "{:,.0f}".format(value)
    return ("%.3g" if value >= 10 else "%.2g") % value


def figure(value):
    """A number as it is written at a bar."""
    if value >= 100:
        return "{:,.0f}".format(value)
    return "%.1f" % value if value >= 1 else "%.2f" % value


def log_axis(axis, values, named=True):
    """Range and tics of a logarithmic axis: 1, 2, 5, 10 as there is room."""
    least, most = min(values) / 1.3, max(values) * 1.3
    steps = (1, 2, 5) if most / least < 300 else (1, 3) \
        if most / least < 5000 else (1,)
    tics = [step * 10.0 ** power for power in range(-4, 10)
            for step in steps if least <= step * 10.0 ** power <= most]
    return ("set logscale {0}\nset {0}range [{1:.6g}:{2:.6g}]\n"
            "set {0}tics ({3})\n").format(
                axis, least, most,
                ", ".join("%s %.6g" % (quoted(short(tic) if named else ""), tic)
                          for tic in tics))


def linear_tics(most):
    """A few tics from 0 on."""
    ten = 10.0 ** math.floor(math.log10(most))
    step = next(step for step in (ten / 10, ten / 5, ten / 2, ten, 2 * ten)
                if most / step <= 8)
    return ", ".join("%s %.6g" % (quoted(short(i * step) if i else "0"),
                                  i * step)
                     for i in range(int(most / step) + 1))


def clients_axis(counts, label="clients"):
    """Logarithmic, with a tic at each number that was measured."""
    return ("set logscale x\nset xrange [%.6g:%.6g]\nset xtics (%s)\n"
            "set xlabel %s\n"
            % (min(counts) / 1.25, max(counts) * 1.25,
               ", ".join("%s %d" % (quoted("{:,}".format(n)), n)
                         for n in sorted(counts)), quoted(label)))


# --- lines: contenders by clients ---------------------------------------------

def style(contender):
    """label, colour, width, shape, dashes"""
    name = ALIASES.get(contender, contender)
    return STYLES.get(name) or (name,) + OTHER


def curves(medians, work, member, scale=1.0):
    """contender -> [(clients, value)], those that have any."""
    found = {}
    for contender, works in medians.items():
        points = sorted((int(clients), run[member] * scale)
                        for clients, run in works.get(work, {}).items()
                        if run.get(member))
        if points:
            found[contender] = points
    return found


def plot_lines(lines, prefix=""):
    """(data blocks, what to plot): in the order in which the lines end, and
    the gateway's once more, on top of all.
    """
    order = sorted(lines, key=lambda c: lines[c][-1][1], reverse=True)
    blocks, plots = "", []
    for i, contender in enumerate(order):
        data = "%sd%d" % (prefix, i)
        blocks += block(data, lines[contender])
        label, colour, width, shape, dash = style(contender)
        look = ("$%s with linespoints linecolor '%s' linewidth %g "
                "pointtype %d pointsize %g dashtype %d"
                % (data, colour, width, shape, 0.55 + 0.07 * width, dash))
        plots.append("%s title %s" % (look, quoted(label)))
        if contender == "gateway":
            top = "%s notitle" % look
    if "gateway" in lines:
        plots.append(top)
    return blocks, "plot " + ", \\\n     ".join(plots) + "\n"


LEGEND = ("set key at screen %g,0.84 left top Left reverse spacing 1.5 "
          "samplen 2 enhanced font 'Helvetica,13'\n")


def throughput(out, results, suffix, where):
    medians = results.get("medians", {})
    for work, words in WORKS.items():
        lines = curves(medians, work, "per_second")
        if lines:
            draw_throughput(out, "throughput-" + work + suffix, lines,
                            "Locks a second: " + words + where)
        halves = (curves(medians, work, "cycle_p50_us", 1e-3),
                  curves(medians, work, "cycle_p99_us", 1e-3))
        if all(halves):
            draw_latency(out, "latency-" + work + suffix, halves,
                         "How long a lock and its release take: "
                         + words + where)


def points_of(lines):
    counts = {n for points in lines.values() for n, _ in points}
    return counts, [v for points in lines.values() for _, v in points]


def draw_throughput(out, name, lines, title):
    counts, values = points_of(lines)
    blocks, plots = plot_lines(lines)
    draw(out, name, blocks
         + "set title %s\nset rmargin at screen 0.755\n" % quoted(title)
         + "set ylabel 'acquired and released a second'\n"
         + clients_axis(counts) + log_axis("y", values)
         + LEGEND % 0.775 + plots)


def draw_latency(out, name, halves, title):
    counts, values = points_of(halves[0])
    values += points_of(halves[1])[1]
    script = ("set multiplot\nset label 1 %s at screen 0.5,0.955 center "
              "font 'Helvetica,18'\n" % quoted(title)
              + clients_axis(counts) + log_axis("y", values)
              + "set tmargin at screen 0.83\nset bmargin at screen 0.15\n"
              "set ylabel 'milliseconds' offset 0.5,0\nunset key\n")
    for i, (lines, words) in enumerate(zip(halves, (
            "median", "99 of 100 are faster"))):
        left = (0.125, 0.47)[i]
        blocks, plots = plot_lines(lines, "h%d" % i)
        script += (blocks + "set lmargin at screen %g\n"
                   "set rmargin at screen %g\nset title %s "
                   "font 'Helvetica,15' offset 0,-0.3\n"
                   % (left, left + 0.3, quoted(words)) + plots
                   + "unset label 1\nunset ylabel\n"
                   + log_axis("y", values, named=False) + LEGEND % 0.785)
    draw(out, name, script + "unset multiplot\n")


# --- bars ---------------------------------------------------------------------

# where the axis of hand-overs begins
LEAST_MS = 0.01


def bars(title, label, rows, left=0.2, least=0.0):
    """Bars from left to right; rows: (name, colour, value, longer or None,
    text at its end).  What a longer bar shows is paler, behind the other.  With
    a least value the axis begins there, and goes by powers of ten.
    """
    most = max(max(value, longer or 0) for _, _, value, longer, _ in rows)
    end = most * (9 if least else 1.32)
    blocks, plots, names = "", [], []
    for i, (name, colour, value, longer, text) in enumerate(rows):
        y = -i
        names.append("%s %d" % (quoted(name), y))
        data = [(longer, 0.28, "fillcolor '%s' fillstyle solid 0.30"),
                (value, 0.28, "fillcolor '%s' fillstyle solid 1.0")]
        for j, (size, half, look) in enumerate(data):
            if size:
                block_name = "b%d_%d" % (i, j)
                blocks += block(block_name,
                                [(least, y, least, size,
                                  y - half, y + half)])
                plots.append("$%s with boxxyerror %s notitle"
                             % (block_name, (look % colour) + " noborder"))
        blocks += "set label %s at %.6g,%d left offset 0.8,0 " \
                  "font 'Helvetica,14'\n" \
                  % (quoted(text), max(value, longer or 0), y)
    return (blocks + "set title %s\nset xlabel %s\nset lmargin at screen %g\n"
            "set rmargin at screen 0.97\nset tmargin at screen 0.86\n"
            "%sset xrange [%g:%.6g]\n%s"
            "set yrange [%g:0.7]\nset ytics (%s) scale 0\nset grid noytics\n"
            "unset key\nset border 2\n"
            % (quoted(title), quoted(label), left,
               "set logscale x\n" if least else "", least, end,
               "set format x '%g'\n" if least
               else "set xtics (%s)\n" % linear_tics(end),
               0.3 - len(rows), ", ".join(names))
            + "plot " + ", \\\n     ".join(plots) + "\n")


def handover(out, results):
    ways = results.get("ways", {})
    rows = []
    for way in list(WAYS) + [way for way in ways if way not in WAYS]:
        run = ways.get(way)
        if not run or not run.get("p50_us"):
            continue
        p50, p99 = run["p50_us"] / 1e3, run.get("p99_us", 0) / 1e3
        colour = style("gateway" if way in GATEWAY_WAYS else way)[1]
        rows.append((WAYS.get(way, way), colour, p50, p99,
                     "%s / %s" % (figure(p50), figure(p99)) if p99
                     else figure(p50)))
    if rows:
        draw(out, "handover",
             bars("From a release to the next one's grant",
                  "milliseconds: median, and paler what 99 of 100 need",
                  rows, 0.28, LEAST_MS))


def depth(out, results):
    found = results.get("depth", {})
    lines = {}
    for member, words in (("grant_p99_us", "99 of 100 are faster"),
                          ("grant_p50_us", "median")):
        points = sorted((int(n), run[member] / 1e3)
                        for n, run in found.items() if run.get(member))
        if points:
            lines[words] = points
    if not lines:
        return

    counts, values = points_of(lines)
    colour = style("gateway")[1]
    blocks, plots = "", []
    for words, width, shape in (("99 of 100 are faster", 2, 6),
                                ("median", 5, 7)):
        if words in lines:
            blocks += block("d%d" % shape, lines[words])
            plots.append("$d%d with linespoints linecolor '%s' linewidth %g "
                         "pointtype %d pointsize 0.8 title %s"
                         % (shape, colour, width, shape, quoted(words)))
    draw(out, "depth", blocks
         + "set title 'What a grant costs, by the length of the queue'\n"
         "set ylabel 'milliseconds from a release to the next grant'\n"
         "set yrange [0:%.6g]\nset key top left Left reverse spacing 1.4\n"
         % (max(values) * 1.35)
         + clients_axis(counts, "clients that wait for the lock")
         + "plot " + ", \\\n     ".join(plots) + "\n")


def waiters(out, results):
    each = results.get("memory", {}).get("bytes_each", {})
    rows = []
    for name, words in SORTS.items():
        if name in each:
            value = each[name]["pss"] / 1024
            colour = ("#0072B2" if name == "request waiting for a lock"
                      else "#888888")
            rows.append((words, colour, value, None, figure(value)))
    if rows:
        draw(out, "waiters",
             bars("Memory of each connection, over all workers",
                  "KiB (proportional set size)", rows, 0.24))


def names(out, results):
    """Rates of locks that are used seldom, by contender."""
    medians = results.get("medians", {})
    rows = []
    for contender in sorted(medians, key=lambda c: -medians[c].get(
            "per_second", 0)):
        rate = medians[contender].get("per_second")
        if rate:
            label, colour = style(contender)[:2]
            rows.append((label, colour, rate, None, figure(rate)))
    if rows:
        draw(out, "names", bars("Locks a second: many different names",
                                "acquired and released a second", rows))


# --- all ----------------------------------------------------------------------

PICTURES = (
    ("throughput", lambda out, r: throughput(out, r, "", "")),
    ("throughput-ensemble",
     lambda out, r: throughput(out, r, "-ensemble", ENSEMBLE)),
    ("handover", handover),
    ("handover", depth),
    ("names", names),
    ("waiters", waiters),
)


def read(directory, name):
    try:
        with open(os.path.join(directory, name + ".json")) as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def main():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--results", metavar="DIR",
                   default=os.path.join(TREE, "build", "bench"),
                   help="where the JSON is (build/bench)")
    p.add_argument("--out", metavar="DIR",
                   default=os.path.join(TREE, "docs", "bench"),
                   help="where the pictures go (docs/bench)")
    args = p.parse_args()

    if not shutil.which("gnuplot"):
        print("plot: there is no gnuplot, so there are no pictures: install "
              "gnuplot-nox")
        return

    os.makedirs(args.out, exist_ok=True)
    for name, make in PICTURES:
        results = read(args.results, name)
        if results is not None:
            make(args.out, results)


if __name__ == "__main__":
    sys.exit(main())
