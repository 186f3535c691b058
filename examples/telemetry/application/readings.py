# -*- coding: utf-8 -*-
"""This host's telemetry, read from /proc and /sys. Runs unchanged on Python 2.7 and 3.6 and newer.

A reading is a dictionary: ``sensor``, ``value``, ``unit``.
"""

from __future__ import division

import glob
import os


def all_readings(cpu, disk):
    """Every reading this host has now. ``cpu`` is a Cpu, ``disk`` a path on the file system to look at."""
    readings = load() + memory() + disk_use(disk) + temperatures()
    busy = cpu.busy_percent()
    if busy is not None:
        readings.append(reading("cpu", busy, "%"))
    return readings


def reading(sensor, value, unit):
    return {"sensor": sensor, "value": round(value, 2), "unit": unit}


def load():
    try:
        return [reading("load", os.getloadavg()[0], "processes")]
    except OSError:
        return []


def memory():
    """Memory in use, in percent of what there is; nothing where /proc/meminfo does not say."""
    kilobytes = {}
    for line in lines_of("/proc/meminfo"):
        name, _, rest = line.partition(":")
        if rest.split():
            kilobytes[name] = int(rest.split()[0])
    total, available = kilobytes.get("MemTotal"), kilobytes.get("MemAvailable")
    if not total or available is None:
        return []
    return [reading("memory", 100 * (total - available) / total, "%")]


def disk_use(path):
    """Space in use on the file system of ``path``, in percent, as df counts it."""
    try:
        facts = os.statvfs(path)
    except OSError:
        return []
    used = facts.f_blocks - facts.f_bfree
    usable = used + facts.f_bavail
    return [reading("disk", 100 * used / usable, "%")] if usable else []


def temperatures():
    """One reading for each thermal zone and hardware monitor that gives one; many machines have none."""
    readings = []
    for zone in sorted(glob.glob("/sys/class/thermal/thermal_zone*")):
        name = "".join(lines_of(zone + "/type")).strip() or os.path.basename(zone)
        readings += temperature(name, zone + "/temp")
    for source in sorted(glob.glob("/sys/class/hwmon/hwmon*/temp*_input")):
        name = "".join(lines_of(os.path.join(os.path.dirname(source), "name"))).strip() or "hwmon"
        readings += temperature("%s-%s" % (name, os.path.basename(source).split("_")[0]), source)
    return readings


def temperature(name, path):
    text = "".join(lines_of(path)).strip()
    try:
        return [reading("temperature." + name, int(text) / 1000, "degC")]
    except ValueError:  # empty: the sensor is there and gives nothing now
        return []


class Cpu(object):
    """Share of time the processors were busy between two looks at /proc/stat."""

    def __init__(self):
        self._before = self._ticks()

    def busy_percent(self):
        """Percent since the last call, or None where it cannot be told."""
        before, self._before = self._before, self._ticks()
        if not before or not self._before:
            return None
        spent = [now - then for now, then in zip(self._before, before)]
        total = sum(spent)
        idle = spent[3] + (spent[4] if len(spent) > 4 else 0)  # idle and waiting for a disk
        return 100 * (total - idle) / total if total > 0 else None

    @staticmethod
    def _ticks():
        for line in lines_of("/proc/stat"):
            if line.startswith("cpu "):
                return [int(word) for word in line.split()[1:9]]  # later columns are counted in earlier ones
        return None


def lines_of(path):
    """A small system file's lines; none where it is missing or cannot be read."""
    try:
        with open(path) as file:
            return file.readlines()
    except (IOError, OSError, UnicodeDecodeError):
        return []
