"""Make the reference: the public names from their docstrings, the commands from their flags, the settings.

    python docs/make_reference.py [--check]

Writes Markdown to docs/reference; with --check it only says whether that is up to date.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

from typer.models import OptionInfo

from astray.cli import commands, load_command
from astray.cli.running import unwrapped
from astray.core import settings

FOLDER = Path(__file__).parent / "reference"

# Page to its title and its modules; of each module the public names, or those that are listed.
PAGES: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "detectors": (
        "Detectors",
        {
            "astray": ("Detector", "Detector", "load"),
            "astray.model.observing": ("Observed", "Question"),
            "astray.model.fleet_training": ("SharingConfig", "GoingOnConfig"),
        },
    ),
    "trajectories": ("Trajectories", {"astray": ("Trajectories", "TripId"), "astray.core.trip_ids": ("find_trips",)}),
    "readers": ("Readers", {"astray.readers": ()}),
    "decisions": (
        "Decisions",
        {"astray.scoring.decisions": ("decide", "level", "doubt", "ByHour", "ByContext"), "astray.core.errors": ()},
    ),
    "explanations": (
        "Explanations and pictures",
        {"astray.explain": ("Explanation", "ExplainedSegment"), "astray.plots": ()},
    ),
    "live": ("Live", {"astray.runtime": ()}),
    "simulation": (
        "Simulation",
        {"astray.simulate": ("city", "world", "Variety", "Simulation", "Change", "ANOMALY_KINDS")},
    ),
    "learning": (
        "Learning, for experts",
        {
            "astray.irl.kdd19": ("algorithm_1", "algorithm_2", "normality_score", "irl_ad", "irl_adu"),
            "astray.irl.trainer": ("learn_agent_reward", "learn_shared_reward", "Learned"),
            "astray.irl.learn_config": ("LearnConfig", "RewardConfig", "TRPOConfig"),
            "astray.irl.trpo": ("TRPO",),
            "astray.irl.shared": ("Reward", "Reference"),
            "astray.model.pretrained": ("pretrained", "read_reward", "write_reward"),
            "astray.model.pretraining": ("Recipe", "pretrain"),
            "astray.features.featurizer": ("FeaturizerConfig",),
            "astray.features.context": ("ContextSpec",),
            "astray.core.faults": ("FaultRules",),
            "astray.features.memory": ("Forgetting", "Memory"),
            "astray.features.encoders": ("Encoder",),
            "astray.features.steps": ("Steps",),
            "astray.irl.counterfactuals": ("explore", "Path"),
            "astray.irl.dynamics": (),
            "astray.features.statistics": ("statistics_of", "Statistic", "TripHabit"),
            "astray.features.popularity": ("Popularity",),
            "astray.scoring.scale_config": ("ScaleConfig", "LengthConfig"),
            "astray.model.inbox": ("ObservingConfig",),
            "astray.scoring.normality": (
                "Calibration",
                "Sample",
                "calibrate",
                "step_normality",
                "trip_normality",
                "mean_normality",
            ),
        },
    ),
    "baselines": (
        "Baselines",
        {"astray_benchmark.baselines": (), "astray_benchmark.external_detectors": ("ExternalDetector",)},
    ),
    "metrics": ("Metrics", {"astray_benchmark.metrics": ()}),
}


def pages() -> dict[str, str]:
    """Every page of the reference: its file name and its text."""
    made = {f"{name}.md": _module_page(title, modules) for name, (title, modules) in PAGES.items()}
    made |= {"command-line.md": _command_page(), "settings.md": _settings_page()}
    contents = [(text.partition("\n")[0].removeprefix("# "), name) for name, text in made.items()]
    lines = [
        "# Reference",
        "",
        "Made from the docstrings by `make docs`; the [pages around it](../README.md) explain.",
        "",
    ]
    made["README.md"] = "\n".join(lines + [f"- [{title}]({name})" for title, name in contents]) + "\n"
    # Doctests stand as they are written in the code, whatever a formatter thinks of them.
    return {name: text.replace("\n", "\n\n<!-- fmt: off -->\n", 1) for name, text in made.items()}


# -------------------------------------------------------------------- names and docstrings


def _module_page(title: str, modules: dict[str, tuple[str, ...]]) -> str:
    parts = [f"# {title}"]
    for path, names in modules.items():
        module = importlib.import_module(path)
        if not names:
            parts.append(_markdown(inspect.getdoc(module) or ""))
        for name in names or _public(module):
            parts += _name(f"{path}.{name}", getattr(module, name))
    return "\n\n".join(part for part in parts if part) + "\n"


def _public(module: ModuleType) -> list[str]:
    """What ``__all__`` lists; else the documented classes and functions that the module itself defines, in order."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [name for name, value in own.items() if getattr(value, "__module__", "") == module.__name__]


