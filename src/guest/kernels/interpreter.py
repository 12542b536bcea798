"""Runs once in each Python kernel of the code interpreter: figures also become charts, tables become data.

Two formatters are added to IPython's, for the media types e2b/chart and e2b/data. Neither matplotlib nor
pandas is imported here: the formatters are registered by name and cost nothing until one is.
"""
import os
import re
import sys
import types


# ---- variables of one execution ----

def env_module():
    saved = {}

    def enter(variables):
        saved.clear()
        for name, value in variables.items():
            saved[name] = os.environ.get(name)
            os.environ[name] = value

    def leave(variables):
        for name in variables:
            old = saved.pop(name, None)
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old

    module = types.ModuleType("cove_interpreter_env")
    module.enter, module.leave = enter, leave
    sys.modules[module.__name__] = module


# ---- values ----

def plain(value):
    """A value as JSON knows it."""
    import datetime
    import math
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return str(value)


def unit(label):
    found = re.search(r"\(([^()]+)\)\s*$", label or "")
    return found.group(1) if found else None


def on_axis(axis, values):
    """Data of a date axis as ISO times, of others as numbers."""
    if scale(axis) == "datetime":
        import matplotlib.dates
        return [matplotlib.dates.num2date(v).isoformat() if isinstance(v, (int, float)) or hasattr(v, "item")
                else plain(v) for v in values]
    return [plain(v) for v in values]


def scale(axis):
    name = axis.get_scale()
    if name != "linear":
        return name
    converter = getattr(axis, "converter", None) or getattr(axis, "_converter", None)
    kind = type(converter).__name__
    if "Date" in kind or "Datetime" in kind:
        return "datetime"
    if "StrCategory" in kind:
        return "categorical"
    return "linear"


# ---- charts ----

def labels(ax):
    x, y = ax.get_xlabel() or None, ax.get_ylabel() or None
    return {"title": ax.get_title() or None, "x_label": x, "y_label": y, "x_unit": unit(x), "y_unit": unit(y)}


def ticks(ax):
    return {
        "x_ticks": on_axis(ax.xaxis, ax.get_xticks()),
        "x_tick_labels": [t.get_text() for t in ax.get_xticklabels()],
        "x_scale": scale(ax.xaxis),
        "y_ticks": on_axis(ax.yaxis, ax.get_yticks()),
        "y_tick_labels": [t.get_text() for t in ax.get_yticklabels()],
        "y_scale": scale(ax.yaxis),
    }


def name_of(artist, number):
    label = str(artist.get_label() or "")
    return label if label and not label.startswith("_") else f"Line {number}"


def is_box(line):
    x = list(line.get_xdata())
    return len(x) == 5 and x[0] == x[3] == x[4] and x[1] == x[2] and x[0] != x[1]


def boxes(ax):
    """What boxplot() drew: per box the box, two whiskers, two caps, the median, the outliers."""
    lines, found = list(ax.get_lines()), []
    names = [t.get_text() for t in ax.get_xticklabels()]
    for at, line in enumerate(lines):
        if not is_box(line):
            continue
        group = lines[at + 1:at + 7]
        if len(group) < 5:
            return []
        low, high = (float(group[i].get_ydata()[0]) for i in (2, 3))
        y = [float(v) for v in line.get_ydata()]
        outliers = [plain(v) for v in group[5].get_ydata()] if len(group) > 5 else []
        label = names[len(found)] if len(found) < len(names) else str(len(found) + 1)
        found.append({"label": label, "min": low, "first_quartile": min(y), "median": float(group[4].get_ydata()[0]),
                      "third_quartile": max(y), "max": high, "outliers": outliers})
    return found


