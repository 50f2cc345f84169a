"""Settings: a file, then the environment, then flags; what is wrong is refused with its place."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import astray
from astray import Detector, explain, readers
from astray.cli import main
from astray.cli.options import PANELS, with_settings
from astray.cli.running import run
from astray.core.errors import DataError
from astray.core.settings import (
    ASPECTS,
    FORMATS,
    NAMES,
    PAIRS,
    TEXT,
    TEXTS,
    TRUTH,
    Reading,
    Remarks,
    Serving,
    Settings,
    SettingsError,
    Streaming,
    check_parameters,
    declared,
    flag_of,
    reference,
)
from astray.model.pretrained import pretrained
from astray.scoring.decisions import decide
from astray.simulate import city

CHOSEN = {"format": "gpx", "preset": "kdd19", "encoder": "raw", "objective": "trajectory", "look_for": "time,route"}
CHOSEN |= {"columns": "lat=Breite", "time_unit": "ms", "trips": "cut", "false_alarm_rate": "0.25"}
CHOSEN |= {"time_zone": "Asia/Tokyo"}
OTHERS = (Reading, Streaming, Remarks, Serving)  # groups of settings that no detector takes


def file_with(folder: Path, text: str) -> Path:
    path = folder / "astray.toml"
    path.write_text(text)
    return path


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path):
    file = file_with(tmp_path, "eps = -3\ngamma = 2.5\nseed = 1\nskip_bad = true\n")
    environ = {"ASTRAY_GAMMA": "1.25", "ASTRAY_SEED": "2", "PATH": "/bin"}
    settings = Settings.gather(file, environ, {"seed": 3, "eps": None})
    assert (settings.eps, settings.gamma, settings.seed, settings.skip_bad) == (-3.0, 1.25, 3, True)


def test_of_eps_and_false_alarm_rate_the_last_one_given_counts(tmp_path: Path):
    file = file_with(tmp_path, "eps = -3")
    assert Settings.gather(file).eps == -3.0
    ways = ["eps", "false_alarm_rate"]
    assert Settings.gather(file, {"ASTRAY_FALSE_ALARM_RATE": "0.05"}).given(ways) == {"false_alarm_rate": 0.05}
    assert Settings.gather(file, {"ASTRAY_FALSE_ALARM_RATE": "0.05"}, {"eps": -1.0}).given(ways) == {"eps": -1.0}
    with pytest.raises(SettingsError, match="--eps and --false-alarm-rate: they exclude each other"):
        Settings.gather(flags={"eps": -1.0, "false_alarm_rate": 0.05})


def test_aspects_are_those_of_the_shipped_reward():
    assert pretrained().aspects == ASPECTS
    assert Settings.gather(environ={"ASTRAY_LOOK_FOR": "time, place"}).look_for == ("time", "place")


def test_without_a_source_no_setting_counts_as_given():
    settings = Settings.gather()
    assert settings == Settings()
    assert settings.given(["eps", "gamma", "iterations"]) == {}


def test_the_environment_can_name_the_file_and_a_flag_another(tmp_path: Path):
    named, given = file_with(tmp_path, "eps = -4"), tmp_path / "other.toml"
    given.write_text("eps = -5")
    environ = {"ASTRAY_CONFIG": str(named)}
    assert Settings.gather(None, environ).eps == -4.0
    assert Settings.gather(given, environ).eps == -5.0


def test_lists_and_pairs_are_written_alike_in_toml_and_in_text(tmp_path: Path):
    file = file_with(tmp_path, 'users = ["000", "017"]\n[columns]\nlat = "Breite"\nlon = "Länge"\n')
    read = Settings.gather(file)
    said = Settings.gather(environ={"ASTRAY_USERS": "000, 017", "ASTRAY_COLUMNS": "lat=Breite,lon=Länge"})
    flagged = Settings.gather(flags={"users": "000,017", "columns": ["lat=Breite", "lon=Länge"]})
    assert read.users == said.users == flagged.users == ("000", "017")
    assert read.columns == said.columns == flagged.columns == {"lat": "Breite", "lon": "Länge"}


def test_a_rate_for_each_aspect_reads_the_same_from_everywhere(tmp_path: Path):
    rates = {"place": 0.015, "manner": 0.01}
    for text in ("false_alarm_rate = {place = 0.015, manner = 0.01}", "false_alarm_rate = 'place=0.015,manner=0.01'"):
        assert Settings.gather(file_with(tmp_path, text)).false_alarm_rate == rates
    assert Settings.gather(environ={"ASTRAY_FALSE_ALARM_RATE": "place=0.015, manner=0.01"}).false_alarm_rate == rates
    assert Settings.gather(flags={"false_alarm_rate": "place=0.015,manner=0.01"}).false_alarm_rate == rates
    check_parameters(Detector(false_alarm_rate=rates))


@pytest.mark.parametrize("word", ["1", "true", "Yes", "on"])
def test_true_and_false_may_be_written_in_several_words(word: str):
    assert Settings.gather(environ={"ASTRAY_ROBUST": word}).robust is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epss = 1", "'epss'; did you mean eps?"),
        ("weather = 1", "'weather'; there are format"),
        ("eps = 'low'", "eps in .*: 'low' is not a number"),
        ("seed = 1.5", "seed in .*: 1.5 is not a whole number"),
        ("seed = true", "seed in .*: True is not a whole number"),
        ("seed = -1", "seed in .*: -1 cannot be used; give 0 or more"),
        ("eps = nan", "eps in .*: nan is not a number"),
        ("false_alarm_rate = 2.0", "give a share between 0 and 1"),
        ("false_alarm_rate = 'pace=0.1'", "one for each of some aspects .place, route, manner, time."),
        ("false_alarm_rate = 'place=often'", "'often' is not a number"),
        ("false_alarm_rate = {place = 0.7, time = 0.7}", "give a share between 0 and 1"),
        ("false_alarm_rate = {}", "give a share between 0 and 1"),
        ("look_for = ['weather']", "give some of place, route, manner, time"),
        ("look_for = []", "give some of place, route, manner, time"),
        ("preset = 'best'", "give one of default, shared, own, kdd19"),
        ("format = 7", "format in .*: 7 is not a text"),
        ("users = 7", "users in .*: 7 is not a list of texts"),
        ("columns = 'lat'", "'lat' is not of the form name=value"),
        ("columns = 'Breite=lat,lon=x'", "'Breite=lat,lon=x' cannot be used; role and name are exchanged: give lat=Br"),
        ("columns = ['Breite=lat', 'lon=x']", "'Breite=lat,lon=x' cannot be used; role and name are exchanged: give l"),
        ("columns = 'speed=v'", "role=name pairs with the roles time, date, lat"),
        ("skip_bad = 'maybe'", "'maybe' is neither true nor false"),
        ("eps = ", "not a TOML file"),
    ],
)
def test_a_wrong_file_is_refused_with_the_name_and_what_it_takes(tmp_path: Path, text: str, said: str):
    with pytest.raises(SettingsError, match=said):
        Settings.gather(file_with(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(SettingsError, match="No such file"):
        Settings.gather(tmp_path / "none.toml")


def test_a_misspelt_name_in_the_environment_is_refused_and_unrelated_names_are_ignored():
    assert Settings.gather(environ={"ASTRAY_PORTO": "/data", "ASTRAY_HOME": "x"}) == Settings()
    with pytest.raises(SettingsError, match=r"ASTRAY_FALSE_ALARM_RATES .* did you mean ASTRAY_FALSE_ALARM_RATE"):
        Settings.gather(environ={"ASTRAY_FALSE_ALARM_RATES": "0.1"})


def test_every_setting_is_documented_and_no_flag_is_unknown():
    rows = reference()
    assert [name for name, _, _ in rows] == list(NAMES)
    assert all(len(says) > 10 for _, _, says in rows)
    with pytest.raises(SettingsError, match="--speed: there is no such setting"):
        Settings.gather(flags={"speed": 1})


def test_the_help_of_fit_lists_no_setting_of_the_service(capsys: pytest.CaptureFixture[str]):
    assert main(["fit", "--help"]) == 0
    shown = capsys.readouterr().out
    assert flag_of("false_alarm_rate") in shown
    assert not [f.name for f in fields(Serving) if f"{flag_of(f.name)} " in shown]


def test_settings_name_the_registered_formats_and_aspects():
    assert set(FORMATS) == set(readers.FORMATS)
    assert set(ASPECTS) == set(pretrained().aspects) == set(explain.ASPECTS)


# -------------------------------------------------------------------- declared once


def written(name: str) -> str:
    """A value of a setting, not its default, as a flag or the environment has it."""
    kind = declared(name).metadata["kind"]
    return CHOSEN.get(name, {TEXT: "x", TEXTS: "x,y", PAIRS: "a=b", TRUTH: "true"}.get(kind, "7"))


def settings_by(way: str, name: str, folder: Path) -> Settings:
    """What a command gets that has every flag, if one setting is given to it."""
    got: list[Settings] = []

    @with_settings(*PANELS)
    def command(settings: Settings) -> None:
        """Take anything."""
        got.append(settings)

    text, kind = written(name), declared(name).metadata["kind"]
    arguments = [flag_of(name)] if kind is TRUTH else [flag_of(name), text]
    if way == "file":
        bare = kind not in (TEXT, TEXTS, PAIRS)
        arguments = ["--config", str(file_with(folder, f"{name} = {text if bare else repr(text)}"))]
    if way == "environment":
        arguments = ["--config", str(file_with(folder, ""))]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(f"ASTRAY_{name.upper()}", text)
            assert run("test", command, arguments) == 0
    else:
        assert run("test", command, arguments) == 0
    return got[0]


@pytest.mark.parametrize("way", ["flag", "file", "environment"])
@pytest.mark.parametrize("name", NAMES)
def test_every_setting_can_be_given_in_every_way_and_reaches_the_detectors(name: str, way: str, tmp_path: Path):
    settings = settings_by(way, name, tmp_path)
    value = declared(name).metadata["kind"].read(written(name))
    assert settings.given(NAMES) == {name: value}
    assert getattr(settings, name) == value != declared(name).default
    takers = [d for d in (Detector, Detector) if name in inspect.signature(d).parameters]
    assert bool(takers) != (name in {f.name for group in OTHERS for f in fields(group)})
    for detector in takers:
        assert detector(**settings.of(detector)).get_params()[name] == value
        assert inspect.signature(detector).parameters[name].default == declared(name).default
        assert f"\n{name}\n    {declared(name).metadata['help'][:40]}" in (detector.__doc__ or "")


def test_fit_has_a_flag_for_every_setting_that_a_detector_takes():
    flags = set(inspect.signature(importlib.import_module("astray.cli.fit").command).parameters)
    for detector in (Detector, Detector):
        assert set(inspect.signature(detector).parameters) & set(NAMES) <= flags


def test_the_decision_rule_has_the_defaults_of_the_settings():
    defaults = {name: p.default for name, p in inspect.signature(decide).parameters.items() if p.default is not p.empty}
    assert defaults == {name: declared(name).default for name in defaults}


def test_asking_for_an_unknown_setting_is_an_error():
    with pytest.raises(ValueError, match="no setting is named falsealarmrate"):
        with_settings("falsealarmrate")
    with pytest.raises(KeyError, match="falsealarmrate"):
        Settings().given(["falsealarmrate"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"false_alarm_rate": 2.0}, "false_alarm_rate is 2.0; give a share between 0 and 1"),
        ({"false_alarm_rate": {"pace": 0.1}}, "or one for each of some aspects"),
        ({"false_alarm_rate": {"place": "often"}}, "give numbers"),
        ({"look_for": {"weather": 1.0}}, "give some of place, route, manner, time"),
        ({"gamma": float("nan")}, "gamma is nan; give a number above 0"),
        ({"encoder": "best"}, "give one of familiarity, fourier, raw"),
    ],
)
def test_the_detector_refuses_the_values_that_the_command_line_refuses(wrong: dict[str, Any], said: str):
    with pytest.raises(DataError, match=said):
        check_parameters(Detector(**wrong))
    check_parameters(Detector(gamma=lambda trips: [1.0] * len(trips), keep=1, look_for={"place": 2.0}))


def names_in_commands() -> Iterator[tuple[str, str]]:
    """Every setting that a command reads by its name, and where."""
    source = Path(astray.__file__).parent
    further = [source / "service" / "startup.py"]
    for file in [*(source / "cli").glob("*.py"), *further]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            place = f"{file.name}, line {getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("settings"):
                yield node.attr, place
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("settings.given", ".with_settings")):
                parts = [part for given in node.args for part in ast.walk(given) if isinstance(part, ast.Constant)]
                yield from ((str(part.value), place) for part in parts)


def test_every_setting_is_used_and_no_old_name_remains():
    read = {name: place for name, place in names_in_commands() if not callable(getattr(Settings, name, None))}
    assert {name: place for name, place in read.items() if name not in NAMES} == {}
    taken = {f.name for f in fields(Detector)}
    assert set(NAMES) <= set(read) | taken


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"seed": float("inf")}, "seed is inf; give a whole number"),
        ({"seed": "x"}, "seed is 'x'; give a whole number"),
        ({"iterations": 1.5}, "iterations is 1.5; give a whole number"),
        ({"min_history": None}, "min_history is None; give a number"),
        ({"false_alarm_rate": "often"}, "false_alarm_rate is 'often'; give a number"),
        ({"eps": "low"}, "eps is 'low'; give a number"),
        ({"look_for": 5}, "look_for is 5; give some of place"),
        ({"time_zone": 5}, "time_zone is 5; give the name of a time zone"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_refused_like_a_wrong_value(params: dict[str, Any], message: str):
    past = city(people=1, days=3, seed=0).trips
    with pytest.raises(DataError, match=message):
        Detector(**params).fit(past)


def test_setting_a_threshold_that_is_not_a_number_later_is_refused():
    past = city(people=1, days=3, seed=0).trips
    model = Detector().fit(past)
    for wrong in ("low", ["low"] * len(past), lambda trips: ["low"] * len(trips)):
        with pytest.raises(DataError, match="eps does not give one threshold"):
            model.set_params(eps=wrong).score(past)
    with pytest.raises(DataError, match="ways is -1; give a whole number, 0 or more"):
        Detector(ways=-1).fit(past)
