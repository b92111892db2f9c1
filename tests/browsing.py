"""Chromium for the tests: how it is started, sized and read. It can reach no host but this machine."""

import importlib.util
import json
import os
import shutil
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

#: Packages that bring axe-core along, the newest axe-core first, and where it lies in them.
AXE = {"axe_playwright_python": "axe.min.js", "axe_selenium_python": "node_modules/axe-core/axe.min.js",
       "selenium_axe_python": "axe-core/axe.min.js"}


def missing():
    """Why there is no browser to test with; None if there is one."""
    if not importlib.util.find_spec("selenium"):
        return "selenium is not installed"
    return None if BROWSER and DRIVER else "no chromium and chromedriver on this machine"


def start():
    from selenium import webdriver
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for argument in ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
                     "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]:
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium has none for the superuser
    driver = webdriver.Chrome(service=webdriver.ChromeService(DRIVER), options=options)
    driver.set_script_timeout(120)
    return driver


def set_width(driver, width):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})


def set_theme(driver, theme):
    driver.execute_script("Object.assign(document.documentElement.dataset, {theme: arguments[0], mode: arguments[0]})", theme)


def media(driver, kind="", motion=False):
    """Screen or print; moving things stand still, as readers can ask their system to have it."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": [
        {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"}]})


def press(driver, *keys):
    """Press keys, by name, with the focus where it is."""
    from selenium.webdriver import ActionChains, Keys
    ActionChains(driver).send_keys(*(getattr(Keys, key, key) for key in keys)).perform()


def log(driver):
    """What happened since the last call: errors of the console, addresses asked for, and requests that failed."""
    own = "/favicon.ico"  # which a browser asks a server for of its own accord
    errors = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE" and own not in entry["message"]]
    asked, failed, address = [], [], {}
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        method, found = message["method"], message["params"]
        if method == "Network.requestWillBeSent":
            asked.append(found["request"]["url"])
            address[found["requestId"]] = found["request"]["url"]
        elif method == "Network.loadingFailed" and not found.get("canceled"):
            failed.append((address.get(found["requestId"]), found["errorText"]))
        elif method == "Network.responseReceived" and found["response"]["status"] >= 400 and own not in found["response"]["url"]:
            failed.append((found["response"]["url"], found["response"]["status"]))
    return errors, asked, failed


def axe_script():
    """The source of axe-core from an installed package, or None."""
    for package, path in AXE.items():
        spec = importlib.util.find_spec(package)
        if spec:
            return (Path(spec.submodule_search_locations[0]) / path).read_text(encoding="utf-8")
    return None