def bars(ax):
    found = []
    names = [t.get_text() for t in ax.get_xticklabels()]
    positions = [float(p) for p in ax.get_xticks()]
    for number, container in enumerate(ax.containers):
        if type(container).__name__ != "BarContainer":
            continue
        group = str(container.get_label() or "")
        for bar in container:
            flat = getattr(container, "orientation", None) == "horizontal"
            middle = bar.get_y() + bar.get_height() / 2 if flat else bar.get_x() + bar.get_width() / 2
            tick = min(range(len(positions)), key=lambda i: abs(positions[i] - middle)) if positions and not flat else None
            label = names[tick] if tick is not None and names[tick] else str(plain(middle))
            if flat:
                ynames, ypos = [t.get_text() for t in ax.get_yticklabels()], [float(p) for p in ax.get_yticks()]
                near = min(range(len(ypos)), key=lambda i: abs(ypos[i] - middle)) if ypos else None
                label = ynames[near] if near is not None and ynames[near] else label
            found.append({"label": label, "group": group if group and not group.startswith("_") else f"group_{number}",
                          "value": plain(bar.get_width() if flat else bar.get_height())})
    return found


def wedges(ax):
    found = []
    names = [t.get_text() for t in ax.texts]
    parts = [p for p in ax.patches if type(p).__name__ == "Wedge"]
    for number, wedge in enumerate(parts):
        label = str(wedge.get_label() or "")
        if label.startswith("_") or not label:
            label = names[number] if number < len(names) else str(number)
        found.append({"label": label, "angle": plain(wedge.theta2 - wedge.theta1), "radius": plain(wedge.r)})
    return found


def points(ax, series):
    return [{"label": label, "points": list(map(list, zip(on_axis(ax.xaxis, x), on_axis(ax.yaxis, y))))}
            for label, x, y in series]


def lines(ax):
    return points(ax, [(name_of(line, i), list(line.get_xdata()), list(line.get_ydata()))
                       for i, line in enumerate(ax.get_lines()) if len(line.get_xdata())])


def dots(ax):
    series = []
    for i, c in enumerate(ax.collections):
        if type(c).__name__ == "PathCollection" and len(c.get_offsets()):
            xy = c.get_offsets()
            series.append((name_of(c, i), [p[0] for p in xy], [p[1] for p in xy]))
    return points(ax, series)


def chart_of(ax):
    """One pair of axes: the first kind that has something to show."""
    pie = wedges(ax)
    if pie:
        return {"type": "pie", "title": ax.get_title() or None, "elements": pie}
    box = boxes(ax)
    if box:
        return {"type": "box_and_whisker", **labels(ax), "elements": box}
    bar = bars(ax)
    if bar:
        return {"type": "bar", **labels(ax), "elements": bar}
    scatter = dots(ax)
    if scatter:
        return {"type": "scatter", **labels(ax), **ticks(ax), "elements": scatter}
    line = lines(ax)
    if line:
        return {"type": "line", **labels(ax), **ticks(ax), "elements": line}
    return {"type": "unknown", "title": ax.get_title() or None, "elements": []}


def chart_of_figure(figure):
    try:
        charts = [chart_of(ax) for ax in figure.axes if ax.get_visible()]
    except Exception:  # a figure that we do not understand is still a picture
        return None
    charts = [c for c in charts if c["elements"]] or charts
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": charts}


# ---- tables ----

def data_of_frame(frame):
    try:
        if len(frame) * max(1, len(frame.columns)) > 200000:
            return None  # too large to be shown
        out = {}
        for column in frame.columns:
            out[str(column)] = [plain(v) for v in frame[column].tolist()]
        return out
    except Exception:
        return None


# ---- IPython ----

def is_a(obj, name):
    return any(f"{t.__module__}.{t.__qualname__}" == name for t in type(obj).__mro__)


def register():
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    # The class is looked at here: setting up inline figures removes every formatter registered for them.
    class Chart(BaseFormatter):
        format_type = Unicode("e2b/chart")
        print_method = ObjectName("_repr_e2b_chart_")

        def __call__(self, obj):
            return chart_of_figure(obj) if is_a(obj, "matplotlib.figure.Figure") else None

    class Data(BaseFormatter):
        format_type = Unicode("e2b/data")
        print_method = ObjectName("_repr_e2b_data_")

        def __call__(self, obj):
            frame = is_a(obj, "pandas.core.frame.DataFrame") or is_a(obj, "pandas.DataFrame")
            return data_of_frame(obj) if frame else None

    formatter = get_ipython().display_formatter
    for one in Chart(parent=formatter), Data(parent=formatter):
        formatter.formatters[one.format_type] = one


env_module()
register()