def _name(path: str, value: Any) -> Iterator[str]:
    yield f"## `{path}`"
    value = inspect.unwrap(value) if callable(value) else value  # what a cache stands before
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        yield f"```python\n{_short(repr(value), 400)}\n```" if not isinstance(value, dict) else _keys(value)
        return
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        yield f"```python\n{_signature(path.rpartition('.')[2], value)}\n```"
    yield _markdown(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        yield _fields(value)
        for name, member in _members(value):
            yield f"### `{value.__name__}.{name}`"
            if not isinstance(member, property):
                yield f"```python\n{_signature(name, member)}\n```"
            yield _markdown(inspect.getdoc(member) or "")


def _keys(value: dict[Any, Any]) -> str:
    return "One of " + ", ".join(f"`{key}`" for key in value) + "."


def _members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The documented methods and properties of a class and of its bases here, those of the bases last."""
    seen = set()
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen or not base.__module__.startswith("astray"):
                continue
            seen.add(name)
            value = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if (inspect.isfunction(value) or isinstance(value, property)) and value.__doc__:
                yield name, value


def _signature(name: str, value: Callable[..., Any]) -> str:
    """A call as one writes it, on one line if it fits."""
    signature = inspect.signature(value)
    said: list[str] = []
    star = False
    for p in signature.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            said, star = [*said, "*"], True
        star = star or p.kind is p.VAR_POSITIONAL
        mark = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        typed = "" if p.annotation is p.empty else f": {_annotation(p.annotation)}"
        default = "" if p.default is p.empty else f"{' = ' if typed else '='}{_default(p.default)}"
        said.append(f"{mark}{p.name}{typed}{default}")
    gives = signature.return_annotation
    after = "" if inspect.isclass(value) or gives is signature.empty else f" -> {_annotation(gives)}"
    line = f"{name}({', '.join(said)}){after}"
    return line if len(line) <= 110 else f"{name}(\n" + "".join(f"    {part},\n" for part in said) + f"){after}"


def _annotation(annotation: Any) -> str:
    annotation = getattr(annotation, "__forward_arg__", annotation)  # as named tuples keep theirs
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: Any) -> str:
    text = repr(value)
    return "..." if text.startswith("<") or len(text) > 60 else text


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."


def _fields(kind: type[Any]) -> str:
    """The fields of a dataclass or named tuple that have a remark beside them."""
    if not (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        return ""
    remarks = re.findall(r"^    (\w+): [^#\n]*#\s*(.*)$", inspect.getsource(kind), re.MULTILINE)
    return "\n".join(f"- `{name}`: {_inline(remark)}" for name, remark in remarks)


def _markdown(doc: str) -> str:
    """A numpy-style docstring as Markdown."""
    doc = re.sub(r"^(\w[\w ]*)\n-{3,}$", r"**\1**\n", doc, flags=re.MULTILINE)
    out: list[str] = []
    for block in re.split(r"\n{2,}", doc):
        if block.lstrip().startswith(">>>"):
            out.append(f"```pycon\n{inspect.cleandoc(block)}\n```")
        elif re.match(r"^\S[^\n]*\n    \S", block):
            out.append(_definitions(block))
        elif block.startswith("    "):
            # What is indented belongs to the definition above, or is an example as it stands.
            out.append("\n".join(f"  {line.strip()}" for line in _inline(block).splitlines()))
        else:
            out.append(_inline(block))
    return "\n\n".join(part for part in out if part)


def _definitions(block: str) -> str:
    """``name`` above an indented text, as a list."""
    items: list[str] = []
    for line in block.splitlines():
        if line.startswith("    "):
            items[-1] += f" {line.strip()}"
        else:
            items.append(f"- **{line.replace('*', chr(92) + '*')}**:")
    return "\n".join(_inline(item) for item in items)


def _inline(text: str) -> str:
    text = re.sub(r":\w+:`[^`<]*<([^`>]*)>`", r"`\1`", text)
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


# -------------------------------------------------------------------- the command line


def _command_page() -> str:
    every = commands()
    lines = ["# The command line", ""]
    lines += [f"- [`astray {name}`](#astray-{name}): {says}" for name, says in every.items()]
    lines += ["", "Exit codes: 0 well, 1 data or model refused, 2 wrong usage, 130 interrupted.", ""]
    for name in every:
        lines += _command(name, load_command(name))
    return "\n".join(lines) + "\n"


def _command(name: str, command: Callable[..., None]) -> Iterator[str]:
    hints = get_type_hints(command, include_extras=True)
    usage, said = ["astray", name], []
    for parameter in inspect.signature(command).parameters.values():
        told = get_args(hints[parameter.name])[1]  # what typer was told of it
        needed = parameter.default is inspect.Parameter.empty
        default = "" if parameter.default in (None, False) or needed else f" Default: {_plain(parameter.default)}."
        value = told.metavar or parameter.name.upper()
        if isinstance(told, OptionInfo):
            # What typer takes for a default is the first of the flags.
            flags = [str(told.default), *(told.param_decls or ())]
            usage += [f"{flags[0]} {value}"] if needed else []
            value = f"{', '.join(flags)} {told.metavar or ''}".rstrip()
        else:
            usage.append(value)
        said.append(f"- `{value}`: {told.help}{default}")
    yield f"## `astray {name}`\n\n```sh\n{' '.join([*usage, '[OPTIONS]'])}\n```\n"
    yield _help(unwrapped(command.__doc__ or "")) + "\n"
    yield from [*said, ""]


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _help(text: str) -> str:
    """Help as Markdown: examples as a block, bold as bold."""
    text = text.replace("[b]Examples[/b]\n\n", "").replace("[b]Example[/b]\n\n", "")
    text = re.sub(r"\[/?dim\]", "", text).replace("[b]", "**").replace("[/b]", "**")
    parts = [f"```sh\n{inspect.cleandoc(p)}\n```" if p.startswith("  ") else p for p in text.split("\n\n")]
    return "\n\n".join(parts)


def _settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Each has one name everywhere: `eps` in a TOML file, `ASTRAY_EPS` in the environment, `--eps` as a flag; the",
        "later overrides the earlier. Those of learning and deciding are parameters of the detectors, too.",
        "A command takes no notice of settings that do not concern it.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
        *(f"| `{name}` | {default} | {says} |" for name, default, says in settings.reference()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the pages, or check them; gives the exit status."""
    made = pages()
    if "--check" in sys.argv[1:]:
        stale = [
            name
            for name, text in made.items()
            if not (FOLDER / name).is_file() or (FOLDER / name).read_text("utf-8") != text
        ]
        print("\n".join(f"{FOLDER / name} is not up to date; run make docs" for name in stale) or "up to date")
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
