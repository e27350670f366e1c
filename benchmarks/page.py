"""Times the page of `tembed explore` in headless Chromium with software GL: loading, and frames at three zooms.

    python benchmarks/page.py PAGE_FOLDER [--frames 30]

A frame is drawn and read back, so that the time covers all its work. The first view shows every patch as
density; the ratios are to its CPU time, which covers all threads and depends little on what else the machine does.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.chromium import Tab, find_browser, running  # type: ignore[import-not-found]

VIEWS = {"whole map, density": 0.0, "fading in, 9 px": 9.0, "pictures, 14 px": 14.0, "pictures, 40 px": 40.0}
"""Views by the width of a picture; 0 is the whole map."""
MEASURE = """
(async (pixels, frames) => {
  const map = tembed.page.map, gl = map.drawing.gl, one = new Uint8Array(4), times = [];
  const fit = tembed.camera.fit(map.width, map.height);
  map.setCamera(pixels ? { ...fit, scale: map.zoomFor(pixels) * fit.scale } : fit, false);
  for (let k = 0; k < frames + 3; k++) {
    map.camera = { ...map.camera, x: map.camera.x + 1e-5 };
    const start = performance.now();
    map.draw();
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, one);
    if (k >= 3) times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done));
  }
  return times;
})(%s, %d)
"""


def loading(tab: Tab) -> float:
    """Seconds from the start of the navigation to the first picture, by the browser's own clock."""
    tab.wait("tembed.started")
    return float(tab.run("tembed.started")) / 1000


def processor_seconds(process: int) -> float:
    """CPU time of a process and everything below it, which other work on the machine hardly changes."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(int(child)) for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--frames", type=int, default=30)
    arguments = parser.parse_args()
    browser = find_browser()
    if browser is None:
        sys.exit("no browser on the PATH")
    size = sum(path.stat().st_size for path in arguments.folder.rglob("*") if path.is_file())
    network = sum(path.stat().st_size for path in arguments.folder.glob("network/*"))
    print(f"size: {(size - network) / 1e6:.1f} MB, and {network / 1e6:.1f} MB for the network")
    with tempfile.TemporaryDirectory() as profile, running(browser, Path(profile)) as started:
        tab = started.open((arguments.folder / "index.html").resolve().as_uri(), 1200, 800, reduced_motion="reduce")
        print(f"patches: {tab.run('tembed.about.images * tembed.about.perImage'):,}")
        process = started.process.pid
        print(
            f"first picture after {loading(tab):.2f} s; CPU time since the browser started: "
            f"{processor_seconds(process):.2f} s"
        )
        time.sleep(1)
        first = None
        for name, pixels in VIEWS.items():
            before = processor_seconds(process)
            times = tab.run(MEASURE % (pixels, arguments.frames))
            used = 1000 * (processor_seconds(process) - before) / (arguments.frames + 3)
            first = first or used
            print(
                f"{name:<20} median {statistics.median(times):6.1f} ms, best {min(times):6.1f} ms, CPU time of all "
                f"processes {used:6.1f} ms a frame, ratio {used / first:.2f}"
            )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
