"""A headless browser, as somebody who is signed in to Airflow has one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as conditions
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.support.waiting import PATIENCE_SECONDS

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "there is no chromium with its chromedriver (`apt-get install chromium chromium-driver`)"


class Browser:
    """One window of Chromium.

    Args:
        driver: Of the window.
        url: The address of Airflow.
    """

    def __init__(self, driver: Chrome, url: str) -> None:
        self._driver = driver
        self._url = url

    def sign_in(self, token: str) -> None:
        """Be the user of a token, as Airflow's own form leaves a browser."""
        self._driver.get(f"{self._url}/auth/login")
        self._driver.add_cookie({"name": "_token", "value": token, "path": "/"})

    def open(self, path: str) -> None:
        """Open a page of Airflow."""
        self._driver.switch_to.default_content()
        self._driver.get(self._url + path)

    def enter_frame(self) -> None:
        """Look into the frame in which Airflow shows a page of a plugin."""
        found = conditions.frame_to_be_available_and_switch_to_it((By.TAG_NAME, "iframe"))
        self._wait().until(found)

    def click(self, text: str) -> None:
        """Click a link with a text."""
        link = (By.PARTIAL_LINK_TEXT, text)
        self._wait().until(conditions.element_to_be_clickable(link)).click()

    def choose(self, label: str, text: str) -> None:
        """Choose in a list, or write into a field, that has a label."""
        field = self._driver.find_element(By.CSS_SELECTOR, f'[aria-label="{label}"]')
        if field.tag_name == "select":
            Select(field).select_by_visible_text(text)
        else:
            field.clear()
            field.send_keys(text)

    def press(self, text: str) -> None:
        """Press a button with a text."""
        self._driver.find_element(By.XPATH, f"//button[normalize-space()='{text}']").click()

    def link(self, name: str) -> str:
        """Where a link of the task instance leads, which is open in Airflow's UI."""
        return str(self._link(name).get_attribute("href"))

    def follow(self, name: str) -> None:
        """Click a link of the task instance."""
        self._link(name).click()

    def _link(self, name: str) -> WebElement:
        # The tab of the same name is a link, too, but none that leads away.
        path = f"//a[@rel='noopener noreferrer'][normalize-space()='{name}']"
        return self._wait().until(conditions.element_to_be_clickable((By.XPATH, path)))

    def address(self) -> str:
        """The address of the page."""
        return str(self._driver.current_url)

    def wait_for(self, text: str) -> str:
        """Wait until a text can be read, and give everything that can."""

        def found(_: Chrome) -> str:
            seen = self.text()
            return seen if text in seen else ""

        return str(self._wait().until(found, f"{text!r} is not there"))

    def text(self) -> str:
        """What can be read."""
        return str(self._driver.find_element(By.TAG_NAME, "body").text)

    def plots(self) -> list[dict[str, float]]:
        """The size on the screen of each plot."""
        return [each.size for each in self._driver.find_elements(By.TAG_NAME, "svg")]

    def hrefs(self, selector: str) -> list[str]:
        """Wait until there are links that a CSS selector finds, and give where they lead."""
        found = self._wait().until(
            conditions.presence_of_all_elements_located((By.CSS_SELECTOR, selector))
        )
        return [str(each.get_attribute("href")) for each in found]

    def evaluate(self, script: str) -> Any:
        """Give what a script returns that runs in the page."""
        return self._driver.execute_script(script)

    def complaints(self) -> list[str]:
        """What the browser has refused or not found on our pages since the last call.

        Not that Airflow's own frame allows more than a sandbox should.
        """
        entries = [str(each["message"]) for each in self._driver.get_log("browser")]
        return [each for each in entries if "/cloudfiles/" in each and "sandboxing" not in each]

    def take_picture(self, path: Path, height: int = 1000) -> None:
        """Write what the window shows to a PNG file, of so many pixels from its top."""
        self._driver.set_window_size(1400, height)
        self._driver.save_screenshot(str(path))

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page so many pixels, also fewer than a window may have."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Prefer `dark` or `light`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def ask(self, script: str) -> Any:
        """What an expression gives in the page."""
        return self._driver.execute_script(f"return {script}")

    def search(self, name: str, text: str) -> None:
        """Fill a field of a form in, and send it."""
        field = self._driver.find_element(By.NAME, name)
        field.clear()
        field.send_keys(text, Keys.ENTER)

    def _wait(self) -> WebDriverWait[Chrome]:
        # A page may load itself again while it is looked at.
        gone = [StaleElementReferenceException]
        return WebDriverWait(self._driver, PATIENCE_SECONDS, ignored_exceptions=gone)


@contextmanager
def browser(url: str) -> Iterator[Browser]:
    """Run a browser for the length of a `with` block."""
    options = ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1400,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(DRIVER))
    try:
        yield Browser(driver, url)
    finally:
        driver.quit()
