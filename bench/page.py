"""The page of zk_lock_page in Chromium, over many locks that change.

A client holds the locks, releases some of them in turn and acquires them again,
so that there are so many changes a second.  Meanwhile the page has loaded 100,
1000 or 5000 of the locks, and tells for each frame how long it took: what is
above 100 ms a person feels.  Then the client acquires further locks, and the
page tells how soon each is seen.

Browser, gateway, ZooKeeper and the client share the machine, so an empty page
is measured as well: what its frames take, no page can better.
"""

import contextlib
import threading
import time

import common
from common import median, table

from lib.client import Connection, lock_path

LOADS = (100, 1000, 5000)
SAMPLES = 10            # locks that are waited for
NONE = float("nan")
TTL = "1h"

FRAMES = """
    window.frames = [];
    window.measured = true;
    let last = performance.now();
    requestAnimationFrame(function frame(now) {
        window.frames.push(now - last);
        last = now;
        if (window.measured) {
            requestAnimationFrame(frame);
        }
    });

    // what the page's own script takes: it reads an answer, and fills the table
    window.own = [0];
    for (const name of ["parsed", "showList"]) {
        const whole = window[name];
        window[name] = (...all) => {
            const begun = performance.now();
            const result = whole(...all);
            window.own.push(performance.now() - begun);
            return result;
        };
    }
"""

READINGS = """
    return performance.getEntriesByType("resource")
        .filter(entry => entry.name.includes("/locks/?")).length;
"""

# calls back when the first row has that name
SEEN = """
    const [name, done] = arguments;
    const rows = document.getElementById("rows");
    const look = () => {
        if (rows.querySelector("bdi")?.textContent === name) {
            watch.disconnect();
            done();
        }
    };
    const watch = new MutationObserver(look);
    watch.observe(rows, {childList: true, subtree: true, characterData: true});
    look();
"""


def browser_class():
    """The tests' browser, or None if it is not installed."""
    try:
        from lib.browser import Browser
    except ImportError:
        return None
    return Browser


class Holder:
    """A client that holds locks, one request at a time."""

    def __init__(self, port):
        self.connection = Connection(port)
        self.tokens = {}

    def acquire(self, name):
        response = self.connection.request(
            "POST", lock_path(name), {"ttl": TTL, "owner": "client of " + name})
        assert response.status == 201, response
        self.tokens[name] = response.token

    def release(self, name):
        response = self.connection.request(
            "DELETE", lock_path(name),
            headers={"Lock-Token": self.tokens.pop(name)})
        assert response.status == 204, response


@contextlib.contextmanager
def changing(port, holder, rate):
    """Releases and acquires in turn, `rate` of both a second; tells how many.

    The connection is another, so that the holder can go on.
    """
    over = threading.Event()
    changes = []

    def change():
        other = Holder(port)
        other.tokens = holder.tokens
        names = list(holder.tokens)
        # far from each other, and of all parts of the list
        for i in range(0, 10 ** 9, 997):
            name = names[i % len(names)]
            for step in other.release, other.acquire:
                step(name)
                changes.append(name)
                over.wait(1 / rate)
            if over.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield changes
    finally:
        over.set()
        thread.join()


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def measure(browser, gateway, holder, load, args):
    """The frames of a page that has loaded so many locks, or is empty."""
    if load:
        browser.open("http://127.0.0.1:%d/page/" % gateway.port)
        browser.choose("#load", str(load))
        browser.wait_text("%d locks" % min(load, args.locks), "#summary", 60.0)
    else:
        browser.open("about:blank")
    with changing(gateway.port, holder, args.rate) as changes:
        browser.script(FRAMES)
        before, made = browser.script(READINGS), len(changes)
        time.sleep(args.seconds)
        frames = browser.script("window.measured = false;"
                                "return window.frames;")
        own = browser.script("return window.own;")
        readings = browser.script(READINGS) - before
        made = len(changes) - made
        seen = [see(browser, holder, "!%d-%d" % (load, i))
                for i in range(SAMPLES)] if load else [NONE]
    return {"load": load, "frames": len(frames),
            "p50": percentile(frames, 0.5), "p99": percentile(frames, 0.99),
            "max": max(frames), "own_max": max(own),
            "changes_per_second": made / args.seconds,
            "requests_per_second": readings / args.seconds,
            "seen_ms": seen}


def see(browser, holder, name):
    """Milliseconds from an acquire until the page shows the lock."""
    holder.acquire(name)
    began = common.now()
    browser.driver.execute_async_script(SEEN, name)
    taken = 1e3 * (common.now() - began)
    holder.release(name)
    return taken


def arguments():
    p = common.parser(__doc__.partition("\n")[0])
    p.add_argument("--locks", type=int, help="that are held (5000)")
    p.add_argument("--rate", type=float, default=20.0,
                   help="changes a second (20)")
    p.add_argument("--seconds", type=float, help="of each page (20)")
    return common.fill_in(p.parse_args(), {"locks": 1000, "seconds": 5.0},
                          {"locks": 5000, "seconds": 20.0})


def main():
    args = arguments()
    browser_type = browser_class()
    if browser_type is None:
        print("page: left out: no python3-selenium")
        return

    print()
    results = {"setup": common.setup(args, locks=args.locks,
                                     changes="%g a second" % args.rate),
               "pages": []}
    with contextlib.ExitStack() as stack:
        server, _ = stack.enter_context(common.zookeeper(args.data))
        gateway = stack.enter_context(common.gateway("page", server))
        browser = browser_type(gateway.prefix)
        stack.callback(browser.close)
        browser.driver.set_script_timeout(60)
        holder = Holder(gateway.port)
        for i in range(args.locks):
            holder.acquire("lock-%05d" % i)
        results["pages"] = [measure(browser, gateway, holder, load, args)
                            for load in (0,) + LOADS]

    table("frames of the page, ms", [
        "locks loaded", "frames", "p50", "p99", "max", "own script, most",
        "changes a second", "requests a second", "seen after, median",
        "most"], [
        [str(page["load"] or "empty page"), page["frames"], page["p50"],
         page["p99"], page["max"], page["own_max"],
         page["changes_per_second"], page["requests_per_second"],
         median(page["seen_ms"]), max(page["seen_ms"])]
        for page in results["pages"]])
    common.write("page", results)


if __name__ == "__main__":
    common.end_in_order()
    main()
