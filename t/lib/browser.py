"""A browser, as a person has one: Chromium without a window.

Browser looks at a page as a person does: by texts, labels and keys.  It also
tells what a person does not see: the requests of the page, and what the browser
has complained about, such as a breach of the page's policy.
"""

import contextlib
import json
import re

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from lib.process import wait_until

CHROMIUM = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
SOON = 30.0

# in the page: what is said by each element that has a text of its own, and what
# is its colour and that of the next element below with a background
COLOURS = """
    const found = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some(
            child => child.nodeType === 3 && child.data.trim());
        if (!own || !element.checkVisibility() || element.closest("script")) {
            continue;
        }
        let below = element;
        while (below && getComputedStyle(below).backgroundColor
               === "rgba(0, 0, 0, 0)") {
            below = below.parentElement;
        }
        found.push([element.textContent.trim().slice(0, 40),
                    getComputedStyle(element).color,
                    getComputedStyle(below ?? document.body).backgroundColor]);
    }
    return found;
"""


class Browser:
    def __init__(self, directory):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu",
                         "--disable-dev-shm-usage", "--window-size=1400,1000",
                         "--user-data-dir=%s/profile" % directory):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL",
                                                     "performance": "ALL"})
        self.driver = webdriver.Chrome(
            service=Service(DRIVER, log_path="%s/driver.log" % directory),
            options=options)
        self.script = self.driver.execute_script

    def close(self):
        self.driver.quit()

    # looks

    def open(self, url):
        self.driver.get(url)

    def find(self, selector):
        """The elements that are displayed."""
        def is_displayed(element):
            with contextlib.suppress(StaleElementReferenceException):
                return element.is_displayed()
            return False

        return [element for element
                in self.driver.find_elements(By.CSS_SELECTOR, selector)
                if is_displayed(element)]

    def texts(self, selector):
        """The text of each element that is displayed, as a person reads it."""
        return self.script("""
            return [...document.querySelectorAll(arguments[0])]
                .filter(element => element.checkVisibility())
                .map(element => element.innerText
                     .replace(/[\\u2068\\u2069]/g, "").trim());
            """, selector)

    def text(self, selector="body"):
        return "\n".join(self.texts(selector))

    def rows(self, body):
        """The cells of each row of a table that are displayed."""
        return self.script("""
            return [...document.querySelectorAll(`#${arguments[0]} tr`)]
                .filter(row => row.checkVisibility())
                .map(row => [...row.children]
                     .filter(cell => cell.checkVisibility())
                     .map(cell => cell.innerText.trim()));
            """, body)

    def wait_text(self, text, selector="body", timeout=SOON):
        wait_until(lambda: text in self.text(selector), timeout,
                   "%r is seen in %s" % (text, selector))

    def wait_no_text(self, text, selector="body", timeout=SOON):
        wait_until(lambda: text not in self.text(selector), timeout,
                   "%r is not seen in %s any more" % (text, selector))

    # hands

    def press(self, text, selector="button"):
        """Clicks on the button with that text."""
        def pressed():
            with contextlib.suppress(StaleElementReferenceException):
                for button in self.find(selector):
                    if button.text == text:
                        button.click()
                        return True
            return False

        wait_until(pressed, SOON, "a button %r" % text)

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self):
        """The text, or the id, of what has the focus."""
        return self.script("const at = document.activeElement;"
                           "return at.innerText?.trim() || at.id;")

    def fill(self, selector, text):
        element, = self.find(selector)
        element.clear()
        element.send_keys(text)

    def choose(self, selector, text):
        element, = self.find(selector)
        for option in element.find_elements(By.TAG_NAME, "option"):
            if option.text == text:
                option.click()

    def emulate(self, scheme="light", width=1400):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 1000, "deviceScaleFactor": 1,
            "mobile": width < 600})

    # what a person does not see

    def complaints(self):
        """What the browser has complained about since the last call.

        That an answer is 404, say, is a line as well, and no complaint.
        """
        return [entry["message"] for entry in self.driver.get_log("browser")
                if "Failed to load resource" not in entry["message"]]

    def requests(self):
        """(method, URL) of the requests since the last call."""
        messages = [json.loads(entry["message"])["message"]
                    for entry in self.driver.get_log("performance")]
        return [(message["params"]["request"]["method"],
                 message["params"]["request"]["url"])
                for message in messages
                if message["method"] == "Network.requestWillBeSent"]

    def contrasts(self, before=""):
        """(text, the contrast of WCAG) of each text that is displayed."""
        return [(text, contrast(colour(front), colour(back)))
                for text, front, back in self.script(before + COLOURS)]


def colour(text):
    """The numbers of "rgb(1, 2, 3)"; no colour here is transparent."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", text)]
    assert len(numbers) == 3, text
    return numbers


def luminance(colour):
    def linear(part):
        part /= 255
        return (part / 12.92 if part <= 0.04045
                else ((part + 0.055) / 1.055) ** 2.4)

    red, green, blue = map(linear, colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """The ratio of WCAG 2.2, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
